"""The word is said twice, all models are of one kind, and reading with other rounds changes no weight."""

import json
from pathlib import Path

import pytest
import torch

from studies import copying


def test_rows_say_a_word_twice_and_only_the_second_is_asked_for():
    batch = copying.rows(3, 5, 4)
    half = copying.LENGTH // 2
    assert torch.equal(batch.tokens[:, :half], batch.tokens[:, half:])
    assert not batch.tokens[:, 0].any()
    assert int(batch.tokens[:, 1:half].min()) > 0
    assert batch.targets is not None
    assert batch.labels is not None
    assert torch.equal(batch.tokens.flatten()[batch.targets + 1], batch.labels)
    assert len(batch.targets) == 4 * copying.WORD
    assert int((batch.targets % copying.LENGTH).min()) == half
    assert torch.equal(batch.tokens, copying.rows(3, 5, 4).tokens)
    assert not torch.equal(batch.tokens, copying.rows(3, 6, 4).tokens)


def test_models_differ_in_nothing_but_their_attention():
    shared, one, eight, separate = (copying.recipe_for(kind, 0) for kind in ("shared", 1, 8, "separate"))
    for r in (one, eight, separate):
        r.encoder.stack.block.mixer, r.name = shared.encoder.stack.block.mixer, shared.name
        assert r == shared


def test_it_prints_one_object_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(copying, "ROUNDS", (1, 2))
    monkeypatch.setattr(copying, "TESTED", 8)
    assert copying.main(["--seeds", "3", "--steps", "2", "--plot", str(tmp_path / "figure.svg")]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["seeds"] == [3]
    assert {trained: list(each) for trained, each in results["accuracy"].items()} == {"1": ["1", "2"], "2": ["1", "2"]}
    assert set(results["all_pairs"]) == {"shared", "separate"}
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")


def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str]):
    assert copying.main(["--steps", "0"]) == 2
    assert "--steps: 0; whole numbers from 1 on" in capsys.readouterr().err
