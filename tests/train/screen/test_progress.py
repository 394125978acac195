"""The panel on a terminal, and the answer to a signal."""

import io
import itertools
import os
import signal
import threading
from pathlib import Path

import pytest
from rich.console import Console

from clozeworks.core.batch import Batch
from clozeworks.train.pretrain import pretrain
from clozeworks.train.screen import progress
from clozeworks.train.screen.panel import Guess
from clozeworks.train.screen.progress import ProgressLine
from clozeworks.train.stop import StatusSignal
from tests.train.conftest import tiny_recipe
from tests.train.test_metrics_log import step


def terminal(width: int = 100, height: int = 30) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=width, height=height, color_system=None), out


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn at each step, a guess with each drawing."""
    for name in ("REDRAW", "LOOK"):
        monkeypatch.setattr(progress, name, 0.0)
    monkeypatch.setattr(progress, "COST", 1e9)


def test_the_panel_tells_all_there_is(always: None):
    console, out = terminal()
    line = ProgressLine(10, console=console, guess=lambda _: Guess("the red", "fox", "hen", "sleeps"))
    for number in range(1, 11):
        line.update(step(number, loss=11.0 - number))
    line.say("a line that stays")
    line.heldout(10, {"loss": 2.25, "masked_accuracy": 0.5, "perplexity": 9.0})
    line.close()
    last = out.getvalue().rpartition("a line that stays")[2]
    for text in (
        "step 10 of 10",
        "0:00 left",
        "loss 1.000  accuracy 25.0%  200 tokens/s",
        "  10.000 █",
        "   1.000 █",
        "held-out at step 10:  loss 2.250  masked accuracy 50.0%",
        "the red [fox ≠ hen] sleeps",
    ):
        assert text in last, text
    assert "perplexity" not in last


def test_a_resumed_run_shows_its_past():
    console, out = terminal()
    past = [{"step": 1, "loss": 9.5}, {"step": 2, "loss": None}, {"step": 4, "loss": 3.0},
            {"step": 4, "split": "heldout", "loss": 99.0}, {"step": 9, "loss": 77.0}]  # fmt: skip
    line = ProgressLine(10, 4, console, past=past)
    line.update(step(5))
    line.close()
    assert "9.500 █" in out.getvalue()
    assert "99.0" not in out.getvalue()
    assert "77.0" not in out.getvalue(), "a row beyond the checkpoint is not of this run any more"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "dumb")
    console, out = terminal()
    line = ProgressLine(2, console=console)
    line.update(step(1, 2))
    line.update(step(2, 2))
    line.close()
    assert out.getvalue().count("\n") == 2
    assert "\x1b" not in out.getvalue()


def test_after_a_resize_the_panel_starts_anew_once_the_size_is_still(always: None):
    console, out = terminal()
    line = ProgressLine(20, console=console)
    line.update(step(1, 20))
    console.width = 60
    before = len(out.getvalue())
    line.update(step(2, 20))
    assert len(out.getvalue()) == before, "while it moves nothing is drawn"
    line.update(step(3, 20))
    line.update(step(4, 20))
    drawn = out.getvalue()[before:]
    assert drawn.count("\x1b[?25l") == 1, "begun once"
    assert "step 4 of 20" in drawn
    line.close()


def test_guesses_are_rare_in_time_and_cost(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    looks: list[float] = []

    def look(_: Batch) -> None:
        looks.append(now[0])
        now[0] += 0.05 if len(looks) < 4 else 0.5

    line = ProgressLine(2000, console=terminal()[0], guess=look)
    for number in range(1, 1501):
        now[0] += 0.1
        line.update(step(number, 2000))
    line.close()
    gaps = [after - before for before, after in itertools.pairwise(looks)]
    assert all(10.0 <= gap < 11.5 for gap in gaps[:3])
    assert all(gap >= 50.0 for gap in gaps[3:]), "half a second is one per cent of fifty"
    assert len(looks) >= 5


def test_a_guess_that_fails_ends_no_run(always: None):
    console, out = terminal()

    def look(_: Batch) -> Guess:
        raise RuntimeError("no")

    line = ProgressLine(3, console=console, guess=look)
    for number in (1, 2, 3):
        line.update(step(number, 3))
    line.close()
    assert "step 3 of 3" in out.getvalue()


@pytest.mark.parametrize("accumulated", [False, True])
def test_a_run_with_a_panel_ends_with_the_same_weights(data: Path, tmp_path: Path, always: None, accumulated: bool):
    recipe = tiny_recipe(micro_tokens=64 if accumulated else 256)
    console, out = terminal()
    shown = pretrain(recipe, [(data, 1.0)], tmp_path / "shown", console=console)
    hidden = pretrain(recipe, [(data, 1.0)], tmp_path / "hidden", progress=False)
    assert out.getvalue().count("[") > 30, "it did guess"
    assert "] " in out.getvalue()
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (shown.checkpoint / file).read_bytes() == (hidden.checkpoint / file).read_bytes()


# ---- SIGUSR1


def test_the_answer_says_where_the_run_is(capfd: pytest.CaptureFixture[str]):
    line = ProgressLine(40, console=Console(file=io.StringIO()))
    line.answer()
    for number in range(1, 21):
        line.update(step(number, 40))
    line.answer()
    line.saved = 15
    line.answer()
    first, second, third = capfd.readouterr().err.splitlines()
    assert first == "step 0 of 40, the next one is not done yet  no checkpoint yet"
    assert second.startswith("step 20 of 40  loss 2.500  accuracy 25.0%  200 tokens/s  ")
    assert second.endswith("0:00 left  no checkpoint yet")
    assert third.endswith("  last checkpoint at step 15")


def test_on_a_terminal_the_answer_comes_above_the_panel(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    console, out = terminal()
    line = ProgressLine(40, console=console)
    line.update(step(1, 40))
    monkeypatch.setattr("sys.stderr", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})())
    line.answer()
    assert "checkpoint" not in out.getvalue()
    line.update(step(2, 40))
    line.close()
    assert out.getvalue().count("step 2 of 40  loss 2.500") == 1
    assert out.getvalue().count("no checkpoint yet") == 1
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no SIGUSR1")
def test_a_signal_in_the_middle_of_a_run_changes_nothing(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    class Asking:
        """A writer that asks after each row."""

        def write(self, row: dict) -> None:
            os.kill(os.getpid(), signal.SIGUSR1)

        def close(self) -> None: ...

    before = signal.getsignal(signal.SIGUSR1)
    asked = pretrain(tiny_recipe(), [(data, 1.0)], tmp_path / "asked", progress=False, writers=[Asking()])
    output = capfd.readouterr().err.splitlines()
    assert len(output) == 7 + 2
    assert output[0].startswith("step 1 of 12  loss ")
    assert output[-1].startswith("step 12 of 12  ")
    assert output[-1].endswith(("last checkpoint at step 5", "last checkpoint at step 10")), (
        "the last may be on its way"
    )
    assert signal.getsignal(signal.SIGUSR1) is before
    quiet = pretrain(tiny_recipe(), [(data, 1.0)], tmp_path / "quiet", progress=False)
    assert (asked.checkpoint / "model.safetensors").read_bytes() == (
        quiet.checkpoint / "model.safetensors"
    ).read_bytes()


def test_in_another_thread_there_is_no_handler():
    results: list[object] = []

    def ask() -> None:
        with StatusSignal(lambda: None):
            results.append(signal.getsignal(signal.SIGUSR1))

    before = signal.getsignal(signal.SIGUSR1)
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert results == [before]
