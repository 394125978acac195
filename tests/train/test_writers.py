"""Rows that go elsewhere, too."""

import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from clozeworks.core.errors import InputError
from clozeworks.train import metrics_log, writers
from clozeworks.train.pretrain import pretrain
from clozeworks.train.writers import TensorBoard, Writers, named, scalars
from tests.train.conftest import tiny_recipe


class Kept:
    def __init__(self, fails: int | None = None):
        self.rows: list[dict[str, Any]] = []
        self.closed, self.fails = 0, fails

    def write(self, row: dict[str, Any]) -> None:
        if len(self.rows) == self.fails:
            raise ConnectionError("the network\nis gone")
        self.rows.append(row)

    def close(self) -> None:
        self.closed += 1


class Killing(Kept):
    """A second Ctrl-C at step 6."""

    def write(self, row: dict[str, Any]) -> None:
        if row["step"] == 6:
            raise KeyboardInterrupt


def test_scalars_are_the_finite_numbers_of_a_row():
    row = {
        "step": 3,
        "loss": 2.5,
        "tokens": 7,
        "grad_norm": math.nan,
        "skipped": True,
        "examples": [1, 2],
        "none": None,
    }
    assert scalars(row) == {"train/loss": 2.5, "train/tokens": 7.0, "train/skipped": 1.0}
    assert scalars({"step": 3, "split": "heldout", "loss": 1.0}) == {"heldout/loss": 1.0}


def test_one_that_fails_is_left_out_and_said():
    good, bad, messages = Kept(), Kept(fails=1), []
    several = Writers([bad, good], messages.append)
    for step in (1, 2, 3):
        several.write({"step": step})
    several.close()
    assert [row["step"] for row in good.rows] == [1, 2, 3]
    assert (good.closed, bad.closed) == (1, 0)
    assert messages == ["Kept is left out from here on (the network is gone); metrics.jsonl has every row"]


def test_a_run_hands_over_the_rows_of_its_file(data: Path, tmp_path: Path):
    kept, bad = Kept(), Kept(fails=2)
    done = pretrain(tiny_recipe(), [(data, 1.0)], tmp_path / "run", progress=False, writers=[bad, kept])
    assert done.finished
    assert kept.rows == metrics_log.read(tmp_path / "run" / "metrics.jsonl")
    assert len(kept.rows) == 9
    assert kept.closed == 1
    plain = pretrain(tiny_recipe(), [(data, 1.0)], tmp_path / "plain", progress=False)
    assert (done.checkpoint / "model.safetensors").read_bytes() == (plain.checkpoint / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_refused_with_the_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writers.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(InputError, match=rf"--log {name}: it is not installed.*pip install '"):
        named([name], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_writer_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="tensorbord; there is no such writer; did you mean tensorboard"):
        named(["tensorbord"], tmp_path)


# ---- TensorBoard, the real one


def curves(place: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import (  # pyright: ignore[reportMissingImports]
        EventAccumulator,
    )

    result = EventAccumulator(str(place))
    result.Reload()
    return {tag: [(event.step, event.value) for event in result.Scalars(tag)] for tag in result.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_holds_the_run_and_not_a_step_twice(data: Path, tmp_path: Path):
    pytest.importorskip("tensorboard")
    run = tmp_path / "run"
    assert [type(writer) for writer in named(["tensorboard", "tensorboard"], run)] == [TensorBoard]
    assert not run.exists(), "opened with the first row"
    with pytest.raises(KeyboardInterrupt):  # after the checkpoint of step 5
        pretrain(tiny_recipe(), [(data, 1.0)], run, progress=False, writers=[*named(["tensorboard"], run), Killing()])
    assert curves(run / "tensorboard")["train/loss"][-1][0] == 6
    pretrain(tiny_recipe(), [(data, 1.0)], run, progress=False, writers=named(["tensorboard"], run))
    rows = metrics_log.read(run / "metrics.jsonl")
    expected = [(row["step"], pytest.approx(row["loss"])) for row in rows if "split" not in row]
    actual = curves(run / "tensorboard")
    assert actual["train/loss"] == expected
    assert [step for step, _ in actual["heldout/loss"]] == [6, 12]


# ---- Weights & Biases, as far as the adapter goes


def test_wandb_gets_one_identity_and_every_row(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begun: list[dict[str, Any]] = []
    logged: list[dict[str, float]] = []
    metrics: list[tuple[str, str]] = []
    finished: list[bool] = []
    inner = types.SimpleNamespace(
        define_metric=lambda name, step_metric: metrics.append((name, step_metric)),
        log=logged.append,
        finish=lambda: finished.append(True),
    )
    fake = types.ModuleType("wandb")
    fake.init = lambda **given: begun.append(given) or inner
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(writers.importlib.util, "find_spec", lambda package: object())
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    run = tmp_path / "first-run"

    with pytest.raises(KeyboardInterrupt):
        pretrain(tiny_recipe(), [(data, 1.0)], run, progress=False, writers=[*named(["wandb"], run), Killing()])
    assert finished == [True]
    pretrain(tiny_recipe(), [(data, 1.0)], run, progress=False, writers=named(["wandb"], run))
    first, second = begun
    assert first == second, "the same identity, to continue with"
    assert (first["project"], first["name"], first["resume"]) == ("clozeworks", "first-run", "allow")
    assert first["config"] == json.loads((run / "recipe.json").read_text())
    assert metrics == [("*", "step")] * 2
    rows = metrics_log.read(run / "metrics.jsonl")
    assert [entry["step"] for entry in logged] == [1, 2, 4, 6] + [row["step"] for row in rows if row["step"] > 5]
    assert logged[-1] == {"step": 12, **scalars(rows[-1])}
    assert logged[-1]["heldout/loss"] == rows[-1]["loss"]
