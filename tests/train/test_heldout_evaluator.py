"""A run that has learned nothing but word frequencies is reported, once."""

from pathlib import Path

import pytest

from clozeworks.metrics.frequencies import unigram_baseline
from clozeworks.recipe import Recipe
from clozeworks.recipes import recipe as named
from clozeworks.starts.neighbours import NeighbourInit
from clozeworks.train.heldout_evaluator import PATIENCE, HeldOutEvaluator
from clozeworks.train.pretrain import fit_to_data, open_data
from tests.labels import collect_labels


def evaluator(data: Path, recipe: Recipe | None = None) -> tuple[HeldOutEvaluator, dict[str, float]]:
    recipe = recipe or named("roberta_mini")
    recipe.objective.segments.length = 32
    corpora, tokenizer = open_data([(data, 1.0)])
    recipe = fit_to_data(recipe, tokenizer)
    made = HeldOutEvaluator(recipe, corpora, tokenizer.vocabulary())
    labels = collect_labels(made._batches())
    return made, unigram_baseline(corpora[0][0].unigram(), labels)


def late(made: HeldOutEvaluator) -> int:
    return int(PATIENCE / 0.15 / made.recipe.train.batch_tokens) + 1


def stuck(frequencies: dict[str, float], more: float = 0.0) -> dict[str, float]:
    accuracy, loss = frequencies["unigram_accuracy"], frequencies["unigram_loss"]
    return {"masked_accuracy": accuracy * (1 + more), "masked_lm": loss - more}


def test_a_plateau_is_reported_once_with_its_cure(data: Path) -> None:
    made, frequencies = evaluator(data)
    warning = made.warn(late(made), stuck(frequencies))
    assert warning is not None
    assert "no better than word frequencies" in warning
    assert "--start neighbours,counted" in warning
    assert made.warn(late(made) + 500, stuck(frequencies)) is None


@pytest.mark.parametrize("more", [0.7, 2.0])
def test_a_run_that_learns_is_left_alone(data: Path, more: float) -> None:
    made, frequencies = evaluator(data)
    assert made.warn(late(made), stuck(frequencies, more)) is None


def test_at_the_beginning_nothing_is_said(data: Path) -> None:
    made, frequencies = evaluator(data)
    assert made.warn(1, stuck(frequencies)) is None


def test_the_cure_is_not_what_is_there_already(data: Path) -> None:
    recipe = named("roberta_mini")
    recipe.start = (NeighbourInit(),)
    made, frequencies = evaluator(data, recipe)
    warning = made.warn(late(made), stuck(frequencies))
    assert warning is not None
    assert "--start" not in warning


def test_models_that_predict_the_next_token_have_no_such_plateau(data: Path) -> None:
    made, _ = evaluator(data, named("gpt_mini"))
    assert made.warn(10**6, {"next_token": 9.0}) is None
