"""Pretraining from a recipe and prepared text to a run directory: what the command line and Python both call."""

import contextlib
import copy
import functools
import itertools
import os
import shlex
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console

from clozeworks import atomic, doctor, spec
from clozeworks.batch import Batch
from clozeworks.data.shards import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.errors import InputError, RecipeError
from clozeworks.evaluate import heldout
from clozeworks.model import Model
from clozeworks.pretraining import Recipe
from clozeworks.recall import Recall
from clozeworks.train import allocator, checkpoint, folder, log, optim, room, together
from clozeworks.train.feed import Feed
from clozeworks.train.guard import Watch
from clozeworks.train.guess import Guesser
from clozeworks.train.loop import Step, fit
from clozeworks.train.progress import Line
from clozeworks.train.saving import Saver
from clozeworks.train.schedule import rate
from clozeworks.train.source import Learned, begun, digest
from clozeworks.train.stop import Question, Stop
from clozeworks.train.teacher import expect, recorded, teacher_of
from clozeworks.train.world import World, several
from clozeworks.train.writers import Writer, Writers

EVALUATED = 131_072  # held-out tokens an evaluation reads at most
BEGINNING = {"step": 0, "tokens": 0, "seconds": 0.0, "position": None, "guard": {}}

StrPath = str | os.PathLike[str]
Rows = log.Metrics | log.Unwritten


@dataclass(frozen=True, slots=True)
class Result:
    """What a call of `pretrain` leaves behind."""

    run: Path
    checkpoint: Path
    step: int
    steps: int
    tokens: int  # without padding, of the whole run
    seconds: float  # of training, of the whole run
    heldout: dict[str, Any] | None  # the last evaluation, where there is held-out text
    resumed: int | None  # the step this call went on from
    signal: int = 0  # that asked it to stop
    notes: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.step == self.steps


def pretrain(
    recipe: Recipe,
    data: Sequence[tuple[StrPath, float]],
    out: StrPath,
    *,
    source: Model | None = None,
    teacher: Learned | None = None,
    device: str = "auto",
    progress: bool = True,
    console: Console | None = None,
    writers: Sequence[Writer] = (),
) -> Result:
    """Train a recipe on prepared directories with their weights; go on by itself where `out` has a checkpoint.

    `source` is a model whose weights the run starts from, `teacher` one that the losses compare with; `writers` get the
    rows of metrics.jsonl, too. Ctrl-C and SIGTERM finish the step, save and return; SIGUSR1 says on standard
    error where the run is. What can be refused is refused before anything is written: a new run leaves nothing behind,
    an old one stays as it was.

    Started by torchrun, it is one process of several: all train, and the first of them writes, shows and evaluates.
    """
    if not isinstance(out, str | os.PathLike):
        raise InputError("out", repr(out), "the directory of the run is needed", "give a path")
    allocator.keep_freed()
    world = join(recipe, device)
    with world.together():
        corpora, tokenizer = open_data(data, verify="hash" if world.main else "size")
        recipe = fitted(recipe, tokenizer, source)
        notes = expect(recipe, tokenizer, teacher)
        device = world.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        run = Path(out)
        facts = {"precision": precision_of(recipe, device), "source": source and digest(source)}
        facts |= {"teacher": recorded(teacher)}
        world.first(lambda: folder.compare(run, recipe, corpora, facts))
        session = Session(recipe, corpora, tokenizer, run, device, source, world, teacher)
        session.notes += notes
        with atomic.held(run, "is training into it") if world.main else contextlib.nullcontext():
            # Again: only now does nobody else write there.
            record = world.first(lambda: folder.compare(run, recipe, corpora, facts))
            state = session.restore(record)
            if world.main:
                folder.enter(run, recipe, record)
                tokenizer.save(run)
            result = session.train(state, record["precision"], progress, console, writers)
            world.leave()
            return result


def join(recipe: Recipe, device: str) -> World:
    """The processes that train together: those the environment tells of, or this one alone."""
    if several():
        from clozeworks.train import distributed

        return distributed.join(recipe.train.parallel, device)
    if recipe.train.processes > 1:
        needed, todo = "so many processes have to be started", "use clozeworks pretrain or torchrun, or set it to 1"
        raise RecipeError(f"{recipe.name}.train.processes", recipe.train.processes, needed, todo)
    return World()


class Session:
    """One process's share of a run."""

    def __init__(
        self,
        recipe: Recipe,
        corpora: list[tuple[Corpus, float]],
        tokenizer: Tokenizer,
        run: Path,
        device: str,
        source: Model | None = None,
        world: World | None = None,
        teacher: Learned | None = None,
    ):
        self.recipe, self.corpora, self.run, self.device, self.source = recipe, corpora, run, device, source
        self.world, self.recall = world or World(), Recall()
        self.tokenizer, self.vocabulary = tokenizer, tokenizer.vocabulary()
        self.feed = Feed(recipe, corpora, self.vocabulary, share=(self.world.rank, self.world.size))
        if not (run / folder.RUN).exists():
            rehearse(self.feed)
        self.taught, self.teacher = teacher, teacher_of(teacher, recipe, device)
        self.model, self.notes = begun(recipe, source, teacher)
        self.model.to(device)
        self.model.encoder.stack.recompute = recipe.train.recompute
        if recipe.train.compile:
            compiled(self.model)
        if not run.exists():
            checkpoint.expect_room(run, self.model, together.remembered_bytes(recipe))
        self.world.place(self.model)
        self.adam = optim.optimizer(self.model, recipe.train.optimizer, recipe.train.learning_rate)
        borders = [end for end, _ in self.feed.phases]
        look = f"clozeworks examples --run {shlex.quote(str(run))} --step"
        self.watch = Watch(recipe.train.guard, borders, look)
        self.texts = self.heldout_texts()
        self.notes += self.feed.notes

    def train(
        self,
        state: dict[str, Any],
        precision: Literal["fp32", "bf16"],
        progress: bool,
        console: Console | None,
        writers: Sequence[Writer] = (),
    ) -> Result:
        train, model, texts = self.recipe.train, self.model, self.texts
        start, world, main = state["step"], self.world, self.world.main
        measures = main or world.sharded  # shards are gathered by all, or by none
        past = self.enter(state)
        pace = log.Pace()
        with contextlib.ExitStack() as closing:
            stop = closing.enter_context(Stop())
            world.asked = lambda: stop.asked
            metrics = log.Metrics(self.run / folder.METRICS, start) if main else log.Unwritten()
            closing.enter_context(contextlib.closing(metrics))
            saver = closing.enter_context(Saver(self.run, start))
            guesser = Guesser(model, self.tokenizer, iter(()))
            look = None if world.sharded else guesser.look  # of a shard, all would have to look
            line = Line(train.steps, start, console if main else Console(quiet=True), progress and main, look, past)
            closing.enter_context(contextlib.closing(line))
            closing.enter_context(Question(line.answer if main else lambda: None))
            others = closing.enter_context(contextlib.closing(Writers(writers if main else (), line.say)))
            if start < train.steps:
                self.notes.append(room.told(self.recipe, self.device, self.taught))
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
                    row = log.row_of(step, self.tokens, pace.take())
                    metrics.write(row)
                    others.write(row)
                if step.trouble:
                    continue
                if texts and measures and (step.last or step.every(train.evaluate_every)):
                    self.figures = heldout.measure(model, self.heldout_batches(texts), self.teacher)
                    world.scatter(model)
                    self.losses[step.number] = self.figures["loss"]
                    row = {"step": step.number, "split": "heldout", **self.figures}
                    metrics.write(row)
                    others.write(row)
                    line.heldout(step.number, self.figures)
                due = due or step.every(train.save_every)
                if step.last or world.stopping or (due and not self.watch.level):  # not in the middle of trouble
                    self.save(saver, step.number, metrics)
                    due = False
                if world.stopping:
                    break
        done = step.number if step else start
        if done < train.steps:
            self.notes.append(f"stopped at step {done:,} of {train.steps:,}; run the same command again to go on")
        path, asked = self.run / checkpoint.name_of(done), world.stopping if done < train.steps else 0
        resumed, notes = start or None, self.notes
        return Result(self.run, path, done, train.steps, self.tokens, self.seconds, self.figures, resumed, asked, notes)

    def enter(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """Take up the run at a state; gives the rows up to it."""
        rows = log.read(self.run / folder.METRICS) if self.world.main else []
        rows = [row for row in rows if row["step"] <= state["step"]]
        self.tokens, self.seconds, self.figures = state["tokens"], state["seconds"], last_figures(rows)
        measured = [row for row in rows if row.get("split") == "heldout" and row.get("loss") is not None]
        self.losses = {row["step"]: row["loss"] for row in measured}
        self.feed.start = state["step"]
        self.feed.position = state["position"] or {"phase": 0, "place": None}
        self.watch.load(state.get("guard", {}))
        return rows

    def steps(
        self, precision: Literal["fp32", "bf16"], guesser: Guesser, metrics: Rows, saver: Saver, line: Line
    ) -> Generator[Step]:
        """The steps of the run; where the guard goes back, those after a checkpoint once more."""
        train = self.recipe.train
        while True:
            step = None
            with contextlib.closing(iter(self.feed)) as batches:  # pyright: ignore[reportArgumentType]
                guesser.batches = batches
                for step in fit(
                    self.model,
                    guesser,
                    self.adam,
                    functools.partial(rate, train=train),
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
        found = together.find(self.world, self.run, upto=passed[-1]["begin"] - 1).checkpoint
        if found is None and self.source is None and folder.read(self.run)["source"]:
            raise InputError(self.run, f"trouble at step {passed[-1]['first']:,}, before any checkpoint",
                             "it goes back to the model it was begun from", "give the same --from again")  # fmt: skip
        state = found.state if found else dict(BEGINNING)
        if self.world.main:
            checkpoint.drop_after(self.run, state["step"])
        if found:
            together.restore(self.world, found, self.model, self.adam, self.recall)
        else:
            self.recall.forget()
            fresh, _ = begun(self.recipe, self.source, self.taught)
            together.begin(self.world, fresh, self.model, self.adam)
        self.enter({**state, "guard": {**state.get("guard", {}), "passed": passed}})
        return state["step"]

    def restore(self, record: dict[str, Any]) -> dict[str, Any]:
        """The state to go on from: that of the newest checkpoint that verifies, or the beginning."""
        found = together.find(self.world, self.run)
        if record["source"] and self.source is None and found.checkpoint is None:
            raise InputError(self.run, "no checkpoint yet", "it was begun from a model", "give the same --from again")
        self.notes += [f"damaged checkpoint passed over: {reason}" for reason in found.damaged]
        if found.checkpoint is None:
            if found.damaged:
                raise InputError(self.run, "; ".join(found.damaged), "a sound checkpoint is needed to go on",
                                 "restore one from a copy, or move the directory away to begin again")  # fmt: skip
            checkpoint.expect_room(self.run, self.model, together.remembered_bytes(self.recipe))
            return dict(BEGINNING)
        state = found.checkpoint.state
        if state["recipe"] != folder.fingerprint(self.recipe):
            raise InputError(found.checkpoint.path, "a checkpoint of another recipe", "it must be of this run",
                             "move it away")  # fmt: skip
        together.restore(self.world, found.checkpoint, self.model, self.adam, self.recall)
        if state["step"] < self.recipe.train.steps:
            checkpoint.expect_room(self.run, self.model, together.remembered_bytes(self.recipe))
            self.notes.append(f"going on from step {state['step']:,}")
        else:
            self.notes.append(
                f"{self.run} was finished already, all {state['step']:,} steps of it; "
                f"to train it further, begin another run: --from {shlex.quote(str(self.run))} --out NEW"
            )
        return state

    def save(self, saver: Saver, step: int, metrics: Rows) -> None:
        """Replicas are alike, so the main process saves beside the training; shards stop until all have written."""
        state = {
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "position": self.feed.position,
            "guard": self.watch.state(),
            "recipe": folder.fingerprint(self.recipe),
            "versions": folder.versions(),
        }
        keep = functools.partial(
            self.recipe.train.keep.choose, losses=dict(self.losses), anchor=self.watch.anchor(step)
        )
        tensors = together.tensors_of(self.model, self.adam)
        files = {**folder.model_files(self.run), **together.remembered(self.world, self.recall)}
        # The checkpoint promises the rows up to its step: they are on the disk before it has its name.
        if self.world.sharded:
            metrics.sync()
            together.save(self.world, self.run, step, tensors, state, files)
            saver.durable = step
            if self.world.main:
                checkpoint.prune(self.run, step, keep)
        elif self.world.main:
            saver.save(step, tensors, state, files, before=metrics.sync, keep=keep)

    def heldout_texts(self) -> list[Corpus]:
        """The held-out splits that have at least one example; it is no fault to have none."""
        texts = []
        for corpus, _ in self.corpora:
            if "heldout" not in corpus.manifest["splits"]:
                self.notes.append(f"no evaluation on {corpus.directory}: no document was held out")
                continue
            text = Corpus.open(corpus.directory, "heldout", verify="hash" if self.world.main else "size")
            try:
                next(heldout.batches(text, self.recipe.objective, self.vocabulary))
                texts.append(text)
            except InputError as error:  # too little text for an example of this objective
                self.notes.append(f"no evaluation on {corpus.directory}: held out is {error.given}; {error.needed}")
        return texts

    def heldout_batches(self, texts: list[Corpus]) -> Iterator[Batch]:
        size = self.recipe.train.micro_tokens or self.recipe.train.batch_tokens
        limit = EVALUATED // len(texts)
        return itertools.chain.from_iterable(
            heldout.batches(text, self.recipe.objective, self.vocabulary, batch_tokens=size, limit_tokens=limit)
            for text in texts
        )


def compiled(model: Model) -> None:
    """Have torch compile each block on its first call, all by the same graph.

    On CPU it repays nothing (docs/benchmarks.md): products are as fast as before, and attention with dropout takes the
    dense path, since the borders of packed documents are other integers in every batch.
    """
    for block in model.encoder.stack.blocks:
        block.compile()


def last_figures(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    heldout = [row for row in rows if row.get("split") == "heldout"]
    return {name: value for name, value in heldout[-1].items() if name not in ("step", "split")} if heldout else None


def rehearse(feed: Feed) -> None:
    """Make the first example of every phase and corpus: text that does not suit the objective is refused here."""
    for loader in feed.loaders:
        for source in loader.sources:
            source.epoch(0).examples(np.zeros(1, dtype=np.int64))


def open_data(
    data: Sequence[tuple[StrPath, float]], verify: Literal["size", "hash"] = "hash"
) -> tuple[list[tuple[Corpus, float]], Tokenizer]:
    """The training splits, every byte verified unless only sizes are asked for, and the one tokenizer they share."""
    if not data:
        raise InputError("--data", "nothing", "at least one prepared directory is needed", "see clozeworks prepare")
    for directory, weight in data:
        if not weight > 0:
            raise InputError(f"--data {directory}", weight, "a share above 0 is needed", "change it or leave it out")
    corpora = [(Corpus.open(directory, "train", verify=verify), float(weight)) for directory, weight in data]
    first = corpora[0][0]
    for corpus, _ in corpora[1:]:
        if corpus.tokenizer_fingerprint != first.tokenizer_fingerprint:
            raise InputError(corpus.directory, f"another tokenizer than {first.directory} has",
                             "corpora of one run share one tokenizer",
                             f"prepare it again with --tokenizer {first.directory}")  # fmt: skip
    tokenizer = Tokenizer.load(first.directory)
    if tokenizer.fingerprint != first.tokenizer_fingerprint:
        given = "its tokenizer is not the one its shards were made with"
        todo = "restore tokenizer.json or prepare the text again"
        raise InputError(first.directory, given, "token ids must keep their meaning", todo)
    return corpora, tokenizer


def fitted(recipe: Recipe, tokenizer: Tokenizer, source: Model | None = None) -> Recipe:
    """A copy of the recipe with the vocabulary of the data, checked before anything is allocated."""
    recipe = copy.deepcopy(recipe)
    recipe.encoder.vocab = tokenizer.size
    if source is not None:
        rows = source.encoder.embed.words.table.num_embeddings
        if rows < tokenizer.size:
            raise InputError("--from", f"a model of {rows:,} tokens", f"the data's tokenizer has {tokenizer.size:,}",
                             "prepare the data with the model's own tokenizer, or add rows to the model")  # fmt: skip
        recipe.encoder.vocab = rows
    spec.check(recipe, recipe.name)
    if not recipe.objective.losses:  # a bare encoder is a sound recipe, with nothing to train it by
        where = f"{recipe.name}.objective.losses"
        raise RecipeError(where, "[]", "at least one loss is needed to train", "give one, for example [MaskedLM]")
    return recipe


def precision_of(recipe: Recipe, device: str) -> str:
    """The recipe's, or for auto what this machine was found good at."""
    if recipe.train.precision != "auto":
        return recipe.train.precision
    if device.startswith("cuda"):
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return (doctor.remembered() or doctor.default()).precision if device == "cpu" else "fp32"
