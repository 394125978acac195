"""The experiment about pretrained starts, in miniature."""

import json
from pathlib import Path

import pytest

from clozeworks.core.errors import InputError
from studies import starts

WORDS = ["a", "man", "sits", "on", "the", "old", "red", "bench", "and", "reads", "a", "book", "about", "horses"]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    rows = [
        {"en": " ".join(WORDS[at % 9 : at % 9 + 4]), "de": " ".join(WORDS[at % 7 : at % 7 + 3])} for at in range(20)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_first_step_that_is_as_good():
    assert starts.reached({20: 5.0, 10: 6.0, 30: 4.0}, 5.0) == 20
    assert starts.reached({10: 6.0}, 5.0) is None


def test_rates_are_numbers():
    assert starts.read_rates("1e-3,0.5") == [0.001, 0.5]
    with pytest.raises(InputError, match="numbers with commas"):
        starts.read_rates("fast")


@pytest.mark.slow
def test_four_models_are_compared(road: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"PAIRS": 16, "MEASURED": 4, "EVERY": 1}.items():
        monkeypatch.setattr(starts, name, value)
    result = starts.run([0, 1], 2, str(road / "run"), str(pairs), str(pairs), rates="1e-3")
    arms = {f"{form}, {start}" for form in starts.FORMS for start in starts.STARTS}
    assert set(result["loss"]) == set(result["steps_to_target"]) == set(result["bleu"]) == arms
    assert all(len(losses) == 2 for losses in result["loss"].values())
    assert all(set(curve) == {"1", "2"} for curves in result["curves"].values() for curve in curves)
