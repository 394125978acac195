"""A model as a function of tensors alone, with inputs and outputs by their usual names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.core.context import Backend
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import walk
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.onnx.padded_rows import read_rows
from clozeworks.exchange.templates import has_segments
from clozeworks.model import Model
from clozeworks.nn.pooling import Pooling, pool_tokens
from clozeworks.recipe import Recipe
from clozeworks.tasks.task import TaskLayer

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
BATCH, LENGTH = "batch", "length"
LANGUAGE_HEADS = ("masked_lm", "next_token", "permuted_lm")
OWN_FORMAT = "keep its own format"


@dataclass(slots=True)
class Signature:
    """Names of what goes in, and of what comes out with the axes of each."""

    inputs: tuple[str, ...]
    outputs: dict[str, tuple[str | int, ...]]


class Graph(nn.Module):
    """ids [B, L], a mask and, where the model tells them apart, segments -> the outputs of its `signature`.

    logits of a language-model head or of a task's (start_logits and end_logits of question answering, mc_logits of
    choices), else last_hidden_state and, where the model has a pooling, sentence_embedding. Attention takes `backend`:
    the dense one is the definition, and does not depend on values.
    """

    def __init__(self, model: Model, recipe: Recipe, tokenizer: Tokenizer | None, backend: Backend = "dense"):
        super().__init__()
        self.model, self.recipe, self.tokenizer = model, recipe, tokenizer
        self.backend: Backend = backend
        self.inputs = (IDS, MASK, SEGMENTS) if has_segments(recipe) else (IDS, MASK)
        self.pooling = recipe.pooling or (None if recipe.task is None else recipe.task.encodes)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        return tuple(self.outputs(input_ids, attention_mask, token_type_ids).values())

    def outputs(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> dict[str, Tensor]:
        """The outputs by name."""
        hidden, rows = read_rows(self.model, self.recipe, self.tokenizer, ids, mask, segments, self.backend)
        task = self.recipe.task
        head = self.model.head(task.name) if task is not None else None
        if isinstance(head, TaskLayer) and task is not None and task.has_head:
            scores = head.named_logits(hidden, rows)
            if not scores:
                needed = "a row alone does not say which other it is decided with"
                raise RecipeError(f"{self.recipe.name}.objective.losses", type(task).__name__, needed, OWN_FORMAT)
            return scores
        for name in LANGUAGE_HEADS if task is None else ():
            language: Any = self.model.head(name)
            if language is not None:
                return {"logits": language.logits(hidden.last)}
        named = {"last_hidden_state": hidden.last}
        if self.pooling is not None:
            named["sentence_embedding"] = pool(hidden.last, mask, hidden.pooled, self.pooling)
        return named

    @torch.no_grad()
    def signature(self) -> Signature:
        """Which outputs there are, and their axes: read off rows of two shapes, in which other axes stay."""
        shapes = []
        for rows, length in ((2, 3), (3, 5)):
            given = torch.zeros(rows, length, dtype=torch.long)
            arguments = {IDS: given, MASK: torch.ones_like(given), SEGMENTS: given}
            shapes.append({name: each.shape for name, each in self.outputs(*self.arguments(arguments)).items()})
        few, many = shapes
        axes: dict[str, tuple[str | int, ...]] = {
            name: tuple(
                a if a == b else BATCH if (a, b) == (2, 3) else LENGTH
                for a, b in zip(few[name], many[name], strict=True)
            )
            for name in few
        }
        return Signature(self.inputs, axes)

    def arguments(self, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The inputs that the model has, in order."""
        return tuple(given[name] for name in self.inputs)


def pool(last: Tensor, mask: Tensor, pooled: Tensor | None, pooling: Pooling) -> Tensor:
    """[B, D]: the vector that `encode` makes of each row."""
    vectors = pool_tokens(last, mask, pooled, pooling.mode)
    return F.normalize(vectors) if pooling.normalise else vectors


def refuse_untraceable(recipe: Recipe) -> None:
    """Raise `RecipeError` for a model that no graph of tensors can hold, by the part that is the reason."""
    if recipe.decoder is not None:
        needed = "it writes token by token, as often as its own output says, and a graph is one pass"
        raise RecipeError(f"{recipe.name}.decoder", type(recipe.decoder).__name__, needed, OWN_FORMAT)
    for where, part in (
        *walk(recipe.encoder, f"{recipe.name}.encoder"),
        *walk(recipe.objective, f"{recipe.name}.objective"),
    ):
        reason = getattr(part, "untraceable", None)
        if reason is not None:
            raise RecipeError(where, type(part).__name__, f"ONNX cannot hold it: {reason}", OWN_FORMAT)
