"""A progress bar by stages."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

STAGES = {"tokenizer": "training the tokenizer", "units": "tokenising", "shards": "writing shards"}


class Bar:
    """What `prepare` is doing, for a terminal; silent elsewhere, since it is soon done."""

    def __init__(self, console: Console, show: bool = True, stages: dict[str, str] = STAGES, unit: str | None = None):
        self.progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=not (show and console.is_terminal),
        )
        self.stages, self.stage, self.unit, self.begin = stages, "", unit, time.perf_counter()

    def __enter__(self) -> "Bar":
        self.progress.start()
        self.task = self.progress.add_task("reading", total=None, rate="")
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def update(self, stage: str, done: int, total: int | None) -> None:
        """So much of a stage is done; None: nobody knows of how much."""
        if stage != self.stage:
            self.stage = stage
            self.progress.reset(self.task, total=total, description=self.stages.get(stage, stage))
        rate = done / max(time.perf_counter() - self.begin, 1e-9)
        shown = f"{done:,} {self.unit}, {rate:,.0f} a second" if self.unit else ""
        self.progress.update(self.task, completed=done, total=total, rate=shown)
