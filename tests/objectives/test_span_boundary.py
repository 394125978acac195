"""The head on the borders of spans: against its formula written out, by hand, and through the loop."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from clozeworks.core import spec
from clozeworks.core.batch import Batch, Spans
from clozeworks.core.errors import RecipeError
from clozeworks.core.process_group import ProcessGroup
from clozeworks.data.batches.rows import Epoch, Row, Source, collate
from clozeworks.evaluate.heldout import measure
from clozeworks.model import Model
from clozeworks.objectives.losses.masked_lm import MaskedLM, MaskedLMLayer
from clozeworks.objectives.losses.span_boundary import SpanBoundary
from clozeworks.objectives.mask import MaskSpans, MaskTokens
from clozeworks.objectives.objective import Objective, Segments
from clozeworks.objectives.segments import DocSentences, FullSentences, SegmentPair
from clozeworks.recipe import build
from clozeworks.recipes.bert import bert_tiny
from clozeworks.train.loop import Policy, accumulate, count_predictions
from tests.objectives.layouts import VOCABULARY, lay
from tests.toys import Text


def made(longest: int = 15, table: int | None = None, positions: int = 7) -> Model:
    """A small model in double precision, with weights large enough that a mistake shows."""
    r = bert_tiny()
    r.encoder.vocab, r.encoder.embed.width = VOCABULARY.size, table
    r.objective = Objective(DocSentences(), MaskSpans(), (MaskedLM(), SpanBoundary(0.5, longest, positions)))
    model = build(r).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=0.1)
    return model


def epoch(segments: Segments | None = None, rate: float = 0.3) -> Epoch:
    return Source(Text.random(60), segments or DocSentences(length=48), MaskSpans(rate), VOCABULARY, 1).epoch(0)


def singles(examples: Epoch, index: np.ndarray) -> list[Batch]:
    return [collate([Row(examples, index[at : at + 1])]) for at in range(len(index))]


# ---- the formula, token by token


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean()
    return centred / ((centred**2).mean() + 1e-12).sqrt() * weight + bias


def surprise(model: Model, left: Tensor, right: Tensor, place: int, label: int) -> Tensor:
    """-log P(label | x_left, x_right, p_place)."""
    p = {name.removeprefix("heads.span_boundary."): value for name, value in model.named_parameters()}
    x = torch.cat([left, right, p["positions.weight"][place]])
    h = normed(gelu(p["first.weight"] @ x + p["first.bias"]), p["first_norm.weight"], p["first_norm.bias"])
    y = normed(gelu(p["second.weight"] @ h + p["second.bias"]), p["second_norm.weight"], p["second_norm.bias"])
    logits = p["encoder.embed.words.table.weight"] @ y + p["bias"]
    return logits.exp().sum().log() - logits[label]


def written_out(model: Model, examples: Epoch, index: np.ndarray, longest: int) -> tuple[Tensor, int]:
    """The sum over every span that has an ordinary token of its piece on both sides, an example at a time."""
    total, predictions = torch.zeros((), dtype=torch.float64), 0
    for number in index:
        ragged = examples.examples(np.array([number]))
        batch = collate([Row(examples, np.array([number]))])
        x = model.encoder(batch.tokens, batch.token_info, batch.context()).last[0]
        for begin, end in ragged.spans(0):
            if ragged.special[begin - 1] or ragged.special[end]:
                continue
            for at in range(begin, min(end, begin + longest)):
                total = total + surprise(model, x[begin - 1], x[end], at - begin, int(ragged.labels[at]))
                predictions += 1
    return total, predictions


SEGMENTS = [DocSentences(length=48), FullSentences(length=48), SegmentPair(length=48)]


@pytest.mark.parametrize("segments", SEGMENTS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(("longest", "table"), [(15, None), (2, 16)])
def test_it_is_the_formula_however_rows_are_packed(segments, longest, table):
    model, examples = made(longest, table), epoch(segments)
    order = np.argsort(examples.plan.lengths, kind="stable")
    index = np.concatenate([order[:4], order[-2:]])
    expected, predictions = written_out(model, examples, index, longest)
    packed = collate([Row(examples, index[:4]), Row(examples, index[4:5]), Row(examples, index[5:])])
    loss = model(packed).losses["span_boundary"]
    spec_of = model.specs[1]
    assert spec_of.count(packed) == predictions > 10
    assert packed.spans is not None
    assert (len(packed.spans.place) > predictions) == (longest == 2), "some spans are longer than two tokens"
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
    alone = torch.stack([model(batch).losses["span_boundary"] for batch in singles(examples, index)]).sum()
    torch.testing.assert_close(alone, expected, rtol=1e-10, atol=0)
    named = dict(model.named_parameters())
    ours, plain = (torch.autograd.grad(value, [*named.values()], allow_unused=True) for value in (loss, expected))
    for name, mine, other in zip(named, ours, plain, strict=True):
        assert (mine is None) == (other is None), name
        if mine is not None:
            torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-10, msg=name)
    assert all(named[name].grad is None for name in named)
    assert {name for name, grad in zip(named, ours, strict=True) if grad is None} == {
        name for name in named if name.startswith("heads.masked_lm.")
    }


def test_football():
    """Super Bowl 50 was [an American football game] to determine the champion.

    L(football) = -log P(football | x_7) - log P(football | x_4, x_9, p_3).
    """
    model, ragged = made(), lay([[[1] * 12]])
    span = np.full(14, -1, dtype=np.int32)
    span[5:9] = 0
    labels = np.where(span == 0, ragged.tokens, -100).astype(np.int32)
    hidden = dataclasses.replace(ragged, tokens=np.where(span == 0, 4, ragged.tokens), labels=labels, span=span)
    batch = to_batch(hidden)
    spans = batch.spans
    assert spans is not None
    third = spans.place.tolist().index(2)  # p_3 is the third place
    assert batch.targets is not None
    assert batch.labels is not None
    at = int(batch.targets[spans.target[third]])
    assert (at, int(spans.left[third]), int(spans.right[third])) == (7, 4, 9)

    x = model.encoder(batch.tokens, batch.token_info, batch.context()).last[0]
    football, head = int(ragged.tokens[7]), model.head("masked_lm")
    assert isinstance(head, MaskedLMLayer)
    expected = -head.logits(x[7]).log_softmax(-1)[football] + surprise(model, x[4], x[9], 2, football)
    one = torch.tensor([0])
    batch.targets, batch.labels = torch.tensor([7]), torch.tensor([football])
    batch.spans = Spans(one, torch.tensor([4]), torch.tensor([9]), torch.tensor([2]), torch.tensor([4, 9]), (0, 0, 1))
    actual = model(batch).losses
    torch.testing.assert_close(actual["masked_lm"] + actual["span_boundary"], expected)


def to_batch(ragged) -> Batch:
    """Hidden examples as a batch, one a row."""

    class Told:
        kind = "full"

        def corrupt(self, examples, keys, vocabulary):
            return ragged

    source = Source(Text([[12]]), DocSentences(length=14), Told(), VOCABULARY, 0)  # pyright: ignore[reportArgumentType]
    return collate([Row(source.epoch(0), np.array([0]))])


# ---- counts and divisors


def test_the_sum_is_divided_by_one_more_than_its_count_once_a_step():
    model, examples = made(), epoch()
    batches = singles(examples, np.arange(12))
    likely = int(torch.cat([batch.labels for batch in batches if batch.labels is not None]).mode().values)
    model.get_parameter("heads.span_boundary.bias").data[likely] = 1e3  # some guesses are right
    sums = [model(batch) for batch in batches]
    predictions = sum(model.count(batch)["span_boundary"] for batch in batches)
    total = sum(float(output.losses["span_boundary"].detach()) for output in sums)
    right = sum(int(output.metrics["boundary_accuracy"][1]) for output in sums)
    assert right > 0
    means = accumulate(model, batches, [None] * len(batches))
    assert float(means["span_boundary"]) == pytest.approx(total / (predictions + 1), rel=1e-6)
    assert float(means["boundary_accuracy"]) == pytest.approx(right / predictions, rel=1e-6)
    metrics = measure(model, batches)
    assert metrics["span_boundary"] == pytest.approx(total / (predictions + 1), rel=1e-9)
    assert metrics["loss"] == pytest.approx(metrics["masked_lm"] + 0.5 * metrics["span_boundary"])
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["masked_lm"]))
    assert metrics["count"] == sum(model.count(batch)["masked_lm"] for batch in batches)
    assert metrics["count"] > predictions


class Twice(ProcessGroup):
    """Another process has as much."""

    __slots__ = ()

    def totals(self, counts: list[int]) -> list[int]:
        return [2 * result for result in counts]


def test_the_one_is_added_once_over_all_processes():
    model, batches = made(), singles(epoch(), np.arange(3))
    alone, two = (
        accumulate(model, batches, [None] * 3, Policy(group=group))["span_boundary"]
        for group in (ProcessGroup(), Twice())
    )
    n = count_predictions(model, batches, ProcessGroup())[0]["span_boundary"]
    assert float(alone) * (n + 1) == pytest.approx(float(two) * (2 * n + 1), rel=1e-6)


def test_pieces_of_a_step_are_one_batch():
    model, examples = made(), epoch()
    grads = []
    for rows in (12, 5, 1):
        pieces = [np.arange(12)[at : at + rows] for at in range(0, 12, rows)]
        micro = [collate([Row(examples, piece[at : at + 1]) for at in range(len(piece))]) for piece in pieces]
        model.zero_grad(set_to_none=True)
        accumulate(model, micro, [None] * len(micro))
        grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for other in grads[1:]:
        for a, b in zip(grads[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)


def test_a_step_without_such_spans_learns_nothing_from_them():
    model = made()
    batch = collate([Row(epoch(rate=0.99), np.arange(2))])  # whole pieces are hidden
    assert batch.spans is not None
    assert len(batch.spans.edges) == model.specs[1].count(batch) == 0
    loss = model(batch).losses["span_boundary"]
    assert float(loss.detach()) == 0
    loss.backward()
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)
    means = accumulate(model, [batch], [None])
    assert float(means["span_boundary"]) == 0
    assert measure(model, [batch])["span_boundary"] == 0


# ---- what is refused


def test_without_spans_it_is_refused():
    objective = Objective(DocSentences(), MaskTokens(), (MaskedLM(), SpanBoundary()))
    with pytest.raises(RecipeError, match=r"losses\.1 = SpanBoundary: it reads spans.*take corruption=MaskSpans"):
        spec.check(objective, "objective")


@pytest.mark.parametrize("field", ["longest", "positions"])
def test_it_needs_places(field):
    with pytest.raises(RecipeError, match=rf"{field} = 0: 1 or more"):
        spec.check(SpanBoundary(**{field: 0}), "loss")
