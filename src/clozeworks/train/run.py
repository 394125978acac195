"""A run, and the training loop in it: the same for text and for labelled rows."""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clozeworks.core import atomic_io
from clozeworks.exchange import checkpoint
from clozeworks.train import run_dir
from clozeworks.train.checkpoint.checkpoints import Checkpoints
from clozeworks.train.loop import fit
from clozeworks.train.protocols import Batches, Evaluator
from clozeworks.train.recorder import Recorder
from clozeworks.train.resources import allocator, memory_check
from clozeworks.train.screen.progress import ProgressLine
from clozeworks.train.screen.view import View, open_screen
from clozeworks.train.startup.setup import Setup
from clozeworks.train.step import Step
from clozeworks.train.stop import StopSignal


def train_until_trouble(run: "Run") -> Step | None:
    """Train to the last step, a request to stop, early stopping, or a spike that lasts; gives the last step done."""
    setup, train, step = run.setup, run.setup.recipe.train, None
    with contextlib.closing(iter(run.batches)) as batches:  # pyright: ignore[reportArgumentType]
        start = run.batches.start
        for step in fit(
            setup.model, batches, setup.optimizer, setup.schedule, steps=train.steps, start=start, policy=setup.policy
        ):
            run.update(step)
            if step.every(train.log_every) or step.first or step.last or step.skipped:
                run.recorder.log(step)
            if step.trouble:
                break
            if step.every(train.evaluate_every) or step.last:
                run.evaluate(step)
            ending = step.last or bool(run.stopping) or run.recorder.should_stop
            if run.checkpoints.is_due(step) or ending:
                run.save(step, ending)
            if ending:
                break
    return step


@dataclass(slots=True, kw_only=True)
class Run:
    """One process's share of a run: what is trained, on what, and what is kept, written and shown of it."""

    setup: Setup
    batches: Batches
    recorder: Recorder
    checkpoints: Checkpoints
    screen: ProgressLine
    heap: allocator.Heap = field(default_factory=lambda: allocator.Heap(memory_check.held_bytes))

    @property
    def stopping(self) -> int:
        """Number of the signal that asked any process to stop, or 0."""
        return self.setup.policy.group.stopping

    def update(self, step: Step) -> None:
        """Count a step and show it; a save that failed meanwhile raises here."""
        self.recorder.count(step)
        self.screen.saved = self.checkpoints.check()
        self.screen.update(step)
        self.heap.settle()

    def evaluate(self, step: Step) -> None:
        """Measure the model on what it is not trained on, and show that, unless its weights are spoilt."""
        if not self.is_sound(step, step.last):
            return
        metrics = self.recorder.evaluate(step)
        if metrics is not None and not math.isfinite(loss := metrics.get("loss") or 0.0):
            raise self.setup.policy.guard.useless(step, f"a held-out loss of {loss}")
        if metrics is not None:
            self.screen.heldout(step.number, metrics)

    def is_sound(self, step: Step, ending: bool) -> bool:
        """Whether the weights are finite; refused at the end if not: the checkpoints there are stay."""
        policy = self.setup.policy
        return policy.guard.is_sound(step, self.setup.model.parameters(), policy.group, ending)

    def save(self, step: Step, ending: bool) -> None:
        """Save a checkpoint of a step, which promises the rows of metrics up to it, unless its weights are spoilt."""
        if not self.is_sound(step, ending):
            return
        recorder = self.recorder
        self.checkpoints.save(
            step, tokens=recorder.tokens, seconds=recorder.seconds, scores=recorder.scores, sync=recorder.sync
        )

    def roll_back(self, step: Step) -> int:
        """Go back to before a spike that lasts; gives the step to resume from."""
        state = self.checkpoints.roll_back(step)
        self.recorder.enter(state)
        self.screen.back(state["step"], self.setup.policy.guard.passed[-1])
        return state["step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a call of `pretrain` or `finetune` leaves behind."""

    run: Path
    checkpoint: Path
    step: int
    steps: int
    tokens: int  # without padding, of the whole run
    seconds: float  # of training, of the whole run
    heldout: dict[str, Any] | None  # the last evaluation, where there is held-out text
    resumed: int | None  # the step this call resumed from
    signal: int = 0  # that asked it to stop
    best: int | None = None  # the step whose evaluation was the best
    stopped_early: bool = False  # early stopping: nothing got better any more before the last step
    notes: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.step == self.steps or self.stopped_early


def train_run(
    directory: Path,
    setup: Setup,
    batches: Batches,
    evaluator: Evaluator | None,
    *,
    data: dict[str, Any],
    facts: dict[str, Any],
    view: View,
    publish: Callable[[Result], None] | None = None,
) -> Result:
    """Train in a run directory that nobody else writes to, from its newest checkpoint on or from the beginning.

    `data` and `facts` are what `run_dir.compare` compares; `publish` is called with the result of a finished run.
    """
    group = setup.policy.group
    with atomic_io.hold_lock(directory, "is training into it") if group.main else contextlib.nullcontext():
        # Compared before, and again: only now does nobody else write there.
        record = group.first(lambda: run_dir.compare(directory, setup.recipe, data, facts))
        setup.policy.precision = record["precision"]
        checkpoints = Checkpoints(directory, setup, batches)
        state = checkpoints.restore(record)
        if group.main:
            run_dir.enter(directory, setup.recipe, record)
            setup.tokenizer.save(directory)
        with open_run(directory, state, checkpoints, evaluator, view) as run:
            done = state["step"]
            while not run.recorder.should_stop:
                step = train_until_trouble(run)
                if step is None or not step.trouble:
                    done = done if step is None else step.number
                    break
                done = run.roll_back(step)
        result = _result(directory, setup, run.recorder, done, resumed=state["step"] or None)
        if publish is not None and result.finished:
            publish(result)
        group.leave()
        return result


@contextlib.contextmanager
def open_run(
    directory: Path, state: dict[str, Any], checkpoints: Checkpoints, evaluator: Evaluator | None, view: View
) -> Iterator[Run]:
    """A run that is about to train from a restored state on: its screen, its records and what may ask it to stop."""
    setup, done = checkpoints.setup, state["step"]
    if done < setup.recipe.train.steps and setup.recipe.task is None:
        setup.notes.append(memory_check.describe(setup.recipe, str(setup.policy.device), setup.start.teacher))
    with (
        allocator.giving_back(),
        StopSignal() as stop,
        open_screen(view, setup, directory, done) as screen,
        Recorder(directory, setup, evaluator, writers=view.writers, say=screen.say) as recorder,
        checkpoints.saver,
    ):
        setup.policy.group.asked = lambda: stop.asked
        recorder.enter(state)
        yield Run(setup=setup, batches=checkpoints.batches, recorder=recorder, checkpoints=checkpoints, screen=screen)


def _result(run: Path, setup: Setup, recorder: Recorder, done: int, resumed: int | None) -> Result:
    """What the run leaves behind after step `done`."""
    steps, early = setup.recipe.train.steps, recorder.should_stop
    if early:
        setup.notes.append(f"ended at step {done:,} of {steps:,}: nothing got better any more")
    elif done < steps:
        setup.notes.append(f"stopped at step {done:,} of {steps:,}; run the same command again to resume")
    return Result(
        run=run,
        checkpoint=run / checkpoint.name_of(done),
        step=done,
        steps=steps,
        tokens=recorder.tokens,
        seconds=recorder.seconds,
        heldout=recorder.heldout,
        resumed=resumed,
        signal=setup.policy.group.stopping if done < steps and not early else 0,
        best=recorder.best,
        stopped_early=early,
        notes=setup.notes,
    )
