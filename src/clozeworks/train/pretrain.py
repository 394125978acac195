"""Pretraining from a recipe and prepared text to a run directory: what the command line and Python both call."""

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console

from clozeworks.core import spec
from clozeworks.core.bounds import GREATEST, Bound
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.process_group import ProcessGroup, is_distributed
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.bundle import Bundle
from clozeworks.machine import doctor
from clozeworks.model import Model
from clozeworks.recipe import Recipe
from clozeworks.starts.word_vectors import describe_start
from clozeworks.train import run_dir
from clozeworks.train.heldout_evaluator import HeldOutEvaluator
from clozeworks.train.pretraining_batches import PretrainingBatches
from clozeworks.train.resources import allocator
from clozeworks.train.run import Result, train_run
from clozeworks.train.screen.view import View
from clozeworks.train.startup.setup import Start, set_up
from clozeworks.train.teacher import check_teacher, describe_teacher, fit_to_teacher
from clozeworks.train.writers import Writer
from clozeworks.vectors.table import Vectors

StrPath = str | os.PathLike[str]
WEIGHTS = Bound(0, GREATEST, above=True)  # of texts in a mixture


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
    """Train a recipe on prepared directories with their weights; resume by itself where `out` has a checkpoint.

    `source` is a model whose weights the run starts from, `teacher` one that the losses compare with; `words` are
    vectors that the table of words starts from; `writers` get the rows of metrics.jsonl, too. Ctrl-C and SIGTERM
    finish the step, save and return; SIGUSR1 says on standard error where the run is. What can be refused is refused
    before anything is written: a new run leaves nothing behind, an old one stays as it was.

    Started by torchrun, it is one process of several: all train, and the first of them writes, shows and evaluates.
    """
    if not isinstance(out, str | os.PathLike):
        raise InputError("out", repr(out), "the directory of the run is needed", "give a path")
    allocator.keep_freed()
    group = join_processes(recipe, device)
    with group.together():
        verify = "hash" if group.main else "size"
        corpora, tokenizer = open_data(data, verify)
        recipe = fit_to_teacher(fit_to_data(recipe, tokenizer, source), teacher)
        notes = check_teacher(recipe, tokenizer, teacher)
        device = group.device(pick_device(device))
        run, texts = Path(out), run_dir.describe_corpora(corpora)
        facts = {
            "precision": choose_precision(recipe, device),
            "source": describe_start(source, words),
            "teacher": describe_teacher(teacher),
        }
        group.first(lambda: run_dir.compare(run, recipe, texts, facts))
        vocabulary = tokenizer.vocabulary()
        batches = PretrainingBatches(recipe, corpora, vocabulary, share=(group.rank, group.size))
        evaluator = HeldOutEvaluator(recipe, corpora, vocabulary, verify)
        start = Start(source=source, teacher=teacher, words=words)
        setup = set_up(run, recipe, tokenizer, batches, device=device, start=start, group=group)
        setup.notes += [*evaluator.notes, *batches.notes, *notes]
        view = View(progress=progress, console=console, writers=writers)
        return train_run(run, setup, batches, evaluator, data=texts, facts=facts, view=view)


def join_processes(recipe: Recipe, device: str) -> ProcessGroup:
    """The processes that train together: those the environment names, or this one alone."""
    if is_distributed():
        from clozeworks.train import distributed

        return distributed.join(recipe.train.parallel, device)
    if recipe.train.processes > 1:
        needed, todo = "so many processes have to be started", "use clozeworks pretrain or torchrun, or set it to 1"
        raise RecipeError(f"{recipe.name}.train.processes", recipe.train.processes, needed, todo)
    return ProcessGroup()


def open_data(
    data: Sequence[tuple[StrPath, float]], verify: Literal["size", "hash"] = "hash"
) -> tuple[list[tuple[Corpus, float]], Tokenizer]:
    """The training splits, every byte verified unless only sizes are asked for, and the one tokenizer they share."""
    if not data:
        raise InputError("--data", "nothing", "at least one prepared directory is needed", "see clozeworks prepare")
    for directory, weight in data:
        if not WEIGHTS.holds(weight):
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
    losses = recipe.objective.losses
    if all(loss.regularizer for loss in losses):  # a bare encoder is a sound recipe, with nothing to train it by
        where, given = f"{recipe.name}.objective.losses", ", ".join(type(loss).__name__ for loss in losses) or "[]"
        needed = "at least one loss that predicts is needed to train"
        raise RecipeError(where, given, needed, "give one, for example [MaskedLM]")
    for index, loss in enumerate(recipe.objective.losses):
        if "rows" in loss.needs.reads:
            where, needed = f"{recipe.name}.objective.losses.{index}", "it reads labelled rows, and text has none"
            raise RecipeError(where, type(loss).__name__, needed, "remove it")
    return recipe


def pick_device(name: str) -> str:
    """The device of this name; auto is an accelerator where there is one."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def choose_precision(recipe: Recipe, device: str) -> Literal["fp32", "bf16"]:
    """The recipe's, or for auto what suits this machine: bf16 is mixed precision."""
    if recipe.train.precision != "auto":
        return recipe.train.precision
    if device.startswith("cuda"):
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return doctor.current().precision if device == "cpu" else "fp32"
