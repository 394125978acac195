"""Early exit: exits are trained and nothing else is; who exits passes through no later layer; the rest is as before."""

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.compress import Data, DropLayers, EarlyExit, Quantize, parse_steps
from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.core.token_info import PADDING
from clozeworks.data.batches.labelled import by_length
from clozeworks.data.tables.table import Table
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.early_exit import answer_early, keep_examples
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.early_exit import Exits, ExitsLayer
from clozeworks.tasks.layer_selection import SumLayers
from clozeworks.tasks.summary import Summary
from tests.compress import models

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = models.sentences(50, 7)


def make(threshold: float = 0.3, **fields) -> TextEncoder:
    return EarlyExit(threshold, **fields).apply(models.make_task("classify"), models.make_data("classify"))


@pytest.fixture(scope="module")
def trained() -> TextEncoder:
    return make(0.3)


def at(threshold: float, encoder: TextEncoder) -> TextEncoder:
    """The same model with another threshold."""
    copy = models.copy_bundle(encoder)
    exits, task = copy.model.head("exits"), copy.recipe.task
    exits.threshold = threshold
    losses = (task, dataclasses.replace(copy.recipe.objective.losses[1], threshold=threshold))
    copy.recipe.objective = dataclasses.replace(copy.recipe.objective, losses=losses)
    exits.connect(dict(copy.model.heads.named_children()))
    return copy


def batches(encoder: TextEncoder, texts: list[str] = TEXTS, tokens: int = 300) -> Iterator[Batch]:
    labelled = encoder.recipe.task.examples(Table("t", [{"text": t} for t in texts]), encoder.tokenizer, truth=False)
    return by_length(labelled, encoder.kind, encoder.tokenizer.filler, tokens)


def scores(encoder: TextEncoder, texts: list[str] = TEXTS) -> np.ndarray:
    return np.array([list(each["scores"].values()) for each in encoder.predict(texts)])


def test_only_exits_are_trained(trained: TextEncoder):
    before = models.make_task("classify")
    names = dict(trained.model.named_parameters())
    for name, value in before.model.named_parameters():
        assert torch.equal(names.pop(name), value), name
    assert names.keys() == {f"heads.exits.out.{n}.{kind}" for n in range(3) for kind in ("weight", "bias")}
    assert all(value.abs().max() > 0 for value in names.values())
    assert trained.recipe.objective.losses[1] == Exits(after=(1, 2, 3), threshold=0.3, labels=2, of="classify")


def test_exits_learn_the_labels(trained: TextEncoder):
    table = models.make_table("classify")
    right = [each["label"] == row["label"] for each, row in zip(
        at(9, trained).predict([row["text"] for row in table.rows]), table.rows, strict=True)]  # fmt: skip
    most = max(sum(row["label"] == label for row in table.rows) for label in ("warm", "cold"))
    assert sum(right) > most, "the first exit alone tells more than the commoner label"


@pytest.mark.parametrize("threshold", [0.0, 1e-30])
def test_where_nobody_exits_answers_are_those_of_the_model_to_the_bit(trained: TextEncoder, threshold: float):
    """At 0 exits are not asked at all; at a threshold that nobody is below, they are, and the rest of the pass is cut
    into parts."""
    assert np.array_equal(scores(at(threshold, trained)), scores(models.make_task("classify")))
    table = models.make_table("classify")
    losses = [
        cw.evaluate(model, test=table.rows)["loss"] for model in (at(threshold, trained), models.make_task("classify"))
    ]
    assert losses[0] == losses[1]


def test_above_the_entropy_of_all_labels_the_first_exit_answers(trained: TextEncoder):
    sure, exits = at(math.log(2) + 1e-3, trained), trained.model.head("exits")
    assert isinstance(exits, ExitsLayer)
    for batch in batches(sure):
        logits, passed = answer_early(sure.model, sure.recipe.task, sure.model.head("exits"), batch)
        assert passed.tolist() == [1] * len(batch.firsts)
        with torch.no_grad():
            layers = trained.model.read(batch, trained.recipe.objective.losses).layers
            torch.testing.assert_close(logits, exits.logits_after(0, layers[1], batch))


def middle(encoder: TextEncoder, number: int = 1) -> float:
    """A threshold that half of the texts are below at an exit."""
    entropies = []
    for batch in batches(encoder):
        with torch.no_grad():
            layers = encoder.model.read(batch, encoder.recipe.objective.losses).layers
            exits = encoder.model.head("exits")
            chances = exits.logits_after(number, layers[exits.after[number]], batch).log_softmax(-1)
            entropies += (-(chances.exp() * chances).sum(-1)).tolist()
    return float(np.median(entropies))


def check_answers(some: TextEncoder) -> set[int]:
    """Each text has the answer of the first exit that is sure, by one pass without exits; after which layers."""
    exits, task, ways = some.model.head("exits"), some.recipe.task, set[int]()
    for batch in batches(some):
        logits, passed = answer_early(some.model, task, exits, batch)
        with torch.no_grad():
            hidden = some.model.read(batch, some.recipe.objective.losses)
            each = [exits.logits_after(n, hidden.layers[after], batch) for n, after in enumerate(exits.after)]
            last = some.model.head(task.name).logits(hidden, batch)
        for row in range(len(batch.firsts)):
            first = next((n for n, given in enumerate(each) if exits.sure(given[row : row + 1])), None)
            assert passed[row] == (4 if first is None else exits.after[first])
            expected = last[row] if first is None else each[first][row]
            torch.testing.assert_close(logits[row], expected, atol=1e-5, rtol=1e-4)
        ways |= set(passed.tolist())
    return ways


def test_each_text_has_the_answer_of_the_first_exit_that_is_sure(trained: TextEncoder):
    """Whatever stands beside it, and however often the rest was packed anew."""
    some = at(middle(trained), trained)
    assert len(check_answers(some)) >= 3, "some exit here, some there, some not at all"
    order = np.random.default_rng(0).permutation(len(TEXTS))
    again = scores(some, [TEXTS[n] for n in order])
    np.testing.assert_allclose(again, scores(some)[order], atol=1e-5)


def test_who_exits_passes_through_no_later_layer(trained: TextEncoder, monkeypatch):
    """Tokens that each block reads: those of the texts that are left, and little padding."""
    some, seen = at(middle(trained), trained), [0] * 4
    for number, block in enumerate(some.model.encoder.stack.blocks):

        def count(module, given, number=number):
            seen[number] += given[0].shape[0] * given[0].shape[1]

        block.register_forward_pre_hook(count)
    (batch,) = batches(some, tokens=100_000)
    assert batch.lasts is not None
    lengths = batch.lasts - batch.firsts + 1
    _, passed = answer_early(some.model, some.recipe.task, some.model.head("exits"), batch)
    left = [int(lengths[passed > number].sum()) for number in range(4)]
    assert left[0] > left[2] > 0
    assert all(real <= read <= 1.3 * real + 16 for read, real in zip(seen, left, strict=True))


def test_examples_are_packed_anew_with_all_that_is_known_of_them(trained: TextEncoder):
    (batch,) = batches(trained, tokens=100_000)
    x = batch.tokens[..., None].float().expand(-1, -1, 3)
    chosen = torch.arange(1, len(batch.firsts), 3)
    few, vectors, kept = keep_examples(batch, x, chosen)
    assert sorted(kept.tolist()) == chosen.tolist()
    real = few.token_info.document != PADDING
    assert few.real == int(real.sum())
    assert torch.equal(vectors[..., 0][real].long(), few.tokens[real])
    for new, old in enumerate(kept.tolist()):
        span, was = (slice(int(b.firsts[n]), int(b.lasts[n]) + 1) for b, n in ((few, new), (batch, old)))
        assert torch.equal(few.tokens.flatten()[span], batch.tokens.flatten()[was])
        assert torch.equal(few.token_info.position.flatten()[span], batch.token_info.position.flatten()[was])
        assert set(few.token_info.document.flatten()[span].tolist()) == {new}
    assert sum(few.layout.lengths) == few.tokens.numel()
    assert (few.layout.rows, few.layout.width) == tuple(few.tokens.shape)
    for start, length in zip(few.layout.starts, few.layout.lengths, strict=True):
        assert len(few.token_info.document.flatten()[start : start + length].unique()) == 1


def test_a_fresh_process_gives_the_same_answers(trained: TextEncoder, tmp_path: Path):
    some = at(middle(trained), trained)
    cw.save(some, tmp_path / "small")
    code = (
        "import sys, json, clozeworks as cw; print(json.dumps(cw.load(sys.argv[1]).predict(json.loads(sys.argv[2]))))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "small"), json.dumps(TEXTS)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == json.loads(json.dumps(some.predict(TEXTS)))
    assert json.loads((tmp_path / "small" / "recipe.json").read_text())["objective"]["losses"][1]["after"] == [1, 2, 3]


CONTINUED = ("transformer_xl_mini", "adaptive_span_mini", "reformer_mini", "elmo_mini", "awd_lstm_mini")
FAMILIES = [name for name in models.FAMILIES if name not in ("xlnet_mini", "transformer_mini", "lite_transformer_mini")]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("place", ["first", "mean"])
def test_every_family_exits_or_is_refused(family: str, place: str):
    encoder = models.make_model(family)
    made, tokenizer = encoder.recipe, encoder.tokenizer
    template = dataclasses.replace(infer_template(made, tokenizer), length=24)
    task = Classify(template=template, labels=("warm", "cold"), summary=Summary(place, None))
    made.objective = dataclasses.replace(made.objective, losses=(task,), corruption=None)
    made.train.phases = ()
    step = EarlyExit(0.3, after=(2, 3), steps=5, learning_rate=0.02)
    encoder = models.build_model(made, tokenizer)
    if family in CONTINUED:
        with pytest.raises(InputError, match="cannot be ended after some of its layers"):
            step.apply(encoder, models.make_data("classify"))
        return
    small = step.apply(encoder, models.make_data("classify"))
    assert len(check_answers(at(middle(small, 0), small))) >= 2


def test_no_text_and_one_text(trained: TextEncoder):
    assert trained.predict([]) == []
    assert len(trained.predict(["fox"])) == 1


def test_int8_follows(trained: TextEncoder):
    small = Quantize().apply(trained, models.make_data("classify"))
    assert small.predict(TEXTS[:5])
    with pytest.raises(InputError, match="take this step before int8"):
        EarlyExit().apply(Quantize().apply(models.make_task("classify"), Data()), models.make_data("classify"))


def test_chosen_layers():
    small = make(0.3, after=(2,), steps=3)
    assert small.recipe.objective.losses[1].after == (2,)
    assert small.predict(TEXTS[:3])
    for after in ((4,), (2, 1), (1, 1)):
        with pytest.raises(InputError, match="layers in their order, before the last of 4, are needed"):
            make(0.3, after=after, steps=3)


def test_refusals(trained: TextEncoder):
    data = models.make_data("classify")
    with pytest.raises(InputError, match="it has them already"):
        EarlyExit().apply(trained, data)
    with pytest.raises(InputError, match="drop layers before it"):
        DropLayers(2).apply(trained, data)
    with pytest.raises(InputError, match="exits are trained on rows of the task"):
        EarlyExit().apply(models.make_task("classify"), Data(texts=TEXTS))
    with pytest.raises(InputError, match="tag: an exit answers with the label of a whole text"):
        EarlyExit().apply(models.make_task("tag"), models.make_data("tag"))
    for change, message in (
        ({"problem": "multi_label"}, "one label among several"),
        ({"reading": SumLayers(2)}, "more than a layer's one vector"),
    ):
        other = models.make_task("classify")
        task = dataclasses.replace(other.recipe.task, **change)
        other.recipe.objective = dataclasses.replace(other.recipe.objective, losses=(task,))
        with pytest.raises(InputError, match=message):
            EarlyExit().apply(other, data)
    with pytest.raises(InputError, match="0 or more"):
        parse_steps("exit=-1")


def test_a_class_of_hugging_face_has_no_exits(trained: TextEncoder, tmp_path: Path):
    with pytest.raises(InputError, match="Exits: the Hugging Face class has no such part"):
        cw.save(trained, tmp_path / "hf", format="hf")
    assert not (tmp_path / "hf").exists()
