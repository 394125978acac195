"""The guard alone: what it calls a spike, where it goes back to, when it stops, and that its memory is all it needs."""

import json
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.process_group import ProcessGroup
from clozeworks.optim.guard import PATIENCE, Guard
from clozeworks.train.guard import HIGH, NOT_FINITE, SPIKE, SkippedRange, SpikeGuard, Verdict
from clozeworks.train.step import Step

SMALL = Guard(window=8, patience=3, rollbacks=2)


def calm(watch: SpikeGuard, first: int, last: int, level: float = 3.0) -> None:
    for number in range(first, last + 1):
        assert watch(number, level + 0.02 * math.sin(number), 1.0).act == "update"


def step_of(number: int, loss: float, reason: str) -> Step:
    return Step(
        number=number,
        steps=99,
        loss=loss,
        metrics={},
        learning_rate=1e-3,
        grad_norm=7.5,
        tokens=10,
        examples=tuple(range(9)),
        seconds=0.1,
        cpu_seconds=0.1,
        waited=0.0,
        skipped=True,
        reason=reason,
        trouble=True,
    )


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (2.0, math.nan), (2.0, math.inf)])
@pytest.mark.parametrize("guard", [None, SMALL])
def test_what_is_not_finite_is_skipped_from_the_first_step_on(guard: Guard | None, loss: float, norm: float):
    watch = SpikeGuard(guard)
    assert watch(1, loss, norm) == Verdict("skip", NOT_FINITE)
    assert watch(2, 3.0, 1.0).act == "update"
    assert watch.level == 0
    assert all(map(math.isfinite, watch.losses))


def test_a_spike_is_skipped_once_the_window_is_full():
    watch = SpikeGuard(SMALL)
    calm(watch, 1, 7)
    assert watch(8, 9.0, 1.0).act == "update", "seven losses are too few to judge by"
    watch = SpikeGuard(SMALL)
    calm(watch, 1, 8)
    assert watch(9, 9.0, 1.0) == Verdict("skip", SPIKE)
    assert watch(10, 3.0, 1.0).act == "update"
    assert max(watch.losses) < 4, "a spike is no part of what is usual"


def test_a_rise_below_either_limit_is_no_spike():
    quiet, loud = SpikeGuard(SMALL), SpikeGuard(SMALL)
    calm(quiet, 1, 8)
    assert quiet(9, 3.9, 1.0).act == "update", "many deviations, but not a nat"
    for number in range(1, 9):
        loud(number, 3.0 + number % 2, 1.0)
    assert loud(9, 6.0, 1.0).act == "update", "more than a nat, but few deviations"
    assert loud(10, 20.0, 1.0).act == "skip"


def test_without_a_guard_nothing_is_a_spike_and_patience_ends_the_run():
    watch = SpikeGuard(None)
    calm(watch, 1, 200)
    assert watch(201, 1e9, 1e9).act == "update"
    acts = [watch(number, math.nan, 1.0).act for number in range(202, 202 + PATIENCE)]
    assert acts == ["skip"] * (PATIENCE - 1) + ["stop"]
    assert watch.anchor(300) is None


def test_what_stays_high_after_a_spike_is_trouble_though_it_is_updated():
    watch = SpikeGuard(SMALL)
    calm(watch, 1, 20)
    assert watch(21, 3.7, 1.0).act == "update"
    assert watch(22, 6.0, 1.0).act == "skip"
    assert watch(23, 3.7, 1.0) == Verdict("update", HIGH)
    assert watch(24, 3.7, 1.0) == Verdict("back", HIGH)
    assert watch.passed == [SkippedRange(19, 24, 22, 1, HIGH)]


def test_a_new_length_has_a_loss_of_its_own():
    watch = SpikeGuard(SMALL, borders=[20])
    calm(watch, 1, 20)
    calm(watch, 21, 30, level=9.0)
    assert watch(31, 15.0, 1.0).act == "skip"


def test_going_back_passes_over_more_each_time_and_then_stops():
    watch = SpikeGuard(SMALL)
    calm(watch, 1, 20)
    begin = watch.state()
    assert [watch(number, 9.0, 1.0).act for number in (21, 22, 23)] == ["skip", "skip", "back"]
    assert watch.passed == [SkippedRange(18, 23, 21, 1, SPIKE)]
    assert watch.passes(17) is None
    assert watch.passes(18) == watch.passes(23) == watch.passed[0]
    watch.load({**begin, "passed": watch.state()["passed"]})
    assert [watch(number, math.nan, 1.0).act for number in (24, 25, 26)] == ["skip", "skip", "back"]
    assert watch.passed == [SkippedRange(15, 26, 21, 2, NOT_FINITE)], (
        "the same trouble: its stretch grows on both sides"
    )
    watch.load({**begin, "passed": watch.state()["passed"]})
    assert [watch(number, math.nan, 1.0).act for number in (27, 28, 29)] == ["skip", "skip", "stop"]
    message = str(watch.diverged(step_of(29, math.nan, NOT_FINITE)))
    known = "step 29: loss nan, gradient norm 7.5 (not finite), and so for 3 steps in a row, after going back 2 times"
    assert message.startswith(f"{known} (examples 0, 1, 2, 3, 4, 5, 6, 7, ...); both must be finite")


def test_trouble_after_a_good_stretch_is_another_one():
    watch = SpikeGuard(SMALL)
    calm(watch, 1, 20)
    for number in (21, 22, 23):
        watch(number, 9.0, 1.0)
    watch.load({**watch.state(), "level": 0, "first": 0})
    calm(watch, 24, 31)
    for number in (32, 33, 34):
        watch(number, 9.0, 1.0)
    assert [each.attempt for each in watch.passed] == [1, 1]
    assert watch.passed[1].begin == 29


def test_what_it_says_names_the_command_and_the_field():
    watch = SpikeGuard(Guard(rollbacks=0, window=8, patience=1), look="clozeworks examples --run 'a run' --step")
    calm(watch, 1, 8)
    assert watch(9, 9.0, 1.0).act == "stop"
    message = str(watch.diverged(step_of(9, 9.0, SPIKE)))
    assert "loss 9, gradient norm 7.5 (spike)" in message
    assert "see `clozeworks examples --run 'a run' --step 9`" in message
    assert "train.guard.rise" in message


@given(st.integers(0, 2**32), st.integers(1, 119))
@settings(max_examples=60, deadline=None)
def test_its_memory_is_all_it_needs(seed: int, cut: int):
    """Resumed anywhere through JSON it judges as it would have, and no anchor is later than where it goes back to."""
    draw = random.Random(seed)
    losses = [draw.choice([3.0, 3.1, 3.2, 3.2, 9.0, math.nan]) for _ in range(120)]
    one, other, anchors = SpikeGuard(SMALL), SpikeGuard(SMALL), []
    for number, loss in enumerate(losses, 1):
        if number == cut:
            other.load(json.loads(json.dumps(one.state(), allow_nan=False)))
        if number >= cut:
            assert other(number, loss, 1.0) == (verdict := one(number, loss, 1.0))
            assert other.state() == one.state()
        else:
            verdict = one(number, loss, 1.0)
        if verdict.act == "back":
            assert all(anchor < max(one.passed[-1].begin, 1) for anchor in anchors[-30:])
            anchors.clear()
        elif verdict.act == "stop":
            return
        else:
            anchors.append(one.anchor(number))


@pytest.mark.parametrize(("field", "value"), [("window", 3), ("patience", 0), ("rollbacks", -1), ("rise", 0.0)])
def test_settings_that_make_no_sense_are_refused(field: str, value: float):
    with pytest.raises(RecipeError, match=f"guard.{field} = {value}"):
        spec.check(Guard(**{field: value}), "guard")  # pyright: ignore[reportArgumentType]


def test_a_short_run_that_learned_nothing_stops_at_its_end():
    watch = SpikeGuard(None, steps=3)
    assert [watch(number, math.nan, 1.0).act for number in (1, 2, 3)] == ["skip", "skip", "stop"]
    watch = SpikeGuard(None, steps=3)
    assert [watch(number, loss, 1.0).act for number, loss in ((1, 2.0), (2, math.nan), (3, math.nan))][-1] == "skip"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_refused_at_the_end(value: float):
    watch, weights, step = SpikeGuard(None), torch.ones(3), step_of(4, 1.0, "")
    assert watch.is_sound(step, [weights], ProcessGroup(), ending=True)
    weights[1] = value
    assert not watch.is_sound(step, [weights], ProcessGroup(), ending=False)
    with pytest.raises(InputError, match="step 4: weights that are not finite"):
        watch.is_sound(step, [weights], ProcessGroup(), ending=True)
