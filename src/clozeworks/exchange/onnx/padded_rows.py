"""Padded rows of ids through a model by tensors alone: nothing is asked of the device, so that a graph can be traced.

Padding is masked as keys and never as queries, as `transformers` has it.
"""

import dataclasses

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.context import Backend, Context
from clozeworks.core.token_info import PADDING, DocumentLayout, TokenInfo
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Model
from clozeworks.nn.positions import LearnedPositions
from clozeworks.recipe import Recipe


def read_rows(
    model: Model,
    recipe: Recipe,
    tokenizer: Tokenizer | None,
    input_ids: Tensor,
    attention_mask: Tensor,
    token_type_ids: Tensor | None = None,
    backend: Backend = "auto",
) -> tuple[Hidden, Batch]:
    """[B, L] each -> what the encoder gives, with its layers, and the rows as heads see them: a document each."""
    rows, width = input_ids.shape
    real, kind = attention_mask.bool(), recipe.reading
    place = torch.arange(width, device=input_ids.device).expand_as(input_ids)
    position, counted = place, _counts_from_padding(recipe)
    if counted is not None:  # padding is skipped, and gets the row before position 0
        known = (input_ids != counted).long()
        position = torch.cumsum(known, 1) * known - 1
    document = torch.where(real, 0, PADDING)
    marks, windowed = None, _has_windows(recipe)
    if windowed and recipe.task is not None and recipe.task.template.marks:
        marks = recipe.task.marks(input_ids, tokenizer)
    # Windows and chunks look for neighbours in the row, where padding is a document of its own.
    own = windowed or recipe.encoder.stack.initial_memory == "zeros"
    own = own or any("rows" not in mixer.takes for mixer in recipe.encoder.stack.mixers())
    embedded = TokenInfo.make(position, torch.zeros_like(input_ids), kind, token_type_ids)
    memory = TokenInfo.make(place if windowed else position, document, kind, token_type_ids)
    if marks is not None:
        memory = dataclasses.replace(memory, marked=marks.bool() & real)
    query = memory if own else embedded
    context = Context.make(query, memory, kind, offset=None if counted is not None and not windowed else 0)
    context = context.replace(backend=backend, most_marked=0 if marks is None else 1)
    firsts = torch.arange(rows, device=input_ids.device) * width
    hidden = model.encoder(input_ids, embedded, context, firsts, layers=True)
    hidden.real = real
    number = torch.arange(rows, device=input_ids.device)[:, None]
    info = dataclasses.replace(embedded, document=torch.where(real, number, PADDING))
    lasts = firsts + torch.where(real, place, 0).amax(1)
    return hidden, Batch(input_ids, info, kind, DocumentLayout((), (), rows, width), firsts, lasts)


def _counts_from_padding(recipe: Recipe) -> int | None:
    """The id of padding where positions are counted from it; None: they are places in the row."""
    positions = recipe.encoder.embed.positions
    return positions.offset - 1 if isinstance(positions, LearnedPositions) and positions.offset else None


def _has_windows(recipe: Recipe) -> bool:
    return any(getattr(mixer, "window", None) is not None for mixer in recipe.encoder.stack.mixers())
