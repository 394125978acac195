"""RoFormer's names and config: BERT's encoder with rotary positions instead of a table, and no pooler.

The table of sines and cosines that its files may have is compared with the formula and never built.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError
from clozeworks.exchange.config_table import CONFIG, Constant
from clozeworks.exchange.heads import CLASSES, Head, answers
from clozeworks.exchange.names import Family, bert
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.positions import Rotary, sinusoids
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary

HEADS: dict[str, tuple[str, ...]] = {"RoFormerForMaskedLM": ("masked_lm",), "RoFormerModel": ()}
POSITIONS = 1536  # rows of their table, where rows of text are no longer
FIXED, WORDS = "encoder.embed.rotations", "encoder.embed.words.table.weight"
NAMES = (
    *bert.encoder_names("roformer."),
    ("encoder.embed.project", "roformer.embeddings_project"),
    (FIXED, "roformer.encoder.embed_positions"),
    *bert.HEAD_NAMES,
)
TWO = (("summary.dense", "classifier.dense"), ("out", "classifier.out_proj"))
FIRST = Summary("first", "own", "gelu", early=True)
TASKS = (
    Head("RoFormerForSequenceClassification", CLASSES, TWO, FIRST, fixed={"hidden_act": "gelu"}),
    Head("RoFormerForTokenClassification", ("tag",), (("out", "classifier"),)),
    answers("RoFormer"),
)


def blank() -> Recipe:
    """RoFormer's recipe before a config fills in its sizes and rates."""
    recipe = bert.blank()
    recipe.encoder.embed.positions, recipe.encoder.pooler = None, None
    recipe.encoder.stack.block_at(0).mixer = Attention(0, rotary=Rotary())
    recipe.name, recipe.objective = "roformer", Objective(FullSentences(), MaskTokens(), ())
    return recipe


_DERIVED = bert.TABLE.derive(blank, without=("max_position_embeddings", "position_embedding_type"))
VALUES = "values are not turned here"
TABLE = replace(
    _DERIVED,
    fields=(*_DERIVED.fields, Constant("rotary_value", False, VALUES, "choose a model without")),
    unsaid=("encoder.embed.width",),  # read and written apart
)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """BERT's layers, whose queries and keys are turned by their positions, behind tables of the embedding's width."""
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise InputError(CONFIG, "a decoder", "an encoder is needed", "load the encoder's directory")
    recipe = TABLE.read(config)
    narrow, room = config.get("embedding_size"), config.get("max_position_embeddings", POSITIONS)
    recipe.encoder.embed.width = None if narrow == recipe.encoder.width else narrow
    recipe.objective.segments.length = min(128, room)
    recipe.objective.losses = tuple(bert.masked_lm(recipe) for _ in losses)
    return recipe


def write(recipe: Recipe) -> dict[str, Any]:
    bert.check_head(recipe)
    return {
        "model_type": "roformer",
        "architectures": [bert.class_of(recipe, HEADS)],
        **bert.write_encoder(recipe, TABLE),
        "embedding_size": recipe.encoder.embed.width or recipe.encoder.width,
        "max_position_embeddings": max(POSITIONS, recipe.longest()),
    }


def import_hook(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The table of rotations is left out, if it is the published one."""
    table = tensors.pop(f"{FIXED}.weight", None)
    if table is not None and not torch.allclose(table, _rotations(*table.shape), rtol=0, atol=1e-3):
        needed = "rotations are by sines and cosines there, which nothing learns"
        raise InputError("model.safetensors", "other positions", needed, "choose a model with the published ones")


def export_hook(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The class always tells segments apart, and has its table of rotations in its files."""
    bert.export_hook(recipe, tensors)
    heads = getattr(recipe.encoder.stack.block_at(0).mixer, "heads", 1)
    rows = max(POSITIONS, recipe.longest())
    tensors[f"{FIXED}.weight"] = _rotations(rows, recipe.encoder.width // heads)


def _rotations(rows: int, width: int) -> Tensor:
    return sinusoids(torch.arange(rows), width)


FAMILY = Family(
    model_type="roformer",
    names=NAMES,
    tied=bert.TIED,
    prefix="roformer.",
    read=read,
    write=write,
    import_hook=import_hook,
    export_hook=export_hook,
    heads=TASKS,
)
