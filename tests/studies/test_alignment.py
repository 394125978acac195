"""Strings are copied or turned round, models differ in their decoders alone, and mistakes are counted by strings."""

import json
from pathlib import Path

import pytest
import torch

from clozeworks.nn.score import Dot
from studies import alignment


def test_what_is_written_is_the_string_or_the_string_turned_round():
    for task in alignment.TASKS:
        batch = alignment.strings(task, 3, 5, 4, 7)
        assert batch.source is not None
        assert batch.labels is not None
        read, written = batch.source.tokens, batch.labels.view(4, 8)
        assert torch.equal(written[:, :-1], read[:, :-1] if task == "copy" else read[:, :-1].flip(1))
        assert set(written[:, -1].tolist()) == set(read[:, -1].tolist()) == {alignment.END}
        assert torch.equal(batch.tokens[:, 1:], written[:, :-1])
        assert batch.tokens[:, 0].tolist() == [alignment.START] * 4
    assert len({alignment.strings("copy", 0, step, 1).tokens.shape[1] for step in range(300)}) == alignment.LONGEST


def test_models_differ_in_nothing_but_their_decoders():
    first, *others = (alignment.recipe_for(name, 0) for name in alignment.DECODERS)
    for r in others:
        r.decoder.stack.block.mixer, r.name = first.decoder.stack.block.mixer, first.name
        assert r == first


def test_a_string_with_one_mistake_is_wrong():
    model, batch = alignment.fresh("dot", 0), alignment.strings("copy", 0, 0, 5, 3)
    predicted = model.head("next_token").logits(model.read(batch, model.specs).at(batch)).argmax(-1)
    batch.labels = predicted.clone()
    assert alignment.score_exact(model, batch) == 1
    batch.labels[6] += 1
    assert alignment.score_exact(model, batch) == 0.8


def test_it_learns_to_turn_short_strings_round(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(alignment, "LONGEST", 3)
    monkeypatch.setattr(alignment, "SYMBOLS", 6)
    monkeypatch.setitem(alignment.DECODERS, "dot", alignment.RecurrentAcross(Dot(), order="after"))
    model = alignment.train("dot", "reverse", 0, 150)
    assert alignment.score_exact(model, alignment.strings("reverse", 9, -1, 64, 3)) > 0.6


def test_it_prints_one_object_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(alignment, "TESTED", 4)
    assert alignment.main(["--seeds", "3", "--steps", "1", "--plot", str(tmp_path / "figure.svg")]) == 0
    results = json.loads(capsys.readouterr().out)
    assert list(results["exact"]) == ["copy", "reverse"]
    assert list(results["exact"]["copy"]["dot"]) == [str(length) for length in alignment.LENGTHS]
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in results["weights"])
    counts = results["parameters"]
    assert counts["MLP"] - counts["one context"] == 2 * 64 * 64 + 2 * 64
    assert counts["dot"] == counts["one context"] == counts["cosine"] - 1
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")


def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str]):
    assert alignment.main(["--steps", "0"]) == 2
    assert "--steps: 0; whole numbers from 1 on" in capsys.readouterr().err
