"""Pretraining from a recipe and prepared text to a run directory: what the command line and Python both call."""

import contextlib
import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console

from clozeworks.core import atomic_io, spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.world import ProcessGroup, is_distributed
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.bundle import Bundle
from clozeworks.machine import doctor
from clozeworks.model import Model
from clozeworks.recipe import Recipe
from clozeworks.starts.word_vectors import describe_start
from clozeworks.train import run_dir
from clozeworks.train.heldout import HeldOutEvaluator
from clozeworks.train.pretraining_batches import PretrainingBatches
from clozeworks.train.resources import allocator
from clozeworks.train.session import Result, Session
from clozeworks.train.teacher import check_teacher, describe_teacher
from clozeworks.train.writers import Writer
from clozeworks.vectors.table import Vectors

__all__ = ["Result", "Session", "choose_precision", "fit_to_data", "open_data", "open_session", "pretrain"]

StrPath = str | os.PathLike[str]


def pretrain(
    recipe: Recipe,
    data: Sequence[tuple[StrPath, float]],
    out: StrPath,
    *,
    source: Model | None = None,
    teacher: Bundle | None = None,
    device: str = "auto",
    progress: bool = True,
    console: Console | None = None,
    writers: Sequence[Writer] = (),
    words: Vectors | None = None,
) -> Result:
    """Train a recipe on prepared directories with their weights; go on by itself where `out` has a checkpoint.

    `source` is a model whose weights the run starts from, `teacher` one that the losses compare with; `words` are
    vectors that the table of words starts from; `writers` get the rows of metrics.jsonl, too. Ctrl-C and SIGTERM
    finish the step, save and return; SIGUSR1 says on standard error where the run is. What can be refused is refused
    before anything is written: a new run leaves nothing behind, an old one stays as it was.

    Started by torchrun, it is one process of several: all train, and the first of them writes, shows and evaluates.
    """
    if not isinstance(out, str | os.PathLike):
        raise InputError("out", repr(out), "the directory of the run is needed", "give a path")
    allocator.keep_freed()
    world = join_processes(recipe, device)
    with world.together():
        corpora, tokenizer = open_data(data, verify="hash" if world.main else "size")
        recipe = fit_to_data(recipe, tokenizer, source)
        notes = check_teacher(recipe, tokenizer, teacher)
        device = world.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        run = Path(out)
        facts = {"precision": choose_precision(recipe, device), "source": describe_start(source, words)}
        facts |= {"teacher": describe_teacher(teacher)}
        now = run_dir.describe_corpora(corpora)
        world.first(lambda: run_dir.compare(run, recipe, now, facts))
        session = open_session(recipe, corpora, tokenizer, run, device, source, world, teacher, words)
        session.notes += notes
        with atomic_io.hold_lock(run, "is training into it") if world.main else contextlib.nullcontext():
            # Again: only now does nobody else write there.
            record = world.first(lambda: run_dir.compare(run, recipe, now, facts))
            state = session.restore(record)
            if world.main:
                run_dir.enter(run, recipe, record)
                tokenizer.save(run)
            result = session.train(state, record["precision"], progress, console, writers)
            world.leave()
            return result


def join_processes(recipe: Recipe, device: str) -> ProcessGroup:
    """The processes that train together: those the environment tells of, or this one alone."""
    if is_distributed():
        from clozeworks.train import distributed

        return distributed.join(recipe.train.parallel, device)
    if recipe.train.processes > 1:
        needed, todo = "so many processes have to be started", "use clozeworks pretrain or torchrun, or set it to 1"
        raise RecipeError(f"{recipe.name}.train.processes", recipe.train.processes, needed, todo)
    return ProcessGroup()


def open_session(
    recipe: Recipe,
    corpora: list[tuple[Corpus, float]],
    tokenizer: Tokenizer,
    run: Path,
    device: str,
    source: Model | None = None,
    world: ProcessGroup | None = None,
    teacher: Bundle | None = None,
    words: Vectors | None = None,
) -> Session:
    """A session on text."""
    world, vocabulary = world or ProcessGroup(), tokenizer.vocabulary()
    feed = PretrainingBatches(recipe, corpora, vocabulary, share=(world.rank, world.size))
    held_out = HeldOutEvaluator(recipe, corpora, vocabulary, "hash" if world.main else "size")
    return Session(recipe, feed, held_out, tokenizer, run, device, source, world, teacher, words)


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


def fit_to_data(recipe: Recipe, tokenizer: Tokenizer, source: Model | None = None) -> Recipe:
    """A copy of the recipe with the vocabulary of the data, checked before anything is allocated."""
    recipe = copy.deepcopy(recipe)
    recipe.encoder.vocab = tokenizer.size
    if source is not None:
        rows = source.encoder.embed.words.vocab
        if rows < tokenizer.size:
            raise InputError("--from", f"a model of {rows:,} tokens", f"the data's tokenizer has {tokenizer.size:,}",
                             "prepare the data with the model's own tokenizer, or add rows to the model")  # fmt: skip
        recipe.encoder.vocab = rows
    spec.check(recipe, recipe.name)
    if not recipe.objective.losses:  # a bare encoder is a sound recipe, with nothing to train it by
        where = f"{recipe.name}.objective.losses"
        raise RecipeError(where, "[]", "at least one loss is needed to train", "give one, for example [MaskedLM]")
    for index, loss in enumerate(recipe.objective.losses):
        if "rows" in loss.reads:
            where, needed = f"{recipe.name}.objective.losses.{index}", "it reads labelled rows, and text has none"
            raise RecipeError(where, type(loss).__name__, needed, "remove it")
    return recipe


def choose_precision(recipe: Recipe, device: str) -> str:
    """The recipe's, or for auto what this machine was found good at."""
    if recipe.train.precision != "auto":
        return recipe.train.precision
    if device.startswith("cuda"):
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return (doctor.remembered() or doctor.default()).precision if device == "cpu" else "fp32"
