"""Pretraining from a recipe and prepared text to a run directory: what the command line and Python both call."""

import contextlib
import copy
import functools
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console

from clozeworks import atomic, doctor, spec
from clozeworks.batch import Batch
from clozeworks.data.shards import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.errors import InputError, RecipeError
from clozeworks.evaluate import heldout
from clozeworks.model import Model
from clozeworks.pretraining import Recipe, build
from clozeworks.train import checkpoint, folder, log, optim
from clozeworks.train.feed import Feed
from clozeworks.train.loop import fit
from clozeworks.train.progress import Line
from clozeworks.train.schedule import rate
from clozeworks.train.stop import Stop

EVALUATED = 131_072  # held-out tokens an evaluation reads at most

StrPath = str | os.PathLike[str]


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
    device: str = "auto",
    progress: bool = True,
    console: Console | None = None,
    keep: int = 2,
) -> Result:
    """Train a recipe on prepared directories with their weights; go on by itself where `out` has a checkpoint.

    `source` is a model whose weights the run starts from. Ctrl-C or SIGTERM finish the step, save and return.
    """
    corpora, tokenizer = open_data(data)
    recipe = fitted(recipe, tokenizer, source)
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    run = Path(out)
    with atomic.held(run, "is training into it"):
        facts = {"precision": precision_of(recipe, device), "source": source and digest(source)}
        record = folder.enter(run, recipe, corpora, facts)
        if record["source"] and source is None and checkpoint.newest(run) is None:
            raise InputError(run, "no checkpoint yet", "it was begun from a model", "give the same --from again")
        tokenizer.save(run)
        return Session(recipe, corpora, tokenizer, run, device, record["precision"], keep).train(
            source, progress, console
        )


class Session:
    """One process's share of a run."""

    def __init__(
        self,
        recipe: Recipe,
        corpora: list[tuple[Corpus, float]],
        tokenizer: Tokenizer,
        run: Path,
        device: str,
        precision: Literal["fp32", "bf16"],
        keep: int,
    ):
        self.recipe, self.corpora, self.run, self.device, self.keep = recipe, corpora, run, device, keep
        self.precision: Literal["fp32", "bf16"] = precision
        self.vocabulary = tokenizer.vocabulary()
        self.notes: list[str] = []

    def train(self, source: Model | None, progress: bool, console: Console | None) -> Result:
        train = self.recipe.train
        model = build(self.recipe)
        if source is not None:
            self.notes += transfer(source, model)
        model.to(self.device)
        adam = optim.optimizer(model, train.optimizer, train.learning_rate)
        state = self.restore(model, adam)
        start, tokens, seconds = state["step"], state["tokens"], state["seconds"]
        if start < train.steps:
            checkpoint.expect_room(self.run, model)
        figures = self.last_figures(start)
        texts = self.heldout_texts()

        feed = Feed(self.recipe, self.corpora, self.vocabulary, start, state["position"])
        self.notes += feed.notes
        pace = log.Pace()
        with contextlib.ExitStack() as closing:
            stop = closing.enter_context(Stop())
            metrics = closing.enter_context(contextlib.closing(log.Metrics(self.run / folder.METRICS, start)))
            line = closing.enter_context(contextlib.closing(Line(train.steps, start, console, progress)))
            batches = closing.enter_context(contextlib.closing(iter(feed)))  # pyright: ignore[reportArgumentType]
            for note in self.notes:
                line.say(note)
            step = None
            for step in fit(
                model,
                batches,
                adam,
                functools.partial(rate, train=train),
                steps=train.steps,
                start=start,
                clip=train.clip,
                seed=train.seed,
                precision=self.precision,
                device=self.device,
            ):
                tokens, seconds = tokens + step.tokens, seconds + step.seconds
                pace.add(step)
                line.update(step)
                if step.first or step.last or step.skipped or step.every(train.log_every):
                    metrics.write(log.row_of(step, tokens, pace.take()))
                if texts and (step.last or step.every(train.evaluate_every)):
                    figures = heldout.measure(model, self.heldout_batches(texts))
                    metrics.write({"step": step.number, "split": "heldout", **figures})
                    line.heldout(step.number, figures)
                if step.last or step.every(train.save_every) or stop.asked:
                    metrics.sync()  # before the checkpoint, which promises the rows up to its step
                    self.save(model, adam, step.number, tokens, seconds, feed.position)
                if stop.asked:
                    break
        done = step.number if step else start
        if done < train.steps:
            self.notes.append(f"stopped at step {done:,} of {train.steps:,}; run the same command again to go on")
        path = self.run / checkpoint.name_of(done)
        return Result(self.run, path, done, train.steps, tokens, seconds, figures, start or None, self.notes)

    def restore(self, model: Model, adam: torch.optim.Optimizer) -> dict[str, Any]:
        """The state to go on from: that of the newest checkpoint that verifies, or the beginning."""
        found = checkpoint.find(self.run)
        self.notes += [f"damaged checkpoint passed over: {reason}" for reason in found.damaged]
        if found.checkpoint is None:
            if found.damaged:
                raise InputError(self.run, "; ".join(found.damaged), "a sound checkpoint is needed to go on",
                                 "restore one from a copy, or move the directory away to begin again")  # fmt: skip
            return {"step": 0, "tokens": 0, "seconds": 0.0, "position": None}
        state = found.checkpoint.state
        if state["recipe"] != folder.fingerprint(self.recipe):
            raise InputError(found.checkpoint.path, "a checkpoint of another recipe", "it must be of this run",
                             "move it away")  # fmt: skip
        checkpoint.restore(found.checkpoint, model)
        optim.restore(model, adam, found.checkpoint.tensors(checkpoint.OPTIMIZER))
        self.notes.append(f"going on from step {state['step']:,}")
        return state

    def save(
        self,
        model: Model,
        adam: torch.optim.Optimizer,
        step: int,
        tokens: int,
        seconds: float,
        position: dict[str, Any],
    ) -> None:
        tensors = {checkpoint.MODEL: dict(model.named_parameters()), checkpoint.OPTIMIZER: optim.state_of(model, adam)}
        state = {
            "tokens": tokens,
            "seconds": round(seconds, 3),
            "position": position,
            "recipe": folder.fingerprint(self.recipe),
            "versions": folder.versions(),
        }
        checkpoint.save(self.run, step, tensors, state, self.keep)

    def heldout_texts(self) -> list[Corpus]:
        """The held-out splits that have at least one example; it is no fault to have none."""
        texts = []
        for corpus, _ in self.corpora:
            if "heldout" not in corpus.manifest["splits"]:
                self.notes.append(f"no evaluation on {corpus.directory}: no document was held out")
                continue
            text = Corpus.open(corpus.directory, "heldout", verify="hash")
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

    def last_figures(self, step: int) -> dict[str, Any] | None:
        rows = [r for r in log.read(self.run / folder.METRICS) if r.get("split") == "heldout" and r["step"] <= step]
        return {name: value for name, value in rows[-1].items() if name not in ("step", "split")} if rows else None


def open_data(data: Sequence[tuple[StrPath, float]]) -> tuple[list[tuple[Corpus, float]], Tokenizer]:
    """The training splits, every byte verified, and the one tokenizer they share."""
    if not data:
        raise InputError("--data", "nothing", "at least one prepared directory is needed", "see clozeworks prepare")
    for directory, weight in data:
        if not weight > 0:
            raise InputError(f"--data {directory}", weight, "a share above 0 is needed", "change it or leave it out")
    corpora = [(Corpus.open(directory, "train", verify="hash"), float(weight)) for directory, weight in data]
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
    if recipe.train.processes != 1:
        where = f"{recipe.name}.train.processes"
        raise RecipeError(where, recipe.train.processes, "training runs in one process so far", "use 1")
    return recipe


def precision_of(recipe: Recipe, device: str) -> str:
    """The recipe's, or for auto what this machine was found good at."""
    if recipe.train.precision != "auto":
        return recipe.train.precision
    if device.startswith("cuda"):
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return (doctor.remembered() or doctor.default()).precision if device == "cpu" else "fp32"


def transfer(source: Model, model: Model) -> list[str]:
    """Copy weights by name. The encoder must be there in full; a head the source lacks starts fresh and is named."""
    theirs, fresh = dict(source.named_parameters()), []
    for name, parameter in model.named_parameters():
        there = theirs.get(name)
        if there is not None and there.shape == parameter.shape:
            parameter.data.copy_(there)
        elif name.startswith("encoder.") and not name.startswith("encoder.pooler."):
            given = "nothing" if there is None else f"a shape of {tuple(there.shape)}"
            raise InputError(f"--from, {name}", given, f"the recipe has {tuple(parameter.shape)}",
                             "take the recipe of that model")  # fmt: skip
        else:
            fresh.append(".".join(name.split(".")[:2]))
    return [f"fresh weights for what the source lacks: {', '.join(dict.fromkeys(fresh))}"] if fresh else []


def digest(model: Model) -> str:
    """SHA-256 of the weights."""
    total = hashlib.sha256()
    for name, parameter in model.named_parameters():
        total.update(name.encode())
        total.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
