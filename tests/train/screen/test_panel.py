"""Curves of any length in any room."""

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from clozeworks.train.screen.panel import ASCII, BINS, FULL, Curve, Guess, Panel, chart

LOSSES = st.lists(st.floats(0, 100), min_size=1, max_size=700)


@given(LOSSES, st.integers(1, 300))
def test_a_curve_keeps_the_mean_and_the_ends(losses: list[float], width: int):
    curve = Curve()
    for number, loss in enumerate(losses, 1):
        curve.add(number, loss)
    assert len(curve.sums) <= BINS
    assert sum(curve.counts) == len(losses)
    assert sum(curve.sums) == pytest.approx(sum(losses))
    columns = curve.columns(width)
    assert len(columns) == min(width, len(curve.sums))
    assert min(losses) - 1e-9 <= min(columns) <= max(columns) <= max(losses) + 1e-9
    if len(losses) <= min(width, BINS):
        assert columns == losses


def test_a_curve_goes_down_where_the_loss_does():
    curve = Curve()
    for number in range(1, 100_001):
        curve.add(number, 1 / number)
    columns = curve.columns(50)
    assert columns == sorted(columns, reverse=True)
    assert len(columns) == 50


def test_gaps_and_losses_that_are_no_numbers_leave_no_mark():
    curve = Curve()
    for number, loss in ((1, 2.0), (5, math.nan), (6, None), (10, 4.0)):
        curve.add(number, loss)
    assert curve.columns(100) == [2.0, 4.0]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.integers(1, 5), st.sampled_from([FULL, ASCII]))
def test_a_chart_is_as_high_as_its_values(values: list[float], rows: int, levels: str):
    drawn = chart(values, rows, levels)
    assert [len(row) for row in drawn] == [len(values)] * rows
    heights = [sum(levels.index(row[at]) for row in drawn) for at in range(len(values))]
    assert all(height >= 1 for height in heights)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [heights[at] for at in order] == sorted(heights)
    if max(values) > min(values):
        assert max(heights) == rows * (len(levels) - 1)


def test_the_top_row_comes_first():
    assert chart([0.0, 1.0], 2) == [" █", "▁█"]


def panel() -> Panel:
    curve = Curve()
    for number in range(1, 300):
        curve.add(number, 10.0 / number)
    guess = Guess("中国经济" * 20, "发展", "发", "很快" * 30)
    return Panel(1000, curve, 300, "loss 2.500  accuracy 25.0%  200 tokens/s", "1:00", "held-out at step 200", guess)


@given(st.integers(1, 200), st.integers(1, 40), st.sampled_from(["utf-8", "ascii"]))
def test_it_fits_any_terminal(width: int, height: int, encoding: str):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    console = Console(file=file, width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as got:
        console.print(panel())
    lines = got.get().rstrip("\n").split("\n")
    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) == (2 if height < 9 else 7 if width > 10 else 4)
    if encoding == "ascii":
        assert not {*"━─█▁≠"} & {*got.get()}


def test_without_colour_a_right_guess_differs_from_a_wrong_one():
    assert Guess("a", "b", "b", "c").draw(80).plain == "a [b] c"
    assert Guess("a", "b", "d", "c").draw(80).plain == "a [b ≠ d] c"
    assert Guess("a", "b", "d", "c").draw(80, ascii_only=True).plain == "a [b != d] c"
    assert Guess("cut this in words", "b", "b", "c").draw(20).plain == "in words [b] c"


def test_no_colour_is_heeded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), width=80, height=30, force_terminal=True)
    with console.capture() as got:
        console.print(panel())
    assert "\x1b[3" not in got.get()
