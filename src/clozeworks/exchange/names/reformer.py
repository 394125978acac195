"""Reformer's names and config.

Its class adds no bias to the scores of words, although it saves one: versions of the library before the fifth did.
Rows whose length is no multiple of both kinds of chunks it fills up before anything is sorted; here each layer fills up
its own, which is the same as long as hashed chunks are no shorter than local ones.
"""

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.config_table import (
    CONFIG,
    NO_SUCH_PART,
    NONE_AS_ZERO,
    OWN_FORMAT,
    ConfigTable,
    Constant,
    Field,
    absent,
)
from clozeworks.exchange.names import Family, Names, bert, roberta
from clozeworks.model import Encoder
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.mixers.chunks import LocalAttention
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import AxialPositions, LearnedPositions
from clozeworks.nn.reversible import Reversible
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe

DEFAULTS: dict[str, Any] = {  # of what the table of fields does not say
    "num_attention_heads": 12,
    "attention_head_size": 64,
    "attn_layers": ["local", "lsh"] * 3,
    "axial_pos_embds": True,
    "axial_pos_shape": [64, 64],
    "axial_pos_embds_dim": [64, 192],
    "axial_norm_std": 1.0,
    "max_position_embeddings": 4096,
    "num_hashes": 1,
    "num_buckets": None,
    "hash_seed": None,
    "is_decoder": False,
}
for _kind, _rate in (("local", 0.05), ("lsh", 0.0)):
    DEFAULTS |= {f"{_kind}_attn_chunk_length": 64, f"{_kind}_attention_probs_dropout_prob": _rate}
    DEFAULTS |= {f"{_kind}_num_chunks_before": 1, f"{_kind}_num_chunks_after": 0}
HEADS: dict[str, tuple[str, ...]] = {
    "ReformerModelWithLMHead": ("next_token",),
    "ReformerForMaskedLM": ("masked_lm",),
    "ReformerModel": (),
}
LAYER, BLOCK, POSITIONS = "reformer.encoder.layers.{i}.", "encoder.stack.blocks.{i}.", "encoder.embed.positions."
NAMES: Names = (
    ("encoder.embed.words.table", "reformer.embeddings.word_embeddings"),
    (POSITIONS + "table", "reformer.embeddings.position_embeddings.embedding"),
    (POSITIONS + "rows", "reformer.embeddings.position_embeddings.weights.0"),
    (POSITIONS + "columns", "reformer.embeddings.position_embeddings.weights.1"),
    (BLOCK + "mixer_norm", LAYER + "attention.layer_norm"),
    (BLOCK + "mixer.query_key", LAYER + "attention.self_attention.query_key"),
    (BLOCK + "mixer.query", LAYER + "attention.self_attention.query"),
    (BLOCK + "mixer.key", LAYER + "attention.self_attention.key"),
    (BLOCK + "mixer.value", LAYER + "attention.self_attention.value"),
    (BLOCK + "mixer.out", LAYER + "attention.output.dense"),
    (BLOCK + "ffn_norm", LAYER + "feed_forward.layer_norm"),
    (BLOCK + "ffn.up", LAYER + "feed_forward.dense.dense"),
    (BLOCK + "ffn.down", LAYER + "feed_forward.output.dense"),
    ("encoder.stack.norm", "reformer.encoder.layer_norm"),
)
TASKS = tuple(head for head in roberta.task_heads("Reformer") if not {"choice", "tag"} & set(head.tasks))


def head_names(config: dict[str, Any]) -> Names:
    """One name there for the head of either objective."""
    ours = "heads." + ("next_token" if config.get("is_decoder") else "masked_lm")
    return ((ours + ".head", "lm_head.decoder"), (ours, "lm_head"))


def blank() -> Recipe:
    """Reformer's recipe before a config fills in its sizes and rates; its mixers and positions are read apart."""
    block = Block(LocalAttention(0), FeedForward(0), place="pre")
    embed = Embed(None, segments=0, norm=None, dropped="words")
    encoder = Encoder(0, 0, embed, Reversible(0, block, norm=LayerNorm()))
    return Recipe("reformer", encoder, Objective(FullSentences(), MaskTokens(), ()), Train(learning_rate=1e-3))


OURS, STACK = "encoder.stack.block.", "encoder.stack."
RATES = (OURS + "dropout", OURS + "ffn.dropout", STACK + "dropout")
ONE_RATE = "the Hugging Face class has one rate for all but attention"
TABLE = ConfigTable(
    blank,
    (
        Field("vocab_size", "encoder.vocab", default=320),
        Field("hidden_size", "encoder.width", default=256),
        Field("feed_forward_size", OURS + "ffn.inner", default=512),
        Field("chunk_size_feed_forward", OURS + "ffn.chunk", default=0, convert=NONE_AS_ZERO),
        Field("hidden_act", OURS + "ffn.activation", default="relu", codes=bert.ACTIVATIONS),
        Field("hidden_dropout_prob", "encoder.embed.dropout", RATES, default=0.05, alike=ONE_RATE),
        Field("layer_norm_eps", OURS + "norm.eps", (STACK + "norm.eps",), default=1e-12),
        Field("initializer_range", "encoder.init", default=0.02),
        Constant("tie_word_embeddings", False),
        Constant("torch_dtype", "float32"),
    ),
    unsaid=(STACK + "depth",),
)


def mixer_fields(kind: str) -> dict[str, str]:
    """Config fields of a kind of attention, and their names in its spec."""
    return {
        "num_attention_heads": "heads",
        f"{kind}_attn_chunk_length": "chunk",
        f"{kind}_num_chunks_before": "before",
        f"{kind}_num_chunks_after": "after",
        f"{kind}_attention_probs_dropout_prob": "dropout",
        **({"num_hashes": "rounds"} if kind == "lsh" else {}),
    }


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """The recipe of a config: its kinds of attention by turns, and a head for the next token or for masked ones."""
    recipe, config = TABLE.read(config), DEFAULTS | config
    if config["is_decoder"] not in (True, False):
        needed = "one of True, False is supported"
        raise InputError(CONFIG, f"is_decoder {config['is_decoder']}", needed, "choose a model with one of them")
    encoder, objective = recipe.encoder, recipe.objective
    block, stack, positions = encoder.stack.block_at(0), encoder.stack, read_positions(config)
    mixers = [read_mixer(config, kind, encoder.width) for kind in find_cycle(config)]
    blocks = tuple(dataclasses.replace(copy.deepcopy(block), mixer=mixer) for mixer in mixers)
    stack.depth, stack.block = len(config["attn_layers"]), blocks[0] if len(blocks) == 1 else blocks
    encoder.embed.positions, objective.segments.length = positions, min(128, positions.limit)
    if config["is_decoder"]:
        objective.corruption = Shift()
    objective.losses = tuple(MaskedLM(plain=True) if name == "masked_lm" else NextToken(tied=False) for name in losses)
    return recipe


def find_cycle(config: dict[str, Any]) -> list[str]:
    """The kinds of attention, as few as repeat over the depth."""
    kinds = list(config["attn_layers"])
    if not kinds or set(kinds) - {"lsh", "local"}:
        raise InputError(CONFIG, f"attn_layers {kinds}", "each is lsh or local", "choose another model")
    return next(kinds[:n] for n in range(1, len(kinds) + 1) if all(kinds[i] == kinds[i % n] for i in range(len(kinds))))


def read_mixer(config: dict[str, Any], kind: str, width: int) -> Mixer:
    fields = {ours: config[theirs] for theirs, ours in mixer_fields(kind).items()}
    size, buckets = config["attention_head_size"], config["num_buckets"]
    fields["head_width"] = None if fields["heads"] * size == width else size
    if kind == "local":
        return LocalAttention(**fields)
    buckets = tuple(buckets) if isinstance(buckets, list) else buckets
    return LSH(**fields, buckets=buckets, seed=config["hash_seed"] or 0)


def write_mixer(mixer: LSH | LocalAttention, width: int) -> dict[str, Any]:
    """What the config says of a mixer, once for all of its kind."""
    fields = mixer_fields("lsh" if isinstance(mixer, LSH) else "local")
    config = {theirs: getattr(mixer, ours) for theirs, ours in fields.items()}
    config["attention_head_size"] = mixer.head_width or width // mixer.heads
    if isinstance(mixer, LSH):
        buckets = list(mixer.buckets) if isinstance(mixer.buckets, tuple) else mixer.buckets
        config |= {"num_buckets": buckets, "hash_seed": mixer.seed}
    return config


def read_positions(config: dict[str, Any]) -> AxialPositions | LearnedPositions:
    if not config["axial_pos_embds"]:
        return LearnedPositions(config["max_position_embeddings"])
    shape, widths = tuple(config["axial_pos_shape"]), tuple(config["axial_pos_embds_dim"])
    if len(shape) != 2 or len(widths) != 2:
        raise InputError(CONFIG, f"axial_pos_shape {list(shape)}", "two axes are supported", "choose another")
    return AxialPositions(shape, widths, config.get("hidden_dropout_prob", 0.05), config["axial_norm_std"])


def write_positions(recipe: Recipe) -> dict[str, Any]:
    """What the config says of the positions: a grid, or a table without rows before the first position."""
    positions, rate = recipe.encoder.embed.positions, recipe.encoder.embed.dropout
    if isinstance(positions, LearnedPositions) and not positions.offset:
        return {"axial_pos_embds": False, "max_position_embeddings": positions.limit}
    if not isinstance(positions, AxialPositions):
        raise absent(recipe, "encoder.embed.positions")
    if positions.dropout != rate:
        given = f"rates of dropout {(rate, positions.dropout)}"
        raise RecipeError(f"{recipe.name}.encoder", given, ONE_RATE, "set all to the same rate")
    return {
        "axial_pos_embds": True,
        "axial_pos_shape": list(positions.shape),
        "axial_pos_embds_dim": list(positions.widths),
        "axial_norm_std": DEFAULTS["axial_norm_std"] if positions.deviation is None else positions.deviation,
        "max_position_embeddings": positions.limit,
    }


def write(recipe: Recipe) -> dict[str, Any]:
    """The config of a recipe; all mixers of a kind must be alike, and none of a causal model may look ahead."""
    stack, corruption = recipe.encoder.stack, recipe.objective.corruption
    causal = corruption is not None and corruption.kind == "causal"
    mixing: dict[str, Any] = {"attn_layers": []}
    for mixer in (stack.block_at(layer).mixer for layer in range(stack.depth)):
        fields: dict[str, Any] = {}
        if isinstance(mixer, LSH | LocalAttention) and not (causal and mixer.after):
            fields = write_mixer(mixer, recipe.encoder.width)
        if not fields or any(mixing.setdefault(name, value) != value for name, value in fields.items()):
            raise RecipeError(f"{recipe.name}.{OURS}mixer", mixer, NO_SUCH_PART, OWN_FORMAT)
        mixing["attn_layers"].append("lsh" if isinstance(mixer, LSH) else "local")
    return {
        "model_type": "reformer",
        "architectures": [bert.class_of(recipe, HEADS)],
        "is_decoder": causal,
        **write_plain(recipe),
        **mixing,
        **write_positions(recipe),
    }


def write_plain(recipe: Recipe) -> dict[str, Any]:
    """The fields of the table, without the mixers and positions, of which it knows nothing."""
    plain, nothing = copy.deepcopy(recipe), blank().encoder.stack.block_at(0).mixer
    stack = plain.encoder.stack
    blocks = [stack.block_at(layer) for layer in range(stack.depth)]
    stack.block = tuple(dataclasses.replace(block, mixer=nothing) for block in blocks)
    plain.encoder.embed.positions = None
    return TABLE.write(plain)


def import_hook(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The tables of a grid without their empty dimension, and no bias of scores where it is 0."""
    for name in (POSITIONS + "rows", POSITIONS + "columns"):
        if name in tensors:
            tensors[name] = tensors[name].flatten(0, 1)
    for loss in recipe.objective.losses:
        tensors.pop(f"heads.{loss.name}.head.bias", None)  # older files have it twice
        bias = tensors.get(f"heads.{loss.name}.bias")
        if bias is None or not bool(bias.any()):
            tensors.pop(f"heads.{loss.name}.bias", None)
        elif isinstance(loss, NextToken):
            loss.bias = True
        else:
            needed = "scores of hidden words have none here"
            raise InputError("lm_head.bias", "other than 0", needed, "choose a model without a bias")


def export_hook(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The inverse of `import_hook`; a head that is tied behind a product becomes the table times it."""
    if POSITIONS + "rows" in tensors:
        tensors[POSITIONS + "rows"] = tensors[POSITIONS + "rows"][:, None].contiguous()
        tensors[POSITIONS + "columns"] = tensors[POSITIONS + "columns"][None].contiguous()
    for index, loss in enumerate(recipe.objective.losses):
        name, table = f"heads.{loss.name}.", tensors["encoder.embed.words.table.weight"]
        if isinstance(loss, NextToken) and loss.tied and name + "dense.weight" in tensors:
            tensors[name + "head.weight"] = table @ tensors.pop(name + "dense.weight")
            loss.tied = False
        if name + "head.weight" not in tensors:
            raise RecipeError(f"{recipe.name}.objective.losses.{index}", loss, NO_SUCH_PART, OWN_FORMAT)
        if bool(tensors.setdefault(name + "bias", torch.zeros(len(table))).any()):
            needed = "the Hugging Face class adds none"
            raise RecipeError(f"{recipe.name}.objective.losses.{index}.bias", True, needed, "train it without")
        if isinstance(loss, NextToken):
            loss.bias = False


FAMILY = Family(
    model_type="reformer",
    names=NAMES,
    tied={},
    prefix="reformer.",
    read=read,
    write=write,
    layers=head_names,
    import_hook=import_hook,
    export_hook=export_hook,
    heads=TASKS,
    template=roberta.TEMPLATE,
)
