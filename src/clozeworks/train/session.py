"""One process's share of a run, whatever feeds it: text or labelled rows."""

import contextlib
import functools
import itertools
import shlex
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from rich.console import Console

from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.core.world import ProcessGroup
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import checkpoint
from clozeworks.exchange.bundle import Bundle
from clozeworks.model import Model
from clozeworks.optim import parameter_groups
from clozeworks.optim.keep import Score
from clozeworks.optim.learning_rate import learning_rate
from clozeworks.optim.unfreezing import GradualUnfreezing
from clozeworks.recipe import Recipe
from clozeworks.starts.prior import begin_prior
from clozeworks.starts.word_vectors import begin_words
from clozeworks.train import metrics_log, run_dir
from clozeworks.train.checkpoint import distributed_checkpoint
from clozeworks.train.checkpoint.saver import Saver
from clozeworks.train.guard import SpikeGuard
from clozeworks.train.loop import Step, fit
from clozeworks.train.resources import allocator, memory_check
from clozeworks.train.screen.guess import SampleGuess
from clozeworks.train.screen.progress import ProgressLine
from clozeworks.train.startup.begin import begin_model
from clozeworks.train.stop import StatusSignal, StopSignal
from clozeworks.train.teacher import make_teacher
from clozeworks.train.writers import Writer, Writers
from clozeworks.vectors.table import Vectors

BEGINNING = {"step": 0, "tokens": 0, "seconds": 0.0, "position": None, "guard": {}}

Rows = metrics_log.Metrics | metrics_log.Unwritten


class Batches(Protocol):
    """The batches of a run from step `start` on; `position` is where the last one given ends."""

    start: int
    position: dict[str, Any]
    notes: list[str]

    @property
    def phase_ends(self) -> list[int]:
        """The last steps of its phases."""
        ...

    def __iter__(self) -> Iterator[list[Batch]]: ...

    def check_first_examples(self) -> None:
        """Refuse data of which no example can be made."""
        ...

    def unigram(self) -> np.ndarray | None:
        """How often its text has each token, [vocabulary]; None: it has none of its own."""
        ...


class Evaluator(Protocol):
    """Figures on what the model is not trained on; of a run without them none is made."""

    notes: list[str]

    def measure(self, model: Model, teach: Callable[[Batch], Batch] | None) -> dict[str, Any]: ...

    def score(self, figures: dict[str, Any]) -> Score:
        """How good they are."""
        ...

    def should_stop(self, judged: dict[int, Score]) -> bool:
        """Whether to stop, after the evaluations at these steps."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a call of `pretrain` or `finetune` leaves behind."""

    run: Path
    checkpoint: Path
    step: int
    steps: int
    tokens: int  # without padding, of the whole run
    seconds: float  # of training, of the whole run
    heldout: dict[str, Any] | None  # the last evaluation, where there is held-out text
    resumed: int | None  # the step this call went on from
    signal: int = 0  # that asked it to stop
    best: int | None = None  # the step whose evaluation was the best
    stopped_early: bool = False  # it ended before its last step, since nothing got better any more
    notes: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.step == self.steps or self.stopped_early


class Session:
    """One process's share of a run."""

    def __init__(
        self,
        recipe: Recipe,
        feed: Batches,
        examiner: Evaluator | None,
        tokenizer: Tokenizer,
        run: Path,
        device: str,
        source: Model | None = None,
        world: ProcessGroup | None = None,
        teacher: Bundle | None = None,
        words: Vectors | None = None,
    ):
        self.recipe, self.feed, self.examiner, self.source = recipe, feed, examiner, source
        self.run, self.device, self.tokenizer = run, device, tokenizer
        self.words, self.begins = words, source is not None or words is not None
        self.world, self.recall = world or ProcessGroup(), SegmentMemory()
        if not (run / run_dir.RUN).exists():
            feed.check_first_examples()
        self.taught, self.teacher = teacher, make_teacher(teacher, recipe, device)
        self.model, self.notes = self.begin()
        self.model.to(device)
        for stack in self.model.stacks:
            stack.recompute = recipe.train.recompute
        if recipe.train.compile:
            compile_blocks(self.model)
        if not run.exists():
            checkpoint.expect_room(run, self.model, distributed_checkpoint.memory_bytes(recipe))
        self.world.place(self.model)
        self.adam = parameter_groups.build_optimizer(self.model, recipe.train.optimizer, recipe.train.learning_rate)
        self.unfreeze = (
            GradualUnfreezing(self.model, recipe.finetune.unfreeze_every)
            if recipe.finetune is not None and recipe.finetune.unfreeze_every
            else None
        )
        look = f"clozeworks examples --run {shlex.quote(str(run))} --step"
        self.watch = SpikeGuard(recipe.train.guard, feed.phase_ends, look)
        self.notes += [*(examiner.notes if examiner is not None else []), *feed.notes]

    def begin(self) -> tuple[Model, list[str]]:
        """The model as the run begins with it, and what to tell of that."""
        model, notes = begin_model(self.recipe, self.source, self.taught, self.tokenizer)
        if self.words is not None:
            notes += begin_words(model, self.tokenizer, self.words, self.recipe.train.seed)
        if self.source is None:
            begin_prior(model, self.recipe.objective.losses, self.feed.unigram())
        return model, notes

    def train(
        self,
        state: dict[str, Any],
        precision: Literal["fp32", "bf16"],
        progress: bool,
        console: Console | None,
        writers: Sequence[Writer] = (),
    ) -> Result:
        train, model, examiner = self.recipe.train, self.model, self.examiner
        start, world, main = state["step"], self.world, self.world.main
        measures = main or world.sharded  # shards are gathered by all, or by none
        past = self.enter(state)
        pace, heap = metrics_log.Pace(), allocator.Heap(memory_check.held_bytes)
        with contextlib.ExitStack() as closing:
            closing.callback(allocator.give_back)
            stop = closing.enter_context(StopSignal())
            world.asked = lambda: stop.asked
            metrics = metrics_log.Metrics(self.run / run_dir.METRICS, start) if main else metrics_log.Unwritten()
            closing.enter_context(contextlib.closing(metrics))
            saver = closing.enter_context(Saver(self.run, start))
            guesser = SampleGuess(model, self.tokenizer, iter(()))
            look = None if world.sharded else guesser.look  # of a shard, all would have to look
            line = ProgressLine(
                train.steps, start, console if main else Console(quiet=True), progress and main, look, past
            )
            closing.enter_context(contextlib.closing(line))
            closing.enter_context(StatusSignal(line.answer if main else lambda: None))
            others = closing.enter_context(contextlib.closing(Writers(writers if main else (), line.say)))
            if start < train.steps and self.recipe.task is None:
                self.notes.append(memory_check.describe(self.recipe, self.device, self.taught))
            for note in self.notes:
                line.say(note)
            step, due = None, False
            steps = self.steps(precision, guesser, metrics, saver, line)
            for step in closing.enter_context(contextlib.closing(steps)):
                self.tokens, self.seconds = self.tokens + step.tokens, self.seconds + step.seconds
                pace.add(step)
                saver.check()
                line.saved = saver.durable
                line.update(step)
                if step.first or step.last or step.skipped or step.every(train.log_every):
                    row = metrics_log.make_row(step, self.tokens, pace.take())
                    metrics.write(row)
                    others.write(row)
                heap.settle()
                if step.trouble:
                    continue
                if examiner and measures and (step.last or step.every(train.evaluate_every)):
                    self.figures = examiner.measure(model, self.teacher)
                    world.scatter(model)
                    self.judged[step.number] = examiner.score(self.figures)
                    row = {"step": step.number, "split": "heldout", **self.figures}
                    metrics.write(row)
                    others.write(row)
                    line.heldout(step.number, self.figures)
                due = due or step.every(train.save_every)
                ending = step.last or world.stopping or self.should_stop
                if ending or (due and not self.watch.level):  # not in the middle of trouble
                    self.save(saver, step.number, metrics)
                    due = False
                if world.stopping or self.should_stop:
                    break
        done = step.number if step else start
        if self.should_stop:
            self.notes.append(f"ended at step {done:,} of {train.steps:,}: nothing got better any more")
        elif done < train.steps:
            self.notes.append(f"stopped at step {done:,} of {train.steps:,}; run the same command again to go on")
        path, asked = self.run / checkpoint.name_of(done), world.stopping if done < train.steps else 0
        return Result(
            self.run,
            path,
            done,
            train.steps,
            self.tokens,
            self.seconds,
            self.figures,
            resumed=start or None,
            signal=0 if self.should_stop else asked,
            best=min(self.judged, key=lambda step: (self.judged[step], step), default=None),
            stopped_early=self.should_stop,
            notes=self.notes,
        )

    @property
    def should_stop(self) -> bool:
        """Whether the evaluations so far say that more steps are of no use."""
        return self.examiner is not None and self.examiner.should_stop(self.judged)

    def enter(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """Take up the run at a state; gives the rows up to it."""
        rows = metrics_log.read(self.run / run_dir.METRICS) if self.world.main else []
        rows = [row for row in rows if row["step"] <= state["step"]]
        self.tokens, self.seconds, self.figures = state["tokens"], state["seconds"], metrics_log.last_metrics(rows)
        measured = [row for row in rows if row.get("split") == "heldout" and row.get("loss") is not None]
        self.judged = {row["step"]: self.examiner.score(row) for row in measured} if self.examiner else {}
        self.feed.start = state["step"]
        self.feed.position = state["position"] or {"phase": 0, "place": None}
        self.watch.load(state.get("guard", {}))
        return rows

    def steps(
        self, precision: Literal["fp32", "bf16"], guesser: SampleGuess, metrics: Rows, saver: Saver, line: ProgressLine
    ) -> Generator[Step]:
        """The steps of the run; where the guard goes back, those after a checkpoint once more."""
        train = self.recipe.train
        while not self.should_stop:
            step = None
            with contextlib.closing(iter(self.feed)) as batches:  # pyright: ignore[reportArgumentType]
                guesser.batches = batches
                for step in fit(
                    self.model,
                    guesser,
                    self.adam,
                    functools.partial(learning_rate, train=train, width=self.recipe.encoder.width),
                    steps=train.steps,
                    start=self.feed.start,
                    clip=train.clip,
                    seed=train.seed,
                    precision=precision,
                    device=self.device,
                    watch=self.watch,
                    world=self.world,
                    teach=self.teacher,
                    recall=self.recall,
                    unfreeze=self.unfreeze,
                ):
                    yield step
                    if step.trouble:
                        break
            if step is None or not step.trouble:
                return
            saver.wait()
            if self.watch.hopeless:
                if self.watch.passed and self.world.main:  # so that the newest checkpoint is a sound one
                    checkpoint.drop_after(self.run, self.watch.passed[-1].begin - 1)
                raise self.watch.diverged(step)
            found = self.go_back()
            metrics.back(found)
            saver.durable = found
            line.back(found, self.watch.passed[-1])

    def go_back(self) -> int:
        """Restore the newest checkpoint from before the trouble, or the beginning, and give its step.

        What comes after is deleted: it belongs to a course that is left.
        """
        passed = [asdict(each) for each in self.watch.passed]
        found = distributed_checkpoint.find(self.world, self.run, upto=passed[-1]["begin"] - 1).checkpoint
        if found is None and not self.begins and run_dir.read(self.run)["source"]:
            given = f"trouble at step {passed[-1]['first']:,}, before any checkpoint"
            needed, todo = "it goes back to what it was begun from", "give the same --from or --word-vectors again"
            raise InputError(self.run, given, needed, todo)
        state = found.state if found else dict(BEGINNING)
        if self.world.main:
            checkpoint.drop_after(self.run, state["step"])
        if found:
            distributed_checkpoint.restore(self.world, found, self.model, self.adam, self.recall)
        else:
            self.recall.forget()
            fresh, _ = self.begin()
            distributed_checkpoint.begin(self.world, fresh, self.model, self.adam)
        self.enter({**state, "guard": {**state.get("guard", {}), "passed": passed}})
        return state["step"]

    def restore(self, record: dict[str, Any]) -> dict[str, Any]:
        """The state to go on from: that of the newest checkpoint that verifies, or the beginning."""
        found = distributed_checkpoint.find(self.world, self.run)
        if record["source"] and not self.begins and found.checkpoint is None:
            needed, todo = "it was begun from a model or vectors", "give the same --from or --word-vectors again"
            raise InputError(self.run, "no checkpoint yet", needed, todo)
        self.notes += [f"damaged checkpoint passed over: {reason}" for reason in found.damaged]
        if found.checkpoint is None:
            if found.damaged:
                raise InputError(self.run, "; ".join(found.damaged), "a sound checkpoint is needed to go on",
                                 "restore one from a copy, or move the directory away to begin again")  # fmt: skip
            checkpoint.expect_room(self.run, self.model, distributed_checkpoint.memory_bytes(self.recipe))
            return dict(BEGINNING)
        state = found.checkpoint.state
        if state["recipe"] != run_dir.fingerprint(self.recipe):
            raise InputError(found.checkpoint.path, "a checkpoint of another recipe", "it must be of this run",
                             "move it away")  # fmt: skip
        distributed_checkpoint.restore(self.world, found.checkpoint, self.model, self.adam, self.recall)
        if state["step"] < self.recipe.train.steps:
            checkpoint.expect_room(self.run, self.model, distributed_checkpoint.memory_bytes(self.recipe))
            self.notes.append(f"going on from step {state['step']:,}")
        else:
            again = "--from" if self.recipe.task is None else "--model"
            self.notes.append(
                f"{self.run} was finished already, all {state['step']:,} steps of it; "
                f"to train it further, begin another run: {again} {shlex.quote(str(self.run))} --out NEW"
            )
        return state

    def save(self, saver: Saver, step: int, metrics: Rows) -> None:
        """Replicas are alike, so the main process saves beside the training; shards stop until all have written."""
        state = {
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "position": self.feed.position,
            "guard": self.watch.state(),
            "recipe": run_dir.fingerprint(self.recipe),
            "versions": run_dir.versions(),
        }
        keep = functools.partial(
            self.recipe.train.keep.choose, judged=dict(self.judged), anchor=self.watch.anchor(step)
        )
        tensors = distributed_checkpoint.gather_tensors(self.model, self.adam)
        files = {**run_dir.model_files(self.run), **distributed_checkpoint.memory_files(self.world, self.recall)}
        # The checkpoint promises the rows up to its step: they are on the disk before it has its name.
        if self.world.sharded:
            metrics.sync()
            distributed_checkpoint.save(self.world, self.run, step, tensors, state, files)
            saver.durable = step
            if self.world.main:
                checkpoint.prune(self.run, step, keep)
        elif self.world.main:
            saver.save(step, tensors, state, files, before=metrics.sync, keep=keep)


def compile_blocks(model: Model) -> None:
    """Have torch compile each block on its first call, all by the same graph.

    On CPU it repays nothing (docs/benchmarks.md): products are as fast as before, and attention with dropout takes the
    dense path, since the borders of packed documents are other integers in every batch.
    """
    for block in itertools.chain.from_iterable(stack.blocks for stack in model.stacks):
        block.compile()
