"""ALBERT's names and config: BERT's layers in groups that share weights, behind tables of their own width."""

import copy
import math
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.names import Family, Names, bert
from clozeworks.nn.embed import Embed
from clozeworks.nn.stack import Share
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.mask.ngrams import MaskNgrams
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences, SentenceOrder
from clozeworks.recipe import Recipe

DEFAULTS = {  # what a config may leave out, where it differs from BERT's
    "embedding_size": 128,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
HEADS = {  # class -> losses it is pretrained with
    "AlbertForPreTraining": ("masked_lm", "sentence_pair"),
    "AlbertForMaskedLM": ("masked_lm",),
    "AlbertModel": (),
}
NAMES: Names = (
    ("encoder.embed.words.table", "albert.embeddings.word_embeddings"),
    ("encoder.embed.positions.table", "albert.embeddings.position_embeddings"),
    ("encoder.embed.segments", "albert.embeddings.token_type_embeddings"),
    ("encoder.embed.norm", "albert.embeddings.LayerNorm"),
    ("encoder.embed.project", "albert.encoder.embedding_hidden_mapping_in"),
    ("encoder.pooler.dense", "albert.pooler"),
    ("heads.masked_lm.dense", "predictions.dense"),
    ("heads.masked_lm.norm", "predictions.LayerNorm"),
    ("heads.masked_lm", "predictions"),  # its bias
    ("heads.sentence_pair.out", "sop_classifier.classifier"),
)
LAYER: Names = (  # of a block, of a layer of a group
    ("mixer.query", "attention.query"),
    ("mixer.key", "attention.key"),
    ("mixer.value", "attention.value"),
    ("mixer.out", "attention.dense"),
    ("mixer_norm", "attention.LayerNorm"),
    ("ffn.up", "ffn"),
    ("ffn.down", "ffn_output"),
    ("ffn_norm", "full_layer_layer_norm"),
)
BLOCKS, PROJECT = "encoder.stack.blocks.", "encoder.embed.project."
SHARED = {"attention": ("mixer.", "mixer_norm."), "ffn": ("ffn.", "ffn_norm.")}  # what goes together


def groups_of(config: dict[str, Any]) -> tuple[int, int, int]:
    """Layers, groups that share weights, and layers inside a group, one after another."""
    config = DEFAULTS | config
    counts = []
    for name in ("num_hidden_layers", "num_hidden_groups", "inner_group_num"):
        if not isinstance(config[name], int) or config[name] < 1:
            raise InputError("config.json", f"{name} {config[name]!r}", "a number from 1 on is needed", "mend the file")
        counts.append(config[name])
    layers, groups, inner = counts
    if layers % groups:
        given = f"{layers} layers in {groups} groups"
        raise InputError("config.json", given, "groups of one size are supported", "choose another model")
    if inner > 1 and groups < layers:
        given = f"groups of {inner} layers that are used {layers // groups} times"
        raise InputError("config.json", given, "layers that share follow one another here", "choose another model")
    return layers, groups, inner


def layer_names(config: dict[str, Any]) -> Names:
    """A group's tensors are those of the first block that uses them."""
    layers, groups, inner = groups_of(config)
    size = layers // groups
    return tuple(
        (
            f"{BLOCKS}{group * size * inner + layer}.{ours}",
            f"albert.encoder.albert_layer_groups.{group}.albert_layers.{layer}.{theirs}",
        )
        for group in range(groups)
        for layer in range(inner)
        for ours, theirs in LAYER
    )


def blank() -> Recipe:
    """ALBERT's recipe before a config fills in its sizes and rates."""
    recipe = bert.blank()
    recipe.name, recipe.objective = "albert", Objective(SentenceOrder(), MaskNgrams(), ())
    return recipe


TABLE = bert.TABLE.derive(blank, defaults=DEFAULTS)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """BERT's layers, of which those of a group share their weights, behind tables of the embedding's width.

    Where a config asks for dropout, their class drops nothing behind the feed-forward part; ours does.
    """
    layers, groups, inner = groups_of(config)
    recipe = bert.read_encoder(config, TABLE)
    embed, stack, objective = recipe.encoder.embed, recipe.encoder.stack, recipe.objective
    narrow = (DEFAULTS | config)["embedding_size"]
    embed.width, embed.project = (None, True) if narrow == recipe.encoder.width else (narrow, False)
    stack.depth, stack.share = layers * inner, Share() if groups == layers else Share(groups, groups)
    objective.losses = tuple(bert.masked_lm(recipe) if name == "masked_lm" else SentenceRelation() for name in losses)
    if losses == ("masked_lm",):
        objective.segments = FullSentences(length=objective.segments.length)
    return recipe


def import_hook(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """A projection that changes nothing, which the class always has, is none."""
    embed, weight, bias = recipe.encoder.embed, tensors.get(f"{PROJECT}weight"), tensors.get(f"{PROJECT}bias")
    if embed.project and weight is not None and bias is not None:
        width = recipe.encoder.width
        if weight.shape == (width, width) and weight.equal(torch.eye(width)) and not bias.any():
            embed.project = False
            del tensors[f"{PROJECT}weight"], tensors[f"{PROJECT}bias"]


def export_hook(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The equal model that the class can hold: attention and ffn shared alike, and a projection whatever the widths."""
    encoder, stack = recipe.encoder, recipe.encoder.stack
    own = {"attention": stack.share.attention or stack.depth, "ffn": stack.share.ffn or stack.depth}
    groups = math.lcm(*own.values())
    for part, sets in own.items():
        for leader in range(0, stack.depth, stack.depth // sets):
            mine = [name for name in tensors if name.startswith(tuple(f"{BLOCKS}{leader}.{p}" for p in SHARED[part]))]
            copies = range(leader, leader + stack.depth // sets, stack.depth // groups)
            for name in mine:
                for block in copies[1:]:
                    tensors[name.replace(f"{BLOCKS}{leader}.", f"{BLOCKS}{block}.", 1)] = tensors[name].clone()
    stack.share = Share() if groups == stack.depth else Share(groups, groups)
    if not projects(encoder.embed, encoder.width):
        encoder.embed.project, encoder.embed.narrow = True, "all"
        tensors[f"{PROJECT}weight"], tensors[f"{PROJECT}bias"] = torch.eye(encoder.width), torch.zeros(encoder.width)


def projects(embed: Embed, width: int) -> bool:
    return embed.project or embed.width not in (None, width)


def write(recipe: Recipe) -> dict[str, Any]:
    """The config of a recipe: BERT's, and how layers share weights and how wide the tables are."""
    bert.check_head(recipe)
    encoder = recipe.encoder
    if encoder.embed.narrow == "words" and projects(encoder.embed, encoder.width):
        needed = "the Hugging Face class projects after the norm"
        todo = "keep the model in its own format, or train it with narrow = all"
        raise RecipeError(f"{recipe.name}.encoder.embed.narrow", encoder.embed.narrow, needed, todo)
    plain = copy.deepcopy(recipe)  # what the table does not say, it cannot refuse
    plain.encoder.stack.share = Share()
    plain.encoder.embed.width, plain.encoder.embed.project = None, False
    return {
        "model_type": "albert",
        "architectures": [bert.class_of(recipe, HEADS)],
        **bert.write_encoder(plain, TABLE),
        "embedding_size": encoder.embed.width or encoder.width,
        "num_hidden_groups": encoder.stack.share.attention or encoder.stack.depth,
        "inner_group_num": 1,
        "classifier_dropout_prob": 0.1,  # for tasks
    }


FAMILY = Family(
    model_type="albert",
    names=NAMES,
    tied={
        "predictions.decoder.weight": "encoder.embed.words.table.weight",
        "predictions.decoder.bias": "heads.masked_lm.bias",
    },
    prefix="albert.",
    read=read,
    write=write,
    layers=layer_names,
    import_hook=import_hook,
    export_hook=export_hook,
    heads=bert.task_heads("Albert", "classifier_dropout_prob", 0.1),
)
