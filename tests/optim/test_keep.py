"""Which checkpoints stay."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.optim.keep import Keep

STEPS = [100, 200, 300, 400, 500, 600]


def test_the_last_few_each_so_many_and_the_best():
    losses = {100: (5.0,), 200: (3.5,), 300: (3.0,), 400: (3.0,), 450: (1.0,)}
    assert Keep().choose(STEPS, losses) == {500, 600}
    assert Keep(1).choose(STEPS, losses) == {600}
    assert Keep(1, every=200).choose(STEPS, losses) == {200, 400, 600}
    assert Keep(1, best=True).choose(STEPS, losses) == {300, 600}, "the earlier of two that are equal"
    assert Keep(1, best=True).choose(STEPS, {}) == {600}, "none was measured"
    assert Keep(1, best=True).choose(STEPS, {**losses, 500: (math.nan,)}) == {300, 600}, "a loss that is no number"
    ties = {100: (-0.9, 1.0), 200: (-0.9, 0.5), 300: (-0.8, 0.1), 400: (-0.9, math.inf)}
    assert Keep(1, best=True).choose(STEPS, ties) == {200, 600}, "of equal figures the one with the lower loss"
    assert Keep(9).choose(STEPS, {}) == set(STEPS)


def test_the_guard_keeps_its_own():
    assert Keep(1).choose(STEPS, {}, anchor=350) == {300, 400, 600}
    assert Keep(1).choose(STEPS, {}, anchor=600) == {600}
    assert Keep(1).choose(STEPS, {}, anchor=-5) == {100, 600}


@given(every=st.integers(1, 30), reach=st.integers(1, 100), last=st.integers(1, 4))
def test_as_a_run_continues_there_is_one_not_far_before_the_anchor(every: int, reach: int, last: int):
    there: set[int] = set()
    for step in range(every, 600, every):
        there.add(step)
        there = Keep(last).choose(there, {}, step - reach)
        assert len(there) <= last + 2
        assert max({0, *(each for each in there if each <= step - reach)}) >= step - 2 * reach - 2 * every


@pytest.mark.parametrize("keep", [Keep(0), Keep(every=0)])
def test_nothing_kept_is_refused(keep: Keep):
    with pytest.raises(RecipeError, match="1 or more is needed"):
        spec.check(keep, "train.keep")
