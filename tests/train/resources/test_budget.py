"""Steps and size for a budget of processor time."""

import itertools
from pathlib import Path

import pytest

from clozeworks.core import spec
from clozeworks.core.errors import InputError
from clozeworks.recipes.cloze import cloze_tiny
from clozeworks.train.pretrain import pretrain
from clozeworks.train.resources.budget import REACHED, TRIED, choose_size, fit_to_budget
from tests.train.conftest import tiny_recipe


def test_more_time_and_more_text_never_choose_a_smaller_model() -> None:
    sizes = ["cloze_tiny", "cloze_mini", "cloze_small", "cloze_base"]
    grid = [[sizes.index(choose_size(seconds, tokens)) for tokens in (10**5, 2 * 10**6, 2 * 10**7, 10**9)]
            for seconds in (60, 600, 3 * 3600, 10**6)]  # fmt: skip
    for row in (*grid, *zip(*grid, strict=True)):
        assert all(one <= two for one, two in itertools.pairwise(row))
    assert choose_size(600, 2 * 10**6) == "cloze_mini"
    assert choose_size(10**6, 10**5) == "cloze_tiny"


def test_steps_follow_the_budget_and_a_run_keeps_them(data: Path, tmp_path: Path) -> None:
    recipes = [fit_to_budget(tiny_recipe(), [(data, 1.0)], budget, None, "cpu")[0] for budget in ("5s", "60s")]
    assert TRIED <= recipes[0].train.steps < recipes[1].train.steps
    recipes[0].train.steps = 4
    pretrain(recipes[0], [(data, 1.0)], tmp_path / "run", device="cpu", progress=False)
    again, notes = fit_to_budget(tiny_recipe(), [(data, 1.0)], "60s", tmp_path / "run", "cpu")
    assert again.train.steps == 4
    assert spec.to_dict(again)["name"] == "bert_tiny"
    assert notes == []


def test_what_such_a_model_has_reached_is_said(data: Path) -> None:
    own, other = cloze_tiny(), tiny_recipe()
    assert f"has reached: {REACHED['cloze_tiny']}" in fit_to_budget(own, [(data, 1.0)], "60s", None, "cpu")[1][-1]
    assert len(fit_to_budget(other, [(data, 1.0)], "5s", None, "cpu")[1]) == 1


def test_too_small_a_budget_says_what_is_needed(data: Path) -> None:
    with pytest.raises(InputError, match=r"a step takes .* CPU seconds, and 50 of them are the least; use at least"):
        fit_to_budget(tiny_recipe(), [(data, 1.0)], "0.001s", None, "cpu")
