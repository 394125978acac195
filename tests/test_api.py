"""What people hand to the public functions by mistake: one sentence each."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import clozeworks as cw

MISTAKES: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (cw.recipe, (5,), "^recipe: 5; the name of a recipe is needed; see clozeworks.recipes"),
    (cw.recipe, (None,), "^recipe: None; the name of a recipe"),
    (cw.recipe, ([],), r"^recipe: \[\]; the name of a recipe"),
    (cw.build, (5,), "^recipe: 5; the name of a recipe"),
    (cw.count_parameters, (None,), "^recipe: None; the name of a recipe"),
    (cw.diff, ("bert_tiny", 5), "^recipe: 5; the name of a recipe"),
    (cw.load, (None,), "^path: None; the directory of a model or a run is needed"),
    (cw.load, (5,), "^path: 5; the directory of a model or a run is needed"),
    (cw.pretrain, ("bert_tiny", "data", None), "^out: None; the directory of the run is needed"),
]


@pytest.mark.parametrize(("call", "given", "message"), MISTAKES, ids=[f"{c.__name__}{g}" for c, g, _ in MISTAKES])
def test_a_value_of_the_wrong_kind_is_one_sentence(call, given, message):
    with pytest.raises(cw.InputError, match=message):
        call(*given)


@pytest.mark.parametrize("texts", [5, None, 2.5])
def test_only_text_becomes_vectors(texts, road):
    encoder = cw.load(road / "run")
    with pytest.raises(cw.InputError, match=rf"^texts: {texts}; a string or a list of strings is needed"):
        encoder.encode(texts)


def test_without_scikit_learn_its_estimator_says_what_to_install():
    hidden = "import sys; sys.modules['sklearn'] = None; import clozeworks as cw; cw.TextClassifier('run')"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert "InputError: TextClassifier: no scikit-learn" in done.stderr
    assert "pip install 'clozeworks[sklearn]'" in done.stderr


def test_public_names_stay_functions_when_rooms_of_the_same_name_are_imported():
    import clozeworks.evaluate
    import clozeworks.recipe
    import clozeworks.recipes

    assert callable(cw.evaluate)
    assert cw.recipe("bert_tiny").name == "bert_tiny"
    assert "bert_tiny" in cw.recipes()
    assert clozeworks.evaluate is cw.evaluate


def test_evaluate_reads_text_or_records(road):
    metrics = cw.evaluate(road / "run", road / "data")
    assert 0 <= metrics["masked_accuracy"] <= 1
    with pytest.raises(cw.InputError, match="neither data nor test"):
        cw.evaluate(road / "run")


def test_evaluate_scores_a_task(road, tmp_path):
    records = [{"text": text, "label": label} for text, label in (("good old tree", "a"), ("bad cold stone", "b"))] * 8
    out = tmp_path / "task"
    cw.finetune("classify", road / "run", records, records, out=out, epochs=1, max_length=16, progress=False)
    metrics = cw.evaluate(out, test=records)
    assert metrics["records"] == 16
    low, high = metrics["intervals"]["accuracy"]
    assert 0 <= low <= metrics["accuracy"] <= high <= 1
