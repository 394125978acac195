"""Broken inputs of fixed seeds, and that the fuzzer can see a fault."""

import random
from pathlib import Path

import pytest

from clozeworks.core import json_reader
from tests.fuzz import inputs

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_broken_inputs_are_one_sentence(first: int):
    assert [wrong for seed in range(first, first + 20) if (wrong := inputs.run_case(seed))] == []


@pytest.mark.slow
def test_many_more_of_them():
    assert [wrong for seed in range(1000, 1150) if (wrong := inputs.run_case(seed))] == []


def test_every_kind_makes_cases(tmp_path: Path):
    for kind, make in inputs.KINDS.items():
        (tmp_path / kind).mkdir()
        words, what = make(random.Random(1), tmp_path / kind)
        assert words
        assert what


def test_a_case_is_the_same_for_its_seed():
    def made(folder: Path) -> tuple[list[str], str]:
        folder.mkdir()
        words, what = inputs.senseless_fields(random.Random(5), folder)
        return words, what

    assert made(inputs.scene() / "one") == made(inputs.scene() / "two")


def test_faults_are_seen(monkeypatch: pytest.MonkeyPatch):
    _, wrong = inputs.judge(["show", "bert_bse"])
    assert wrong is None
    monkeypatch.setattr(json_reader, "DEEPEST", None)  # a bug of ours: a TypeError where JSON is read
    _, wrong = inputs.judge(["show", str(inputs.scene() / "task" / "recipe.json")])
    assert wrong is not None
    assert "TypeError" in wrong


def test_a_case_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch):
    def never(words: list[str]) -> int:
        while True:
            pass

    monkeypatch.setattr(inputs, "main", never)
    monkeypatch.setattr(inputs, "SECONDS", 0.1)
    assert inputs.judge(["recipes"]) == (1, "it runs for more than 0.1 seconds of the processor")
