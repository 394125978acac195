"""The models that are compared cost the same, and what is measured of them is what is said."""

import json
from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.core.batch import from_padded
from clozeworks.core.errors import InputError
from clozeworks.core.spec import walk
from clozeworks.recipe import build
from studies import branches
from studies.branches import BASES, LENGTH, WIDTHS, beside, near, recipe_for, shaped
from studies.study import read_fields, read_pairs
from tests.toys import batch_of, packed


def test_attention_alone_costs_as_much_and_no_narrower_one_would():
    least = cw.multiply_adds(recipe_for("branches", 0, 10, 1e-3), LENGTH)
    for kind in ("attention", "flat"):
        here, narrower = (cw.multiply_adds(shaped(kind, WIDTHS[kind] - less), LENGTH) for less in (0, 4))
        assert narrower < least <= here < 1.06 * least


def test_all_are_trained_alike_and_differ_in_their_blocks():
    results = {kind: recipe_for(kind, 4, 70, 2e-3) for kind in BASES}
    assert len({str(r.train) for r in results.values()}) == len({str(r.objective) for r in results.values()}) == 1
    for kind, wider in branches.WIDER.items():
        inner = {part.inner for _, part in walk(results[kind]) if hasattr(part, "inner")}
        assert inner == {wider * results[kind].encoder.width}
    assert results["branches"].train.seed == 4
    assert results["branches"].train.learning_rate == 2e-3


def test_what_falls_on_neighbours_is_counted_within_a_text():
    batch = batch_of(packed([[3, 2], [4]], 5), torch.zeros(2, 5, dtype=torch.long))
    weights = torch.ones(2, 1, 5, 5)
    assert beside(weights, batch)[:, 0].tolist() == [[2, 3, 2, 2, 2], [2, 3, 3, 2, 0]]


def test_attention_that_is_even_stays_as_near_as_a_text_is_short():
    r = recipe_for("branches", 0, 10, 1e-3)
    r.encoder.vocab = 50
    model = build(r)
    for name, parameter in model.named_parameters():
        if ".query." in name or ".key." in name:
            torch.nn.init.zeros_(parameter)
    tokens = torch.zeros(2, 6, dtype=torch.long)
    expected = (2 + 4 * 3 + 2) / 6 / 6  # the first and the last have one neighbour
    assert near(model, [from_padded(tokens), from_padded(tokens[:1])]) == pytest.approx(expected, rel=1e-5)


def test_means_and_gaps_are_those_of_what_was_learnt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    losses = {"branches": 2.0, "attention": 2.5, "flat": 2.25}

    def train_kind(kind, data, heldout, sides, *, out, seed, steps, rate):
        assert sides == (["a dog"], ["ein Hund"])
        return {"loss": losses[kind] + seed + (rate == 1e-3), "bleu": 30.0 + seed, "near": 0.5}

    monkeypatch.setattr(branches, "train_kind", train_kind)
    monkeypatch.setattr(branches, "texts", lambda *given: (tmp_path, tmp_path))
    (tmp_path / "test.jsonl").write_text('{"en": "a dog", "de": "ein Hund"}\n')
    result = branches.run((0, 1, 2), 5, "train.jsonl", str(tmp_path / "test.jsonl"))
    assert result["loss"]["flat"] == [2.25, 3.25, 4.25]  # at the better rate
    assert result["heldout_loss_by_rate"]["flat"] == {"0.001": 3.25, "0.002": 2.25}
    assert result["mean_loss_less_that_of_branches"] == {"attention": (0.5, 0.0), "flat": (0.25, 0.0)}
    assert result["mean"]["bleu"]["branches"][0] == 31
    branches.draw(result, str(tmp_path / "figure.svg"))
    assert "two branches" in (tmp_path / "figure.svg").read_text()
    json.dumps(result)


def test_pairs_that_are_none_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert read_fields("en, zh") == ("en", "zh")
    with pytest.raises(InputError, match="names of two fields"):
        read_fields("en")
    with pytest.raises(InputError, match="a file of JSON lines is needed"):
        read_pairs(str(tmp_path / "nothing.jsonl"), ("en", "de"))
    (tmp_path / "other.jsonl").write_text('{"en": "a"}\n')
    with pytest.raises(InputError, match=r"other\.jsonl:1: .*the texts en and de"):
        read_pairs(str(tmp_path / "other.jsonl"), ("en", "de"))
    assert branches.main(["--train", "nothing.jsonl", "--test", "nothing.jsonl"]) == 2
    assert capsys.readouterr().err.startswith("error: --test: nothing.jsonl")
    assert branches.main([]) == 2


@pytest.mark.slow
def test_a_small_run_learns_and_measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("sacrebleu")
    words = {"a": "ein", "dog": "hund", "cat": "katze", "sees": "sieht", "sleeps": "schlaeft", "red": "rot"}
    names = list(words)
    rows = [[names[(3 * n + k * k) % 6] for k in range(4 + n % 3)] for n in range(120)]
    pairs = [{"en": " ".join(row), "de": " ".join(words[word] for word in row)} for row in rows]
    for name, part in (("train", pairs[:100]), ("test", pairs[100:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)))
    monkeypatch.setattr(branches, "VOCAB", 100)
    result = branches.run((0,), 3, str(tmp_path / "train.jsonl"), str(tmp_path / "test.jsonl"), rates=(1e-3,))
    assert set(result["loss"]) == set(BASES)
    for kind in BASES:
        assert result["loss"][kind][0] > 0
        assert 0 <= result["bleu"][kind][0] <= 100
        assert 0 < result["near"][kind][0] < 1
