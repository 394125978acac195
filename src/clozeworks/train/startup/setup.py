"""What a run trains, and how: the model as it begins, its optimizer, its learning rates, its policy."""

import functools
import itertools
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from clozeworks.core.process_group import ProcessGroup
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import checkpoint
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.char_vocab import spell
from clozeworks.model import Model
from clozeworks.optim.learning_rate import learning_rate
from clozeworks.optim.parameter_groups import build_optimizer
from clozeworks.optim.unfreezing import GradualUnfreezing
from clozeworks.recipe import Recipe, begin, build
from clozeworks.starts.transfer import take_layers, transfer
from clozeworks.starts.word_vectors import begin_words
from clozeworks.train import run_dir
from clozeworks.train.checkpoint.distributed_checkpoint import memory_bytes
from clozeworks.train.guard import SpikeGuard
from clozeworks.train.loop import Policy
from clozeworks.train.protocols import Batches
from clozeworks.train.teacher import describe_vectors, make_teacher
from clozeworks.vectors.table import Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the weights of a run begin from: a model, a teacher's layers, word vectors, or nothing at all."""

    source: Model | None = None
    teacher: Bundle | None = None
    words: Vectors | None = None

    @property
    def given(self) -> bool:
        """Whether a run that goes back to its beginning needs this again."""
        return self.source is not None or self.words is not None


@dataclass(slots=True, kw_only=True)
class Setup:
    """All that `fit` is called with, the batches apart, and what it was made of."""

    recipe: Recipe
    tokenizer: Tokenizer
    start: Start
    model: Model
    optimizer: torch.optim.Optimizer
    schedule: Callable[[int], float]  # the learning rate of each step
    policy: Policy
    begin: Callable[[], Model]  # the model once more as the run began with it, on the host
    notes: list[str]  # what the user should know


def set_up(
    run: Path,
    recipe: Recipe,
    tokenizer: Tokenizer,
    batches: Batches,
    *,
    device: str,
    start: Start,
    group: ProcessGroup | None = None,
) -> Setup:
    """Build the model and what trains it; data of which nothing can be learned, or a full disk, are refused here."""
    group, train = group or ProcessGroup(), recipe.train
    if not (run / run_dir.RUN).exists():
        batches.check_first_examples()
    teacher = make_teacher(start.teacher, recipe, tokenizer, device)
    model, notes = begin_run(recipe, tokenizer, batches, start)
    model.to(device)
    for stack in model.stacks:
        stack.recompute = train.recompute
    if train.compile:
        compile_blocks(model)
    if not run.exists():
        checkpoint.expect_room(run, model, memory_bytes(recipe))
    group.place(model)
    optimizer = build_optimizer(model, train.optimizer, train.learning_rate)
    look = f"clozeworks examples --run {shlex.quote(str(run))} --step"
    every = recipe.finetune.unfreeze_every if recipe.finetune is not None else None
    policy = Policy(
        clip=train.clip,
        device=device,
        seed=train.seed,
        guard=SpikeGuard(train.guard, batches.phase_ends, look, train.steps),
        group=group,
        teacher=teacher,
        unfreezing=GradualUnfreezing(model, every) if every else None,
    )
    return Setup(
        recipe=recipe,
        tokenizer=tokenizer,
        start=start,
        model=model,
        optimizer=optimizer,
        schedule=functools.partial(learning_rate, train=train, width=recipe.encoder.width),
        policy=policy,
        begin=lambda: begin_run(recipe, tokenizer, batches, start)[0],
        notes=notes,
    )


def begin_run(recipe: Recipe, tokenizer: Tokenizer, batches: Batches, start: Start) -> tuple[Model, list[str]]:
    """The model as the run begins with it, and what to report of that: a source comes before a teacher's layers.

    A model that reads characters learns here how the tokenizer's words are written.
    """
    model, distil, teacher = build(recipe), recipe.distil, start.teacher
    notes = transfer(start.source, model) if start.source is not None else spell(model, tokenizer)
    if start.source is None and teacher is not None and distil is not None and distil.start is not None:
        layers = distil.layers(recipe.encoder.stack.depth, teacher.recipe.encoder.stack.depth)
        notes += take_layers(teacher.model, model, layers)
    if start.words is not None:
        notes += begin_words(model, tokenizer, start.words, recipe.train.seed)
    if start.source is None:
        notes += begin(recipe, model, batches.corpora, tokenizer, describe_vectors(recipe, teacher))
    return model, notes


def compile_blocks(model: Model) -> None:
    """Have torch compile each block on its first call, all by the same graph.

    On CPU it repays nothing (docs/benchmarks.md): products are as fast as before, and attention with dropout takes the
    dense path, since the borders of packed documents are other integers in every batch.
    """
    for block in itertools.chain.from_iterable(stack.blocks for stack in model.stacks):
        block.compile()
