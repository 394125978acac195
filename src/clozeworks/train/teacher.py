"""The model that a student learns from: whether it can be one, and what it finds in a batch."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden, TeacherOutput
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.bundle import Bundle
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.model import Model
from clozeworks.objectives.losses.masked_lm import MaskedLMLayer
from clozeworks.objectives.objective import Loss, Outline
from clozeworks.recipe import Recipe
from clozeworks.starts.initializer import TeacherVectors
from clozeworks.starts.transfer import digest
from clozeworks.train.text_teacher import TOGETHER, TextReader


class Teacher:
    """Reads each batch before the student does, without dropout and gradients, no more of it than losses compare.

    `read_texts` gives its vector [N, D] for the text of each example, where a loss compares these.
    """

    def __init__(
        self, model: Model, losses: tuple[Loss, ...], depth: int, read_texts: Callable[[Batch], Tensor] | None = None
    ):
        self.model = model.eval().requires_grad_(False)
        self.losses = compare_tokens(losses)
        self.read_texts = read_texts
        self.depth = depth  # of the student
        head = model.head("masked_lm")
        self.words = head.read if isinstance(head, MaskedLMLayer) else None

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Batch:
        """The batch with the teacher's outputs; what the student remembers is no past of the teacher's."""
        hidden = Hidden(batch.tokens.new_zeros(0, dtype=torch.float32))
        if self.losses:
            hidden = self.model.read(batch.replace(past=None), self.losses, self.depth)
        vectors = None if self.read_texts is None else self.read_texts(batch)
        return batch.replace(teacher=TeacherOutput(hidden, self.words, vectors))


def compare_tokens(losses: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Those that compare what the teacher makes of the same tokens."""
    return tuple(loss for loss in losses if "teacher" in loss.needs.reads and "texts" not in loss.needs.reads)


def compare_texts(losses: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Those that compare what the teacher makes of the same text."""
    return tuple(loss for loss in losses if "texts" in loss.needs.reads)


def make_teacher(given: Bundle | None, recipe: Recipe, tokenizer: Tokenizer, device: str) -> Teacher | None:
    """None where no loss of the recipe compares."""
    losses, corruption = recipe.objective.losses, recipe.objective.corruption
    if given is None or not any("teacher" in loss.needs.reads for loss in losses):
        return None
    restores = corruption is not None and corruption.hides == "replacing"
    reader = TextReader(given, tokenizer, restores) if compare_texts(losses) else None
    return Teacher(given.model.to(device), losses, recipe.top.depth, reader)


def fit_to_teacher(recipe: Recipe, teacher: Bundle | None) -> Recipe:
    """The recipe with losses of which none leaves open what depends on the teacher."""
    if teacher is None:
        return recipe
    theirs = outline(teacher.recipe)
    losses = tuple(loss.fitted(theirs) for loss in recipe.objective.losses)
    return dataclasses.replace(recipe, objective=dataclasses.replace(recipe.objective, losses=losses))


def outline(recipe: Recipe) -> Outline:
    stack = recipe.top
    mixers = [stack.block_at(layer).mixer for layer in range(stack.depth)]
    heads = tuple(getattr(each, "heads", None) if each.scores and stack.directions == 1 else None for each in mixers)
    names = frozenset(loss.name for loss in recipe.objective.losses)
    return Outline(recipe.name, stack.out_width(recipe.encoder.width), heads, names)


def check_teacher(recipe: Recipe, tokenizer: Tokenizer, teacher: Bundle | None) -> list[str]:
    """Refuse a teacher that this recipe cannot learn from, or the want of one; gives what to report to the user."""
    if teacher is None:
        if recipe.taught:
            given, needed = "none", f"{recipe.name} learns from a teacher"
            raise InputError(
                "--teacher", given, needed, "give --teacher DIR, for a run that resumes the same as before"
            )
        return []
    if not recipe.taught:
        given, needed = f"{teacher.recipe.name} for {recipe.name}", "no loss of this recipe reads a teacher"
        todo = "take cloze_mini_distilled or distilbert_mini, or add a loss such as SentenceVectors"
        raise InputError("--teacher", given, needed, todo)
    if (recipe.decoder is None) != (teacher.recipe.decoder is None):
        given, needed = teacher.recipe.name, f"{recipe.name} and its teacher must read the same: a text, or its source"
        raise InputError("--teacher", given, needed, "take a teacher of the same kind")
    own, theirs = outline(recipe), outline(teacher.recipe)
    for index, loss in enumerate(recipe.objective.losses):
        loss.compare(f"{recipe.name}.objective.losses.{index}", own, theirs)
    if recipe.reads_texts and teacher.tokenizer is None:
        given, needed = "a model without a tokenizer", f"{recipe.name} has it read texts"
        raise InputError("--teacher", given, needed, "put its tokenizer.json beside it")
    if not (compare_tokens(recipe.objective.losses) or (recipe.distil is not None and recipe.distil.start is not None)):
        return []
    notes = _check_tokens(recipe, tokenizer, teacher)
    _expect_layers(recipe, theirs)
    return notes


def _check_tokens(recipe: Recipe, tokenizer: Tokenizer, teacher: Bundle) -> list[str]:
    """Refuse a teacher that cannot read the student's rows; gives what to report."""
    notes = _same_tokens(tokenizer, teacher)
    encoder = teacher.recipe.encoder
    if encoder.vocab < tokenizer.size:
        given, needed = f"a model of {encoder.vocab:,} tokens", f"the data's tokenizer has {tokenizer.size:,}"
        raise InputError("--teacher", given, needed, "prepare the data with the teacher's own tokenizer")
    recipe.objective.segments.check_embed(f"{teacher.recipe.name}.encoder.embed", encoder.embed)
    positions = encoder.embed.positions
    most = None if positions is None else positions.limit
    if most is not None and most < recipe.longest():
        given, needed = f"a model of {most} positions", f"examples are up to {recipe.longest()} tokens long"
        raise InputError("--teacher", given, needed, f"set objective.segments.length={most}")
    corruption = recipe.objective.corruption
    for mixer in encoder.stack.mixers():
        if corruption is not None and corruption.kind not in mixer.honours:
            needed = f"its {type(mixer).__name__} cannot hide what {corruption.kind} visibility hides"
            raise InputError("--teacher", teacher.recipe.name, needed, "take another teacher")
    return notes


def _same_tokens(tokenizer: Tokenizer, teacher: Bundle) -> list[str]:
    if teacher.tokenizer is None:
        return ["the teacher brings no tokenizer: that its ids are those of the data is taken on trust"]
    if teacher.tokenizer.fingerprint != tokenizer.fingerprint:
        todo = (
            "prepare the text again with --tokenizer set to the teacher's directory, or compare texts: SentenceVectors"
        )
        raise InputError("--teacher", "another tokenizer than the data has", "token ids must keep their meaning", todo)
    return []


def _expect_layers(recipe: Recipe, teacher: Outline) -> None:
    distil = recipe.distil
    if distil is None or distil.start is None:
        return
    for layer in distil.layers(recipe.encoder.stack.depth, teacher.depth):
        if layer >= teacher.depth:
            needed = f"{teacher.name} has layers 0 to {teacher.depth - 1}"
            raise RecipeError(f"{recipe.name}.distil.start", list(distil.start), needed, 'use "spread"')


def describe_vectors(recipe: Recipe, teacher: Bundle | None) -> TeacherVectors | None:
    """The teacher as weights may begin from it, where some do."""
    if teacher is None or not any(each.reads_teacher for each in recipe.start):
        return None
    encoder = TextEncoder(teacher.model.eval(), teacher.tokenizer, teacher.recipe)
    return TeacherVectors(lambda texts: encoder.encode(texts, batch_tokens=TOGETHER), digest(teacher.model))


def describe_teacher(teacher: Bundle | None) -> dict[str, Any] | None:
    """What a run writes down of its teacher."""
    return None if teacher is None else {"name": teacher.recipe.name, "digest": digest(teacher.model)}
