"""Random compositions with fixed seeds: few with every run, many now and then. Fresh ones: `make fuzz`."""

import pytest

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from tests.fuzz.compositions import poor_refusal, run_case
from tests.fuzz.draw import draw_recipe, known


@pytest.mark.parametrize("seed", range(12))
def test_a_composition_is_refused_or_keeps_its_promises(seed):
    assert run_case(seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_many_compositions(seed):
    assert run_case(seed) is None


def test_a_recipe_is_its_seeds():
    assert draw_recipe(3) == draw_recipe(3)
    assert draw_recipe(3) != draw_recipe(3, attempt=1)


def test_every_part_is_drawn_within_four_turns():
    kinds = {type(part).__name__ for seed in range(4 * len(known())) for _, part in spec.walk(draw_recipe(seed))}
    assert {"Shaw", "Reversible", "Permute", "LightConv", "PairStream", "Lamb"} <= kinds


def test_a_refusal_without_a_way_out_is_a_failure():
    assert poor_refusal(RecipeError("stack.depth", 0, "1 or more is needed", "use 2")) is None
    assert poor_refusal(RecipeError("stack.depth", 0, "1 or more is needed", "")) is not None
