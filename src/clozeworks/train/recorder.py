"""What a run counts and writes down as it goes: tokens, seconds, rows of metrics, evaluations and their scores."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clozeworks.optim.keep import Score
from clozeworks.train import metrics_log, run_dir
from clozeworks.train.protocols import Evaluator
from clozeworks.train.startup.setup import Setup
from clozeworks.train.step import Step
from clozeworks.train.writers import Writer, Writers


class Recorder(contextlib.AbstractContextManager["Recorder"]):
    """The rows of metrics.jsonl, which the main process writes, and what is known of the run so far.

    `say` is given what an evaluation warns of, and what goes wrong with one of the other `writers`, which get the same
    rows.
    """

    def __init__(
        self,
        run: Path,
        setup: Setup,
        evaluator: Evaluator | None,
        *,
        writers: Sequence[Writer] = (),
        say: Callable[[str], None],
    ):
        self.file, self.setup, self.evaluator = run / run_dir.METRICS, setup, evaluator
        self.main, self.say = setup.policy.group.main, say
        self.metrics: metrics_log.Metrics | None = None  # the main process opens the file
        self.writers = Writers(writers if self.main else (), say)
        self.pace = metrics_log.Pace()
        self.tokens, self.seconds = 0, 0.0
        self.heldout: dict[str, Any] | None = None  # the metrics of the last evaluation
        self.scores: dict[int, Score] = {}  # of each evaluation, by its step

    def __exit__(self, *_: object) -> None:
        self.writers.close()
        self._close()

    def enter(self, state: dict[str, Any]) -> None:
        """Take up the run at a state; rows of later steps are cut off, since they will be written again."""
        rows = read_rows(self.file, state["step"]) if self.main else []
        self.tokens, self.seconds = state["tokens"], state["seconds"]
        self.heldout = metrics_log.last_metrics(rows)
        measured = [row for row in rows if row.get("split") == "heldout" and row.get("loss") is not None]
        self.scores = {row["step"]: self.evaluator.score(row) for row in measured} if self.evaluator else {}
        self._close()
        if self.main:
            self.metrics = metrics_log.Metrics(self.file, state["step"])

    def count(self, step: Step) -> None:
        """Add the tokens and the seconds of a step."""
        self.tokens += step.tokens
        self.seconds += step.seconds
        self.pace.add(step)

    def log(self, step: Step) -> None:
        """Write the row of a step."""
        self._write(metrics_log.make_row(step, self.tokens, self.pace.take()))

    def evaluate(self, step: Step) -> dict[str, Any] | None:
        """Measure the model and write the row of that; None where another process does, or nothing is held out."""
        group = self.setup.policy.group
        if not self.evaluator or not (group.main or group.sharded):  # shards are gathered by all, or by none
            return None
        self.heldout = self.evaluator.measure(self.setup.model, self.setup.policy.teacher)
        group.scatter(self.setup.model)
        self.scores[step.number] = self.evaluator.score(self.heldout)
        self._write({"step": step.number, "split": "heldout", **self.heldout})
        if (warning := self.evaluator.warn(step.number, self.heldout)) is not None:
            self.setup.notes.append(warning)
            self.say(warning)
        return self.heldout

    @property
    def should_stop(self) -> bool:
        """Early stopping: whether the evaluations so far say that more steps are of no use."""
        return self.evaluator is not None and self.evaluator.should_stop(self.scores)

    @property
    def best(self) -> int | None:
        """The step whose evaluation was the best."""
        return min(self.scores, key=lambda step: (self.scores[step], step), default=None)

    def sync(self) -> None:
        """Put the rows on the disk."""
        if self.metrics is not None:
            self.metrics.sync()

    def _write(self, row: dict[str, Any]) -> None:
        if self.metrics is not None:
            self.metrics.write(row)
        self.writers.write(row)

    def _close(self) -> None:
        if self.metrics is not None:
            self.metrics.close()


def read_rows(file: Path, step: int) -> list[dict[str, Any]]:
    """The rows up to a step."""
    return [row for row in metrics_log.read(file) if row["step"] <= step]
