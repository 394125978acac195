"""One step is one step however it is cut, packed or padded; what is not finite changes nothing."""

import contextlib
import copy
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from clozeworks.core.batch import Batch
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import InputError
from clozeworks.data.batches.loader import Loader
from clozeworks.data.batches.rows import Epoch, Row, Source, collate
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.machine import doctor, trials
from clozeworks.model import Model
from clozeworks.objectives.losses.sentence_relation import SentenceRelationLayer
from clozeworks.optim import parameter_groups
from clozeworks.optim.guard import PATIENCE
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import named
from clozeworks.train.loop import Policy, accumulate, fit, make_dropout_keys
from clozeworks.train.pretrain import fit_to_data
from clozeworks.train.step import Step
from tests.test_golden import shrink


def loader(recipe: Recipe, data: Path, micro_tokens: int | None) -> Loader:
    o = recipe.objective
    vocabulary = Tokenizer.load(data).vocabulary()
    return Loader([(Corpus.open(data), 1.0)], o.segments, o.corruption, vocabulary, seed=3,
                  batch_tokens=recipe.train.batch_tokens, micro_tokens=micro_tokens)  # fmt: skip


def epoch(recipe: Recipe, data: Path) -> Epoch:
    o = recipe.objective
    return Source(Corpus.open(data), o.segments, o.corruption, Tokenizer.load(data).vocabulary(), 5).epoch(0)


def trained(
    recipe: Recipe, micro: list[list[Batch]], steps: int | None = None, **settings: object
) -> tuple[Model, list[Step]]:
    model = build(recipe)
    adam = parameter_groups.build_optimizer(model, recipe.train.optimizer, 1e-3)
    policy = Policy(**{"clip": 1.0, "dropout": False} | settings)  # pyright: ignore[reportArgumentType]
    return model, list(fit(model, micro, adam, lambda step: 1e-3, steps=steps or len(micro), policy=policy))


def distance(one: Model, other: Model) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def gradients(
    model: Model, micro: list[Batch], keys: Sequence[DropoutKey | None] | None = None
) -> tuple[dict[str, float], list[torch.Tensor]]:
    model.zero_grad(set_to_none=True)
    means = accumulate(model, micro, keys or [None] * len(micro))
    grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
    return {name: float(value) for name, value in means.items()}, [g.clone() for g in grads]


def assert_same(one: tuple[dict[str, float], list[torch.Tensor]], two: tuple[dict[str, float], list[torch.Tensor]]):
    assert one[0] == pytest.approx(two[0], rel=2e-6)
    for a, b in zip(one[1], two[1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-7)


@pytest.mark.parametrize("dropout", [False, True])
def test_accumulation_is_one_big_batch(tiny, data: Path, dropout: bool):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    runs = []
    for pieces in (1, 2, 4):
        steps = loader(recipe, data, recipe.train.batch_tokens // pieces).steps()
        micro = [next(steps)[0] for _ in range(3)]
        steps.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert [len(step) for step in micro] == [pieces] * 3
        runs.append(trained(recipe, micro, dropout=dropout))
    counts = [len(batch.labels) for batch in micro[0] if batch.labels is not None]
    assert len(set(counts)) > 1, "pieces of equal counts would hide a mean of means"
    (model, steps), *others = runs
    assert steps[0].tokens > 0
    for other, other_steps in others:
        assert distance(model, other) < 1e-6
        for a, b in zip(steps, other_steps, strict=True):
            assert a.metrics == pytest.approx(b.metrics, rel=1e-6)
            assert (a.loss, a.grad_norm) == pytest.approx((b.loss, b.grad_norm), rel=1e-5)
            assert (a.tokens, a.examples) == (b.tokens, b.examples)


@pytest.mark.parametrize(
    "name", ["bert_mini", "spanbert_mini", "xlnet_mini", "gpt_mini", "longformer_mini", "reformer_mini"]
)
def test_a_step_drops_the_same_however_it_is_cut(name: str, data: Path):
    recipe = fit_to_data(shrink(named()[name]()), Tokenizer.load(data))
    model, results, widths = build(recipe), [], []
    for pieces in (1, 8):
        with contextlib.closing(loader(recipe, data, recipe.train.batch_tokens // pieces).steps()) as steps:  # pyright: ignore[reportArgumentType]
            micro = next(itertools.islice(steps, 2, None))[0]
        assert len(micro) == pieces
        widths.append({batch.tokens.shape[1] for batch in micro})
        results.append(gradients(model, micro, make_dropout_keys(micro, 0, 1)))
    assert widths[0] == widths[1]
    assert_same(*results)


@pytest.mark.parametrize("length", [32, 300])  # beyond 256 packed rows take the path by document
def test_packed_padded_and_single_documents_agree(tiny, data: Path, length: int):
    recipe = fit_to_data(tiny(batch_tokens=512), Tokenizer.load(data))
    recipe.objective.segments.length = length
    model, examples = build(recipe), epoch(recipe, data)
    order = examples.order()
    sizes = examples.plan.lengths[order]
    chosen = order[(sizes < length // 2)][:12]  # short ones, so that they share rows
    thirds = [Row(examples, chosen[at : at + 3]) for at in range(0, 12, 3)]
    packed = [collate(thirds)]
    padded = [collate([Row(examples, chosen[at : at + 1]) for at in range(12)])]
    single = [collate([Row(examples, chosen[at : at + 1])]) for at in range(12)]
    assert packed[0].tokens.shape[0] == 4
    assert padded[0].tokens.numel() > padded[0].real == packed[0].real
    assert all(batch.tokens.numel() == batch.real for batch in single)
    alone = gradients(model, single)
    assert_same(gradients(model, packed), alone)
    assert_same(gradients(model, padded), alone)


def test_what_padding_holds_changes_nothing(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    model, examples = build(recipe), epoch(recipe, data)
    batch = collate([Row(examples, np.array([at])) for at in range(8)])
    other = batch.replace(tokens=batch.tokens.where(batch.token_info.document >= 0, 7))
    assert not torch.equal(batch.tokens, other.tokens)
    assert_same(gradients(model, [batch]), gradients(model, [other]))


def test_metrics_are_means_over_the_predictions_of_the_step(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    recipe.objective.losses[1].weight = 0.5
    model = build(recipe)
    steps = loader(recipe, data, 64).steps()
    micro = next(steps)[0]
    steps.close()  # pyright: ignore[reportAttributeAccessIssue]
    step = trained(recipe, [micro])[1][0]
    total = {"masked_lm": 0.0, "sentence_pair": 0.0}
    for batch in micro:
        for name, value in model(batch).losses.items():
            total[name] += float(value.detach())
    tokens = sum(len(batch.labels) for batch in micro if batch.labels is not None)
    pairs = sum(len(batch.firsts) for batch in micro)
    assert step.metrics["masked_lm"] == pytest.approx(total["masked_lm"] / tokens, rel=1e-5)
    assert step.metrics["sentence_pair"] == pytest.approx(total["sentence_pair"] / pairs, rel=1e-5)
    assert step.loss == pytest.approx(step.metrics["masked_lm"] + 0.5 * step.metrics["sentence_pair"], rel=1e-6)


def test_a_weight_scales_the_gradient_of_its_loss(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    batch = collate([Row(epoch(recipe, data), np.arange(4))])
    grads = []
    for weight in (1.0, 0.25):
        recipe.objective.losses[1].weight = weight
        model = build(recipe)
        gradients(model, [batch])
        head = model.heads["sentence_pair"]
        assert isinstance(head, SentenceRelationLayer)
        grads.append(head.out.weight.grad)
    torch.testing.assert_close(grads[1], 0.25 * grads[0])


def test_a_loss_without_predictions_counts_nothing(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    batch = collate([Row(epoch(recipe, data), np.arange(4))])
    assert batch.targets is not None
    assert batch.labels is not None
    empty = batch.replace(targets=batch.targets[:0], labels=batch.labels[:0])
    _, (step,) = trained(recipe, [[empty]])
    assert not step.skipped
    assert step.metrics["masked_lm"] == 0
    assert step.loss == pytest.approx(step.metrics["sentence_pair"])


def test_clipping_bounds_the_gradient_and_reports_the_norm_before_it(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    batch = collate([Row(epoch(recipe, data), np.arange(4))])
    model = build(recipe)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    before = copy.deepcopy(model)
    policy = Policy(clip=0.01, dropout=False)
    (step,) = fit(model, [[batch]], sgd, lambda step: 1.0, steps=1, policy=policy)
    pairs = zip(model.parameters(), before.parameters(), strict=True)
    moved = torch.cat([(a - b).detach().flatten() for a, b in pairs]).norm()
    assert step.grad_norm > 0.1
    assert float(moved) == pytest.approx(0.01, rel=1e-3)


def test_dropout_depends_on_seed_and_step_alone(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    batch = collate([Row(epoch(recipe, data), np.arange(4))])
    run = lambda **settings: trained(recipe, [[batch]] * 2, dropout=True, **settings)  # noqa: E731
    (one, _), (again, _), (other, _) = run(seed=1), run(seed=1), run(seed=2)
    assert distance(one, again) == 0
    assert distance(one, other) > 1e-5


def test_each_step_and_piece_drops_other_units(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    batch = collate([Row(epoch(recipe, data), np.arange(4))])
    model = build(recipe)
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    losses = [step.loss for step in fit(model, [[batch], [batch], [batch] * 2], still, lambda step: 0.0, steps=3)]
    assert len(set(losses)) == 3
    third, (mean,) = losses[2], [step.loss for step in fit(model, [[batch]], still, lambda step: 0.0, steps=3, start=2)]
    assert third != mean, "the second piece of step 3 has draws of its own"


def poisoned(recipe: Recipe, data: Path) -> tuple[Model, Batch, Batch]:
    """A model in which position 20 is not a number, a batch that stays below it and one that does not."""
    model, examples = build(recipe), epoch(recipe, data)
    positions = model.encoder.embed.positions
    assert positions is not None
    positions.table.weight.data[20] = torch.nan
    lengths = examples.plan.lengths
    good, bad = np.flatnonzero(lengths <= 20)[:4], np.flatnonzero(lengths > 24)[:2]
    return model, collate([Row(examples, good)]), collate([Row(examples, bad)])


def test_a_step_that_is_not_finite_changes_nothing(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    model, good, bad = poisoned(recipe, data)
    adam = parameter_groups.build_optimizer(model, recipe.train.optimizer, 1e-3)

    def snapshot():
        return [p.detach().clone() for p in (*model.parameters(), *parameter_groups.read_state(model, adam).values())]

    steps = fit(model, [[good], [good, bad], [good]], adam, lambda step: 1e-3, steps=3)
    assert not next(steps).skipped
    before = snapshot()
    skipped = next(steps)
    assert skipped.skipped
    assert np.isnan(skipped.loss)
    assert skipped.examples == good.index + bad.index
    for a, b in zip(before, snapshot(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    third = next(steps)
    assert not third.skipped
    assert np.isfinite(third.loss)
    assert any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, snapshot(), strict=True))


def test_too_many_of_them_in_a_row_end_the_run(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    model, good, bad = poisoned(recipe, data)
    adam = parameter_groups.build_optimizer(model, recipe.train.optimizer, 1e-3)
    batches = [[bad]] * (PATIENCE - 1) + [[good]] + [[bad]] * 50
    seen = []
    with pytest.raises(InputError, match=rf"step {2 * PATIENCE}: loss nan.*{PATIENCE} steps in a row.*learning_rate"):
        for step in fit(model, batches, adam, lambda step: 1e-3, steps=60):
            seen.append(step.skipped)
    assert seen == [True] * (PATIENCE - 1) + [False] + [True] * PATIENCE


def test_step_knows_its_place(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    batch = collate([Row(epoch(recipe, data), np.arange(2))])
    model = build(recipe)
    adam = parameter_groups.build_optimizer(model, recipe.train.optimizer, 1e-3)
    rates = []
    steps = list(fit(model, [[batch]] * 3, adam, lambda step: rates.append(step) or step * 1e-3, steps=5, start=2))
    assert [step.number for step in steps] == rates == [3, 4, 5]
    assert [step.learning_rate for step in steps] == [0.003, 0.004, 0.005]
    assert [step.last for step in steps] == [False, False, True]
    assert not any(step.first for step in steps)
    assert [step.every(2) for step in steps] == [False, True, False]
    assert adam.param_groups[0]["lr"] == 0.005


def test_data_that_ends_too_early_is_named(tiny, data: Path):
    recipe = fit_to_data(tiny(), Tokenizer.load(data))
    batch = collate([Row(epoch(recipe, data), np.arange(2))])
    with pytest.raises(RuntimeError, match="ended before step 2 of 5"):
        trained(recipe, [[batch]], steps=5)


BF16 = """
import json, sys, torch
from clozeworks.recipes import recipe
from clozeworks.core.batch import from_padded
from clozeworks.objectives.losses.sentence_relation import SentenceRelationLayer
from clozeworks.recipe import build
from clozeworks.train.loop import Policy, accumulate
r = recipe("roberta_mini")
r.encoder.vocab = 100
model = build(r)
batch = from_padded(torch.arange(64).view(2, 32))
batch.targets, batch.labels = torch.tensor([1, 40]), torch.tensor([5, 6])
out = {p: float(accumulate(model, [batch], [None], Policy(precision=p))["masked_lm"]) for p in ("fp32", "bf16")}
types = {str(t.dtype) for p in model.parameters() for t in (p, p.grad) if t is not None}
print(json.dumps({"types": sorted(types), **out}))
"""


def test_bf16_is_near_fp32_and_leaves_the_weights_in_fp32():
    # In a child: on some machines bf16 is an illegal instruction unless the instruction set is capped.
    result = trials.run_child(BF16, isa=doctor.SAFE_ISA)
    if result.get("died", "").startswith("SIG"):
        pytest.skip(f"no bf16 here: {result['died']}")
    assert result["types"] == ["torch.float32"]
    assert result["bf16"] == pytest.approx(result["fp32"], rel=0.02)
    assert result["bf16"] != result["fp32"]
