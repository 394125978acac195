"""examples/family.py at toy size: one table, figures for the pages, a reason for what is left out, and resuming."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import clozeworks as cw
from clozeworks.objectives.objective import Needs
from clozeworks.recipes import named
from docs.tools import recipe_pages
from tests.command_line import text

FILE = Path(__file__).parents[2] / "examples" / "family.py"
SMALL = ["--lang", "en", "--vocab", "120", "--heldout", "0.1", "--set", "train.batch_tokens=256"]


@pytest.fixture(scope="module")
def family() -> ModuleType:
    result = importlib.util.spec_from_file_location("family_example", FILE)
    assert result is not None
    assert result.loader is not None
    module = importlib.util.module_from_spec(result)
    result.loader.exec_module(module)
    return module


@pytest.fixture
def call(family: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The script with more words: its exit code, and what it printed."""
    (tmp_path / "text.txt").write_text(text(60, 3))

    def run(*words: str) -> tuple[int, str]:
        given = [str(FILE), str(tmp_path / "text.txt"), "--out", str(tmp_path / "out"), *SMALL, *words]
        monkeypatch.setattr(sys, "argv", given)
        capsys.readouterr()
        status = family.main()
        return status, "".join(capsys.readouterr())

    return run


@pytest.mark.slow
def test_the_table_and_the_figures(call: Any, tmp_path: Path):
    words = ("--steps", "2", "--recipes", "roberta_wwm_mini", "bert_mini")
    status, output = call(*words)
    assert status == 0
    assert [line.split()[0] for line in output.splitlines() if "_mini " in line] == ["bert_mini", "roberta_wwm_mini"]
    report = json.loads((tmp_path / "out" / "measured.json").read_text())
    for name in ("bert_mini", "roberta_wwm_mini"):
        results = report[name]["en"]
        assert results["steps"] == 2
        assert 300 < results["tokens"] <= 512
        assert 0 <= results["accuracy"] <= 1
        assert 0 < results["unigram"] < 1
        assert results["command"].endswith("--set train.steps=2 --set train.batch_tokens=256")
    made = {name: make() for name, make in named().items()}
    assert "| en | 2 |" in recipe_pages.page(made["bert_mini"], made, recipe_pages.family(), report)
    status, output = call(*words)
    assert status == 0
    assert output.count("finished already") == 2


def test_minutes_become_steps_once(call: Any, tmp_path: Path, family: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(family, "PROBE", 1)
    status, _ = call("--minutes", "0.001", "--recipes", "bert_mini")
    assert status == 0
    planned = json.loads((tmp_path / "out" / "steps.json").read_text())
    assert planned == {
        "bert_mini": json.loads((tmp_path / "out" / "measured.json").read_text())["bert_mini"]["en"]["steps"]
    }
    (tmp_path / "out" / "steps.json").write_text('{"bert_mini": 3}')
    recipe = cw.recipe("bert_mini")
    assert family.steps_for(60.0, recipe, tmp_path / "out", {}) == 3


def test_what_the_text_cannot_serve_is_left_out_with_the_reason(
    call: Any, family: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object, **__: object) -> None:
        raise cw.InputError("data", "no phrases", "annotated text is needed", "annotate it")

    monkeypatch.setattr(family.cw, "pretrain", refuse, raising=False)
    status, output = call("--steps", "2", "--recipes", "bert_mini")
    assert status == 0
    assert "bert_mini: left out, data: no phrases; annotated text is needed; annotate it" in output


def test_a_recipe_with_a_teacher_waits_for_it(call: Any, family: ModuleType, monkeypatch: pytest.MonkeyPatch):
    class Taught:
        needs = Needs(reads=frozenset({"teacher"}))

    recipe = cw.recipe("bert_tiny")
    recipe.objective.losses = (Taught(),)
    monkeypatch.setattr(family.cw, "recipe", lambda _: recipe, raising=False)
    _, output = call("--steps", "2", "--recipes", "bert_tiny")
    assert "bert_tiny: left out, its teacher, bert_mini, is not trained" in output


def test_a_mistake_is_one_sentence(call: Any):
    status, output = call("--steps", "2", "--recipes", "bert_mni")
    assert status == 2
    assert "did you mean bert_mini" in output
