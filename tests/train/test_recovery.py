"""Runs that meet trouble: skipped, gone back, passed over, and the same to the bit wherever they were interrupted."""

import dataclasses
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import InputError
from clozeworks.exchange import checkpoint
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.losses.masked_lm import MaskedLM, MaskedLMLayer
from clozeworks.optim.guard import Guard
from clozeworks.optim.keep import Keep
from clozeworks.optim.learning_rate import learning_rate
from clozeworks.recipe import Recipe, build
from clozeworks.train import metrics_log
from clozeworks.train.pretrain import fit_to_data, open_data, pretrain
from clozeworks.train.pretraining_batches import PretrainingBatches
from clozeworks.train.run import Result
from clozeworks.train.screen.progress import ProgressLine
from clozeworks.train.startup import setup
from tests.train.test_run import rows, weights

Tiny = Callable[..., Recipe]
GUARD = Guard(window=8, patience=3, rise=0.5, rollbacks=2)
STEPS = 32


@dataclass(slots=True)
class Fragile(MaskedLM):
    """A loss that some examples spoil, as a broken document or an overflow would."""

    bad: tuple[int, ...] = ()
    how: Literal["nan", "spike"] = "nan"

    def build(self, width: int, embed: EmbedLayer) -> "FragileLayer":
        return FragileLayer(self, width, embed)


class FragileLayer(MaskedLMLayer):
    def __init__(self, spec: Fragile, width: int, embed: EmbedLayer):
        super().__init__(spec, width, embed)
        self.bad, self.factor = {*spec.bad}, math.nan if spec.how == "nan" else 30.0

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().forward(hidden, batch)
        spoils = torch.is_grad_enabled() and self.bad & {*batch.index}  # held-out examples have the same numbers
        return loss * self.factor if spoils else loss, metrics


def made(tiny: Tiny, **train: object) -> Recipe:
    settings = {"save_every": 4, "evaluate_every": 8, "log_every": 1, "guard": GUARD, "keep": Keep(99)}
    return tiny(**{"steps": STEPS, **settings, **train})


def spoilt(tiny: Tiny, how: Literal["nan", "spike"], bad: tuple[int, ...]) -> Recipe:
    recipe = made(tiny)
    recipe.objective.losses = (Fragile(bad=bad, how=how), *recipe.objective.losses[1:])
    return recipe


@pytest.fixture(scope="module")
def sound(tiny: Tiny, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    torch.set_num_threads(1)
    return pretrain(made(tiny), [(data, 1.0)], tmp_path_factory.mktemp("runs") / "sound", progress=False)


def batches(tiny: Tiny, data: Path) -> Iterator[list[Batch]]:
    corpora, tokenizer = open_data([(data, 1.0)])
    return iter(PretrainingBatches(fit_to_data(made(tiny), tokenizer), corpora, tokenizer.vocabulary()))


def only_at(tiny: Tiny, data: Path, step: int) -> int:
    """An example that comes at this step and at no other."""
    feed = batches(tiny, data)
    seen = [{index for batch in next(feed) for index in batch.index} for _ in range(STEPS)]
    feed.close()  # pyright: ignore[reportAttributeAccessIssue]
    others = set().union(*(each for number, each in enumerate(seen, 1) if number != step))
    return min(seen[step - 1] - others)


@pytest.mark.parametrize("how", ["nan", "spike"])
def test_one_bad_example_costs_one_step(tiny: Tiny, data: Path, sound: Result, tmp_path: Path, how):
    bad = only_at(tiny, data, 19)
    result = pretrain(spoilt(tiny, how, (bad,)), [(data, 1.0)], tmp_path / "run", progress=False)
    (row,) = [row for row in rows(result.run) if row.get("skipped")]
    assert (row["step"], row["reason"]) == (19, "not finite" if how == "nan" else "spike")
    assert bad in row["examples"]
    before = [row for row in rows(sound.run) if row["step"] < 19]
    assert rows(result.run)[: len(before)] == before
    assert result.heldout is not None
    assert sound.heldout is not None
    assert result.heldout["loss"] == pytest.approx(sound.heldout["loss"], abs=0.2)
    assert not any(row.get("skipped") for row in rows(sound.run)), "nothing of a sound run is skipped"


def ruinous(at: set[int], how: float) -> Callable[..., float]:
    """A rate that some updates are ruined by."""
    return lambda step, train, width: how if step in at else learning_rate(step, train, width)


@pytest.fixture(scope="module")
def ruined(tiny: Tiny, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Result]:
    """A run whose weights are spoilt at these steps, which shows from the next one on; made once for all tests."""
    torch.set_num_threads(1)
    runs: dict[tuple[float, tuple[int, ...]], Result] = {}

    def run(rate: float, *steps: int) -> Result:
        if (rate, steps) not in runs:
            out = tmp_path_factory.mktemp("ruined") / "run"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(setup, "learning_rate", ruinous({*steps}, rate))
                runs[rate, steps] = pretrain(made(tiny), [(data, 1.0)], out, progress=False)
        return runs[rate, steps]

    return run


each_ruin = pytest.mark.parametrize(
    ("rate", "reason"), [(3.0, "spike"), (math.nan, "not finite")], ids=["spike", "nan"]
)


@each_ruin
def test_spoilt_weights_are_left_behind(ruined, sound: Result, rate: float, reason: str):
    result = ruined(rate, 18)
    assert result.finished
    passed = [row for row in rows(result.run) if row.get("skipped")]
    assert [row["step"] for row in passed] == [16, 17, 18, 19, 20, 21]
    assert {row["reason"] for row in passed} == {f"passed over: {reason}"}
    assert all(row["loss"] is None and row["examples"] for row in passed)
    trained = [row for row in metrics_log.read(result.run / "metrics.jsonl") if "split" not in row]
    assert [row["step"] for row in trained] == list(range(1, STEPS + 1))
    state = checkpoint.verify(result.checkpoint).state
    assert [(each["begin"], each["end"]) for each in state["guard"]["passed"]] == [(16, 21)]
    assert result.heldout is not None
    assert sound.heldout is not None
    assert result.heldout["loss"] == pytest.approx(sound.heldout["loss"], abs=0.25)


class CrashError(Exception):
    pass


# Of the steps as they are done: the run goes back after the 21st, to step 12.
@pytest.mark.parametrize(
    "moments", [(24,), pytest.param((5, 18, 19, 20, 21, 22, 23, 27, 33), marks=pytest.mark.slow)], ids=["one", "many"]
)
@each_ruin
def test_interrupted_anywhere_it_ends_alike(
    ruined, tiny: Tiny, data: Path, tmp_path: Path, monkeypatch, rate: float, reason: str, moments
):
    whole = ruined(rate, 18)
    monkeypatch.setattr(setup, "learning_rate", ruinous({18}, rate))
    steps = checkpoint.name_of(STEPS)
    update = ProgressLine.update
    for moment in moments:
        out, seen = tmp_path / f"run-{moment}", []

        def crash(line, step, moment=moment, seen=seen):
            seen.append(step.number)
            if len(seen) == moment:
                raise CrashError
            update(line, step)

        # Every third save of its own: where a run is saved does not matter either.
        recipe = made(tiny, save_every=1 if moment % 3 == 0 else 4)
        monkeypatch.setattr(ProgressLine, "update", crash)
        with pytest.raises(CrashError):
            pretrain(recipe, [(data, 1.0)], out, progress=False)
        monkeypatch.setattr(ProgressLine, "update", update)
        result = pretrain(recipe, [(data, 1.0)], out, progress=False)
        assert weights(out / steps) == weights(whole.run / steps), moment
        assert rows(out) == rows(whole.run), moment
        assert result.tokens == whole.tokens
        guard = [checkpoint.verify(each / steps).state["guard"] for each in (out, whole.run)]
        assert guard[0] == guard[1]


def test_it_goes_back_to_the_beginning_where_nothing_was_saved(
    ruined, tiny: Tiny, data: Path, tmp_path: Path, monkeypatch
):
    one = ruined(math.nan, 18)
    monkeypatch.setattr(setup, "learning_rate", ruinous({18}, math.nan))
    two = pretrain(made(tiny, save_every=99), [(data, 1.0)], tmp_path / "two", progress=False)
    assert weights(one.checkpoint) == weights(two.checkpoint)
    assert rows(one.run) == rows(two.run)


def test_the_beginning_of_a_run_from_a_model_is_that_model(tiny: Tiny, data: Path, tmp_path: Path, monkeypatch):
    recipe = made(tiny, steps=8)
    source = build(fit_to_data(recipe, open_data([(data, 1.0)])[1]))
    result = pretrain(recipe, [(data, 1.0)], tmp_path / "run", source=source, progress=False)
    shutil.rmtree(result.checkpoint)
    monkeypatch.setattr(setup, "learning_rate", ruinous({5}, math.nan))
    with pytest.raises(
        InputError, match=r"trouble at step 6, before any checkpoint.*give the same --from or --word-vectors again"
    ):
        pretrain(recipe, [(data, 1.0)], tmp_path / "run", progress=False)
    again = pretrain(recipe, [(data, 1.0)], tmp_path / "run", source=source, progress=False)
    assert [row["step"] for row in rows(again.run) if row.get("skipped")] == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("keep", [Keep(1), Keep(1, every=16, best=True)])
def test_what_is_kept_does_not_change_where_it_ends(
    ruined, tiny: Tiny, data: Path, tmp_path: Path, monkeypatch, keep: Keep
):
    one = ruined(3.0, 18, 27)
    monkeypatch.setattr(setup, "learning_rate", ruinous({18, 27}, 3.0))
    two = pretrain(made(tiny, save_every=1, keep=keep), [(data, 1.0)], tmp_path / "two", progress=False)
    assert weights(one.checkpoint) == weights(two.checkpoint)
    kept = sorted(int(path.name[5:]) for path in two.run.glob("step-*"))
    assert len(kept) <= (3 if keep.every is None else 6)
    if keep.best:
        measured = {row["step"]: row["loss"] for row in rows(two.run) if row.get("split")}
        assert {16, 32, min(measured, key=lambda step: measured[step])} <= {*kept}


def test_the_best_is_found_again_after_a_restart(tiny: Tiny, data: Path, tmp_path: Path):
    """A rate that only does harm from step 16 on makes an early checkpoint the best."""
    recipe = made(tiny, guard=None, keep=Keep(1, best=True), save_every=8)
    harm = lambda step, train, width: learning_rate(step, train, width) if step <= 16 else 0.3  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "learning_rate", harm)
        result = pretrain(recipe, [(data, 1.0)], tmp_path / "run", progress=False)
        shutil.rmtree(result.checkpoint)
        again = pretrain(recipe, [(data, 1.0)], tmp_path / "run", progress=False)
    assert again.resumed == 16
    assert sorted(path.name for path in again.run.glob("step-*")) == ["step-00000016", "step-00000032"]


def test_a_hopeless_run_stops_with_all_it_knows(tiny: Tiny, data: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(setup, "learning_rate", ruinous(set(range(18, STEPS)), math.nan))
    out = tmp_path / "run"
    with pytest.raises(InputError) as refused:
        pretrain(made(tiny), [(data, 1.0)], out, progress=False)
    assert "(not finite), and so for 3 steps in a row, after going back 2 times (examples " in str(refused.value)
    step = int(refused.value.where.removeprefix("step "))
    assert f"see `clozeworks examples --run {out} --step {step}`" in refused.value.todo
    last = rows(out)[-1]
    assert (last["step"], last["reason"]) == (step, "not finite")
    newest = checkpoint.newest(out)
    assert newest is not None
    assert all(tensor.isfinite().all() for tensor in newest.tensors().values()), "what is kept is sound"
    with pytest.raises(InputError) as again:
        pretrain(made(tiny), [(data, 1.0)], out, progress=False)
    assert str(again.value) == str(refused.value)


def test_without_a_guard_a_spike_is_trained_on(tiny: Tiny, data: Path, tmp_path: Path):
    recipe = spoilt(tiny, "spike", (only_at(tiny, data, 19),))
    recipe.train = dataclasses.replace(recipe.train, guard=None, steps=20)
    result = pretrain(recipe, [(data, 1.0)], tmp_path / "run", progress=False)
    assert not any(row.get("skipped") for row in rows(result.run))
    (row,) = [row for row in rows(result.run) if row["step"] == 19]
    assert row["loss"] > 20


def test_micro_tokens_may_change_between_sessions(tiny: Tiny, data: Path, tmp_path: Path):
    recipe = made(tiny, steps=8)
    result = pretrain(recipe, [(data, 1.0)], tmp_path / "run", progress=False)
    shutil.rmtree(result.checkpoint)
    recipe.train.micro_tokens, recipe.train.keep = 64, Keep(1)
    assert pretrain(recipe, [(data, 1.0)], tmp_path / "run", progress=False).resumed == 4
    recipe.train.guard = None
    with pytest.raises(InputError, match=r"train.guard.part 'Guard' -> None"):
        pretrain(recipe, [(data, 1.0)], tmp_path / "run", progress=False)
