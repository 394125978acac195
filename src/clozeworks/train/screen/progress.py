"""What the user sees while a run trains: a small live panel on a terminal, a plain line now and then elsewhere."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.live import Live

from clozeworks.core.batch import Batch
from clozeworks.screen.console import SafeConsole
from clozeworks.train.guard import SkippedRange
from clozeworks.train.metrics_log import peak_memory
from clozeworks.train.screen.panel import Curve, Guess, Panel
from clozeworks.train.step import Step

PAUSE = 15.0  # seconds between two plain lines
REDRAW = 0.5  # seconds between two drawings of the panel, each a few milliseconds
LOOK = 10.0  # seconds between two guesses, at least
COST = 0.01  # share of the time that guesses may take


class ProgressLine:
    """Loss, masked accuracy, tokens a second without padding, time left, memory.

    On a terminal also the curve of the losses, the last held-out metrics, and now and then what `guess` makes of a
    step's batch. `past` are rows of an earlier session.
    """

    def __init__(
        self,
        steps: int,
        start: int = 0,
        console: Console | None = None,
        show: bool = True,
        guess: Callable[[Batch], Guess | None] | None = None,
        past: Iterable[dict[str, Any]] = (),
    ):
        self.console = console or SafeConsole()
        self.steps, self.start, self.show, self.guess = steps, start, show, guess
        self.begin = self.reported = time.perf_counter()
        self.speed = 0.0  # smoothed over about twenty steps
        self.step: Step | None = None
        self.saved = start  # step of the last checkpoint
        self.panel = Panel(steps, Curve(), start)
        self.live: Live | None = None
        self.drawn, self.looked, self.asked = 0.0, self.begin, False
        if show and self.console.is_terminal and not self.console.is_dumb_terminal:
            for row in past:
                if row.get("split") is None and row["step"] <= start:
                    self.panel.curve.add(row["step"], row.get("loss"))
            self._open()

    def update(self, step: Step) -> None:
        speed = step.tokens / max(step.seconds, 1e-9)
        self.speed = speed if not self.speed else 0.95 * self.speed + 0.05 * speed
        self.step = step
        now = time.perf_counter()
        if self.live is not None:
            self.panel.curve.add(step.number, step.loss)
            if now - self.drawn >= REDRAW or step.last or self.asked:
                self._draw(now)
        elif self.show and (step.number == self.start + 1 or step.last or now - self.reported > PAUSE):
            self.reported = now
            self._print(self.where())

    def where(self) -> str:
        """How far the run is, in one line."""
        if self.step is None:
            return f"step {self.start:,} of {self.steps:,}, the next one is not done yet"
        now = f"step {self.step.number:,} of {self.steps:,}"
        return f"{now}  {facts(self.step, self.speed)}  {clock(self.left())} left"

    def left(self) -> float:
        """Seconds, if the rest goes like what is done."""
        done = self.step.number if self.step else self.start
        return (time.perf_counter() - self.begin) / max(done - self.start, 1) * (self.steps - done)

    def answer(self) -> None:
        """Say to standard error where the run is, at once: to a signal, in the middle of anything.

        A terminal with a panel gets it above the panel, after the step, or the panel would paint over it.
        """
        if self.live is not None and sys.stderr.isatty():
            self.asked = True
            return
        with contextlib.suppress(OSError):  # not through sys.stderr, which may be writing something just now
            os.write(2, f"{self._describe()}\n".encode())

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.show:
            self._print(text)

    def back(self, step: int, passed: SkippedRange) -> None:
        """The guard went back to a step."""
        self.say(
            f"{passed.reason} for steps in a row from step {passed.first:,} on: back to step {step:,}, "
            f"and steps {passed.begin:,} to {passed.end:,} are passed over"
        )

    def heldout(self, step: int, metrics: dict[str, Any]) -> None:
        """Loss, accuracies and what tasks are evaluated by; the rest is in metrics.jsonl and at the end."""
        shares = {name: value for name, value in metrics.items() if name.endswith("accuracy")}
        others = {name: metrics[name] for name in ("f1", "spearman", "exact_match") if name in metrics}
        shown = [f"{name} {value:.1%}" for name, value in shares.items()]
        shown += [f"{name} {value:.3f}" for name, value in others.items()]
        text = "  ".join(shown).replace("_", " ")
        loss = "" if metrics["loss"] is None else f"loss {metrics['loss']:.3f}  "
        text = f"held-out at step {step:,}:  {loss}{text}".rstrip()
        self.panel.heldout = text
        if self.live is None:
            self.say(text)

    def close(self) -> None:
        if self.live is not None:
            self._draw(time.perf_counter(), look=False)
            self.live.stop()
            self.live = None

    def _open(self) -> None:
        self.size = self.shape = self.console.size
        self.live = Live(self.panel, console=self.console, auto_refresh=False, vertical_overflow="crop")
        self.live.start()

    def _draw(self, now: float, look: bool = True) -> None:
        assert self.live is not None
        if self.step is not None:
            self.panel.step, self.panel.facts = self.step.number, facts(self.step, self.speed)
            self.panel.left = clock(self.left())
        if look and now >= self.looked:
            self._look(now)
        if self.asked:
            self.asked = False
            self._print(self._describe())
        size, self.size = self.size, self.console.size
        if self.size == self.shape:
            self.live.refresh()
        elif self.size == size:  # lines that were wrapped anew cannot be found again: once it is still, start below
            self.live.stop()
            self._open()
        self.drawn = time.perf_counter()

    def _look(self, now: float) -> None:
        """Have the model guess a token of the last batch."""
        batch = self.step.batch if self.step is not None else None
        if self.guess is None or batch is None:
            return
        try:
            self.panel.guess = self.guess(batch)
        except Exception:  # what only watches must not end a run
            self.guess = None
        took = time.perf_counter() - now
        self.looked = now + max(LOOK, took / COST)

    def _describe(self) -> str:
        return f"{self.where()}  " + (f"last checkpoint at step {self.saved:,}" if self.saved else "no checkpoint yet")

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)


def facts(step: Step, speed: float) -> str:
    names = ("masked_accuracy", "next_accuracy", "permuted_accuracy")
    accuracy = next((step.metrics[name] for name in names if name in step.metrics), None)
    return "  ".join(
        [
            "loss skipped" if step.skipped else f"loss {step.loss:.3f}",
            *([f"accuracy {accuracy:.1%}"] if accuracy is not None and not step.skipped else []),
            f"{speed:,.0f} tokens/s",
            f"{peak_memory() / 1e6:,.0f} MB",
        ]
    )


def clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
