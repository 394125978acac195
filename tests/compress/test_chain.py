"""Steps in a chain, and the search for a target: what is said is what was written."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import clozeworks as cw
from clozeworks.compress import measure, target
from clozeworks.compress.chain import REPORT, Row, mark_pareto
from clozeworks.compress.measure import Measured, Speed
from clozeworks.compress.quality import Quality
from clozeworks.compress.step import list_steps, parse_steps
from clozeworks.compress.target import Search
from clozeworks.core.errors import InputError
from clozeworks.inference.text_encoder import load
from clozeworks.metrics.statistics import Difference
from tests.labelled import rows

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures need no precision here, nor a process of their own each."""
    monkeypatch.setattr(measure, "SECONDS", 0.001)
    monkeypatch.setattr(measure, "start_up", lambda directory, short: None)
    monkeypatch.setattr(target, "TAUGHT", 5)


def test_what_is_written_is_the_last_row(tuned: Path, tmp_path: Path):
    heard = []
    result = cw.compress(tuned, "ffn=0.5,vocab", data=rows(200, 3), out=tmp_path / "small", tell_row=heard.append)
    assert [row.name for row in result.rows] == ["original", "ffn=0.5", "vocab=1"]
    assert heard == result.rows
    small, original = load(tmp_path / "small"), load(tuned)
    last = result.rows[-1].measured
    assert last.bytes == (tmp_path / "small" / "model.safetensors").stat().st_size
    assert last.parameters == sum(each.numel() for each in small.model.parameters())
    assert result.rows[0].measured.bytes > result.rows[1].measured.bytes > last.bytes
    assert small.recipe != original.recipe
    assert {file.name for file in (tmp_path / "small").iterdir()} >= {"recipe.json", "tokenizer.json", REPORT}
    assert not [file for file in (tmp_path / "small").iterdir() if file.name.startswith(".")]
    report = json.loads((tmp_path / "small" / REPORT).read_text())
    assert report["steps"] == ["ffn=0.5", "vocab=1"]
    assert report["rows"][-1]["bytes"] == last.bytes
    assert report["accuracy"] == pytest.approx(cw.evaluate(small, test=_report_rows(tuned))["accuracy"])


def test_what_was_cut_is_learned_again_from_the_original(tuned: Path, tmp_path: Path):
    chain = "layers=1:top,distil=20,int8"
    result = cw.compress(tuned, chain, data=rows(200, 3), out=tmp_path / "small")
    assert [row.name for row in result.rows] == ["original", "layers=1:top", "distil=20", "int8=0.99"]
    cut, taught = result.rows[1:3]
    assert taught.measured.bytes == cut.measured.bytes
    assert not taught.note, "it is not there to make anything smaller"
    assert taught.measured.quality.value >= cut.measured.quality.value
    assert "distil" not in Search(None, None).steps, "nor does a search for savings try it by itself"


def _report_rows(model: Path) -> list[dict]:
    from clozeworks.compress.division import divide

    return divide(load(model), rows(200, 3)).report.table.rows


def test_the_same_steps_give_the_same_model(tuned: Path, tmp_path: Path):
    for name in "ab":
        cw.compress(tuned, parse_steps("heads=0.5"), data=rows(200, 3), out=tmp_path / name)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in "ab")
    assert one == other


def test_a_target_is_reached_by_steps_that_pay(tuned: Path, tmp_path: Path):
    size = (tuned / "model.safetensors").stat().st_size
    aim = f"size={0.8 * size / 1e3:.0f}KB,quality=0.5"
    result = cw.compress(tuned, target=aim, data=rows(400, 3), out=tmp_path / "small")
    assert result.reached, result.reason
    assert result.rows[-1].measured.bytes <= 0.8 * size
    assert result.rows[-1].measured.quality.retained >= 0.5
    alone = [row.steps[0] for row in result.tried if len(row.steps) == 1]
    assert {step.partition("=")[0] for step in alone} <= set(list_steps())
    assert len(alone) >= 3
    kept = [row.steps for row in result.tried if row.kept]
    assert kept == [row.steps for row in result.rows]
    assert all(row.note for row in result.tried if not row.kept)
    assert all(row.part == "report" for row in result.rows)
    assert any("size" in row.pareto for row in result.tried)


def test_what_is_out_of_reach_is_said_with_what_came_nearest(tuned: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(target, "PASSES", 1)
    result = cw.compress(tuned, target="size=1KB,quality=0.5", data=rows(400, 3), out=tmp_path / "small")
    assert result.reached is False
    assert "asked for 0.001" in result.reason
    assert result.rows[-1].measured.bytes == min(row.measured.bytes for row in result.tried if row.kept)
    assert load(tmp_path / "small").predict(["the red fox"])


def test_a_step_that_breaks_the_quality_is_undone(tuned: Path, tmp_path: Path, monkeypatch):
    """Of steps of which one spoils the model, that one does not stay."""
    made = Search._measure

    def spoil(self: Search, state):
        row = made(self, state)
        if any(step.startswith("ffn") for step in state.steps):
            quality = row.measured.quality
            row.measured.quality = Quality(quality.metric, 0.1, quality.original, 0.1, quality.difference)
        return row

    monkeypatch.setattr(Search, "_measure", spoil)
    result = cw.compress(tuned, target="quality=0.9", data=rows(400, 3), out=tmp_path / "small")
    assert not any(step.startswith("ffn") for step in result.rows[-1].steps)
    undone = [row for row in result.tried if row.steps[-1:] == ("ffn=0.5",) and len(row.steps) > 1]
    assert undone
    assert all(row.note == "undone, quality below 0.9" for row in undone)
    taught = [row for row in result.tried if row.steps[-2:] == ("ffn=0.5", "distil=5")]
    assert all(row.note == "undone, it does not help" for row in taught), "it was tried, and there it is as bad"


@pytest.mark.parametrize("aim", ["quality=0.9", "size={:.0f}KB"])
def test_what_a_step_breaks_is_learned_again_from_the_original(tuned: Path, tmp_path: Path, monkeypatch, aim: str):
    """Of steps of which one spoils the model until it is taught, that one stays, with its lesson."""
    made = Search._measure

    def spoil(self: Search, state):
        row = made(self, state)
        names = [step.partition("=")[0] for step in state.steps]
        value = 0.95 if "distil" in names else 0.1 if "layers" in names else 1.0
        row.measured.quality = Quality("accuracy", value, 1.0, value, row.measured.quality.difference)
        return row

    monkeypatch.setattr(Search, "_measure", spoil)
    size = (tuned / "model.safetensors").stat().st_size
    aim = aim.format(0.9 * size / 1e3)
    monkeypatch.setattr(target, "PASSES", 1)
    # Whichever order the clock would put them in: of layers that share their weights none can go.
    monkeypatch.setattr(Search, "_scout", lambda self, start, begin: list(parse_steps("layers=1,vocab")))
    result = cw.compress(tuned, target=aim, data=rows(400, 3), out=tmp_path / "small")
    steps = [step.partition("=")[0] for step in result.rows[-1].steps]
    assert "layers" in steps
    assert steps[steps.index("layers") + 1] == "distil"
    assert "vocab" not in steps[: steps.index("distil")], "tokens go behind what is taught"
    assert load(tmp_path / "small").recipe.encoder.stack.depth == 1
    assert [row.steps for row in result.tried if row.kept] == [row.steps for row in result.rows]


def test_an_encoder_is_judged_by_its_vectors(road: Path, tmp_path: Path):
    words = itertools.product(("red", "blue", "old"), ("fox", "dog", "cat", "hen"), ("tree", "stone", "house"), "123")
    texts = [{"text": f"the {colour} {animal} sees a {thing} {number}"} for colour, animal, thing, number in words]
    result = cw.compress(road / "run", "ffn=0.25", data=texts, out=tmp_path / "small")
    assert result.rows[-1].measured.quality.metric == "masked_lm"  # it has a head that predicts
    bare = load(road / "run")
    bare.recipe.objective.losses = ()
    bare.model = cw.build(bare.recipe).eval()
    result = cw.compress(bare, "ffn=0.25", data=texts, out=tmp_path / "vectors")
    quality = result.rows[-1].measured.quality
    assert quality.metric == "rank_correlation"
    assert 0 < quality.value < 1
    assert load(tmp_path / "vectors").encode(["the fox"]).shape == (1, bare.model.encoder.width)


def test_prepared_text_and_a_smaller_vocabulary(road: Path, tmp_path: Path):
    result = cw.compress(road / "run", "ffn=0.25", data=road / "data", out=tmp_path / "small")
    assert result.rows[-1].measured.quality.value == pytest.approx(result.rows[-1].measured.quality.original, rel=0.2)
    assert np.isfinite(result.rows[-1].measured.quality.difference).all()


def test_nothing_is_left_of_what_fails(tuned: Path, tmp_path: Path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        cw.compress(tuned, "ffn=0.5", data=rows(200, 3), out=tmp_path / "full")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clozeworks.exchange.tensors.save_file", full)
    with pytest.raises(InputError, match="the disk is full"):
        cw.compress(tuned, "ffn=0.5", data=rows(200, 3), out=tmp_path / "small")
    assert {file.name for file in tmp_path.iterdir()} == {"full"}
    with pytest.raises(InputError, match="neither steps nor a target"):
        cw.compress(tuned, data=rows(200, 3), out=tmp_path / "small")


def row(size: int, speed: float, kept: float) -> Row:
    quality = Quality("accuracy", kept, 1.0, kept, Difference(0, 0, 0))
    return Row((), Measured(size, 1, Speed(1.0, 1.0, speed), quality), 0.0, "choose")


def test_what_nothing_beats():
    given = [row(100, 1.0, 1.0), row(50, 2.0, 0.9), row(60, 3.0, 0.8), row(50, 0.5, 0.95)]
    mark_pareto(given)
    assert [each.pareto for each in given] == [["size", "speed"], ["speed"], ["speed"], ["size"]]
