"""Rivals: the recipe of the compressed model, trained for as many steps by its own loss, compared on the same rows."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.compress import DistilOriginal, DropLayers, PruneFeedForward, PruneHeads, measure, parse_steps
from clozeworks.compress.chain import REPORT
from clozeworks.compress.division import divide
from clozeworks.compress.training import distil, rival
from clozeworks.core.errors import InputError
from clozeworks.inference.text_encoder import load
from clozeworks.train import loop
from tests.compress import models
from tests.labelled import rows

pytestmark = pytest.mark.usefixtures("one_thread")
CUT = (DropLayers(1, "top"), PruneFeedForward(0.9), PruneHeads(0.5))
CHAIN = (*CUT, DistilOriginal(steps=12, learning_rate=1e-6))  # too little to learn everything again


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SECONDS", 0.001)
    monkeypatch.setattr(measure, "start_up", lambda directory, short: None)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What every training saw: its batches, its rates, and whether a teacher read them."""
    runs: list[dict] = []
    fit = loop.fit

    def record(model, batches, optimizer, schedule, *, steps, policy):
        run = {"tokens": [], "rates": [schedule(n) for n in range(1, steps + 1)], "taught": policy.teacher is not None}
        run["losses"] = [spec.name for spec in model.specs]
        runs.append(run)

        def watched():
            for batch in batches:
                run["tokens"].append(batch[0].tokens.clone())
                yield batch

        return fit(model, watched(), optimizer, schedule, steps=steps, policy=policy)

    monkeypatch.setattr(distil, "fit", record)
    return runs


def test_rivals_have_the_recipe_the_batches_and_the_rates(tuned: Path, tmp_path: Path, trained: list[dict]):
    result = cw.compress(tuned, CHAIN, data=rows(200, 3), out=tmp_path / "small", rival=True)
    assert [row.name for row in result.rivals] == ["rival: fresh", "rival: untaught"]
    taught, *others = trained
    assert taught["taught"]
    assert [run["losses"] for run in others] == [["classify"]] * 2
    for run in others:
        assert not run["taught"]
        assert run["rates"] == taught["rates"]
        assert len(run["tokens"]) == len(taught["tokens"]) == 12
        assert all(map(torch.equal, run["tokens"], taught["tokens"]))
    last = result.rows[-1].measured
    for row in result.rivals:
        assert row.measured.parameters == last.parameters
        assert row.measured.bytes == pytest.approx(last.bytes, rel=0.01)
        assert row.seconds > 0
        assert last.quality.value != last.quality.original, "else it would not show whom a rival is compared with"
        away = row.measured.quality.value - last.quality.value
        assert row.against.value == pytest.approx(away)
        assert row.against.low <= away <= row.against.high
    report = json.loads((tmp_path / "small" / REPORT).read_text())
    assert report["steps"] == [step.spell() for step in CHAIN], "what is written is the compressed model"
    assert [row["against_compressed"] for row in report["rivals"]] == [row.against._asdict() for row in result.rivals]
    assert load(tmp_path / "small").predict(["the red fox"])


def test_a_fresh_rival_knows_nothing_of_the_original(tuned: Path):
    original = load(tuned)
    anew = rival.begin_anew(original, divide(original, rows(200, 3)).learn.seed)
    assert anew.recipe == original.recipe
    before = models.copy_weights(original)
    for name, value in models.copy_weights(anew).items():
        if value.ndim > 1:
            pair = torch.stack([value.flatten(), before[name].flatten()])
            assert abs(torch.corrcoef(pair)[0, 1]) < 0.3, name


def test_of_a_model_without_labels():
    """A masked language model has a loss of its own, and so it has rivals."""
    original = models.make_model("bert_tiny")
    data = dataclasses.replace(models.make_data("bert_tiny"), teacher=original)
    (small,) = (step.apply(original, data) for step in parse_steps("ffn=0.5"))
    alone = DistilOriginal(steps=3).train_alone(small, data)
    assert alone.recipe == small.recipe
    assert any(
        not torch.equal(value, alone.model.get_parameter(name)) for name, value in small.model.named_parameters()
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": "ffn=0.5"}, "the chain trains nothing, .*; add distil behind what cuts"),
        ({"target": "quality=0.9"}, "a search trains nothing"),
    ],
)
def test_where_nothing_is_trained_there_is_no_rival(tuned: Path, tmp_path: Path, given: dict, message: str):
    with pytest.raises(InputError, match=message):
        cw.compress(tuned, **given, data=rows(200, 3), out=tmp_path / "small", rival=True)
    assert not list(tmp_path.iterdir())


def test_what_only_the_original_can_teach_has_no_rival(road: Path, tmp_path: Path):
    bare = load(road / "run")
    bare.recipe.objective.losses = ()
    with pytest.raises(InputError, match="nothing that it could learn from; leave rival out"):
        cw.compress(bare, "ffn=0.5,distil=3", data=[], out=tmp_path / "small", rival=True)
