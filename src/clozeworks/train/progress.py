"""What the user sees while a run goes on: one live line on a terminal, a plain line now and then elsewhere."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from clozeworks.train.log import peak_memory
from clozeworks.train.loop import Step

PAUSE = 15.0  # seconds between two plain lines


class Line:
    """Loss, masked accuracy, tokens a second without padding, time left, memory."""

    def __init__(self, steps: int, start: int = 0, console: Console | None = None, show: bool = True):
        self.console = console or Console()
        self.steps, self.start, self.show = steps, start, show
        self.begin = self.said = time.perf_counter()
        self.speed = 0.0  # smoothed over about twenty steps
        self.bar: Progress | None = None
        if show and self.console.is_terminal:
            self.bar = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[facts]}"),
                TextColumn("left"),
                TimeRemainingColumn(compact=True),
                console=self.console,
            )
            self.task = self.bar.add_task("train", total=steps, completed=start, facts="")
            self.bar.start()

    def update(self, step: Step) -> None:
        speed = step.tokens / max(step.seconds, 1e-9)
        self.speed = speed if not self.speed else 0.95 * self.speed + 0.05 * speed
        if self.bar is not None:
            self.bar.update(self.task, completed=step.number, facts=facts(step, self.speed))
        elif self.show and (step.number == self.start + 1 or step.last or time.perf_counter() - self.said > PAUSE):
            self.said = time.perf_counter()
            left = (self.said - self.begin) / (step.number - self.start) * (self.steps - step.number)
            self._print(f"step {step.number:,} of {self.steps:,}  {facts(step, self.speed)}  {clock(left)} left")

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.show:
            self._print(text)

    def heldout(self, step: int, figures: dict[str, Any]) -> None:
        """Loss and accuracies; the rest is in metrics.jsonl and at the end."""
        shares = {name: value for name, value in figures.items() if name.endswith("accuracy")}
        shown = "  ".join(f"{name.replace('_', ' ')} {value:.1%}" for name, value in shares.items())
        self.say(f"held-out at step {step:,}:  loss {figures['loss']:.3f}  {shown}".rstrip())

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)


def facts(step: Step, speed: float) -> str:
    accuracy = step.metrics.get("masked_accuracy")
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
