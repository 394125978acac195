"""Reformer's names and config.

Its class adds no bias to the scores of words, although it saves one: versions of the library before the fifth did.
Rows whose length is no multiple of both kinds of chunks it fills up before anything is sorted; here each layer fills up
its own, which is the same as long as hashed chunks are no shorter than local ones.
"""

from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.names import Family, Names, roberta
from clozeworks.exchange.names.bert import ACTIVATIONS, class_of, shares
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
from clozeworks.objectives.objective import Loss, Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe

DEFAULTS: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 256,
    "num_attention_heads": 12,
    "attention_head_size": 64,
    "attn_layers": ["local", "lsh"] * 3,
    "feed_forward_size": 512,
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.05,
    "chunk_size_feed_forward": 0,
    "axial_pos_embds": True,
    "axial_pos_shape": [64, 64],
    "axial_pos_embds_dim": [64, 192],
    "axial_norm_std": 1.0,
    "max_position_embeddings": 4096,
    "num_hashes": 1,
    "num_buckets": None,
    "hash_seed": None,
    "is_decoder": False,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
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


def read(config: dict[str, Any], found: tuple[str, ...]) -> Recipe:
    config = DEFAULTS | config
    for name, known in (("hidden_act", tuple(ACTIVATIONS)), ("is_decoder", (True, False))):
        if config[name] not in known:
            given, needed = f"{name} {config[name]}", f"one of {', '.join(map(str, known))} is supported"
            raise InputError("config.json", given, needed, "choose a model with one of them")
    rate, norm = config["hidden_dropout_prob"], LayerNorm(config["layer_norm_eps"])
    ffn = FeedForward(config["feed_forward_size"], ACTIVATIONS[config["hidden_act"]], rate)
    ffn.chunk = config["chunk_size_feed_forward"] or None
    blocks: tuple[Block, ...] = tuple(
        Block(_mixer(config, kind), ffn, norm=norm, place="pre", dropout=rate) for kind in _cycle(config)
    )
    positions = _positions(config)
    encoder = Encoder(
        width=config["hidden_size"],
        vocab=config["vocab_size"],
        embed=Embed(positions, segments=0, norm=None, dropout=rate, dropped="words"),
        stack=Reversible(
            len(config["attn_layers"]), blocks[0] if len(blocks) == 1 else blocks, norm=norm, dropout=rate
        ),
        init=config["initializer_range"],
    )
    losses: tuple[Loss, ...] = tuple(
        MaskedLM(plain=True) if name == "masked_lm" else NextToken(tied=False) for name in found
    )
    corruption = Shift() if config["is_decoder"] else MaskTokens()
    objective = Objective(FullSentences(length=min(128, positions.length)), corruption, losses)
    return Recipe("reformer", encoder, objective, Train(learning_rate=1e-3))


def _cycle(config: dict[str, Any]) -> list[str]:
    """The kinds of attention, as few as repeat over the depth."""
    kinds = list(config["attn_layers"])
    if not kinds or set(kinds) - {"lsh", "local"}:
        raise InputError("config.json", f"attn_layers {kinds}", "each is lsh or local", "choose another model")
    return next(kinds[:n] for n in range(1, len(kinds) + 1) if all(kinds[i] == kinds[i % n] for i in range(len(kinds))))


def _mixer(config: dict[str, Any], kind: str) -> Mixer:
    heads, size = config["num_attention_heads"], config["attention_head_size"]
    fields = {
        "heads": heads,
        "head_width": None if heads * size == config["hidden_size"] else size,
        "chunk": config[f"{kind}_attn_chunk_length"],
        "before": config[f"{kind}_num_chunks_before"],
        "after": config[f"{kind}_num_chunks_after"],
        "dropout": config[f"{kind}_attention_probs_dropout_prob"],
    }
    if kind == "local":
        return LocalAttention(**fields)
    buckets = config["num_buckets"]
    buckets = tuple(buckets) if isinstance(buckets, list) else buckets
    return LSH(**fields, rounds=config["num_hashes"], buckets=buckets, seed=config["hash_seed"] or 0)


def _positions(config: dict[str, Any]) -> AxialPositions | LearnedPositions:
    if not config["axial_pos_embds"]:
        return LearnedPositions(config["max_position_embeddings"])
    shape, widths = tuple(config["axial_pos_shape"]), tuple(config["axial_pos_embds_dim"])
    if len(shape) != 2 or len(widths) != 2:
        raise InputError("config.json", f"axial_pos_shape {list(shape)}", "two axes are supported", "choose another")
    return AxialPositions(shape, widths, config["hidden_dropout_prob"], config["axial_norm_std"])


def write(recipe: Recipe) -> dict[str, Any]:
    encoder, stack, embed = recipe.encoder, recipe.encoder.stack, recipe.encoder.embed
    blocks = [stack.block_at(layer) for layer in range(stack.depth)]
    block, positions, ffn = blocks[0], embed.positions, blocks[0].ffn
    causal = recipe.objective.corruption is not None and recipe.objective.corruption.kind == "causal"
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    plain = Embed(positions, segments=0, norm=None, dropout=embed.dropout, dropped=embed.dropped)
    alike = all((each.ffn, each.norm, each.dropout) == (ffn, block.norm, block.dropout) for each in blocks)
    placed = isinstance(positions, AxialPositions) or (isinstance(positions, LearnedPositions) and not positions.offset)
    facts = (
        (isinstance(stack, Reversible) and stack.norm == block.norm, "stack", stack),
        (embed == plain, "embed", embed),
        (placed, "embed.positions", positions),
        (isinstance(ffn, FeedForward) and ffn.activation in names, "stack.block.ffn", ffn),
        (alike, "stack.block", stack.block),
        (not shares(stack), "stack.share", stack.share),
        (encoder.pooler is None, "pooler", encoder.pooler),
    )
    for holds, path, value in facts:
        if not holds:
            raise _absent(f"{recipe.name}.encoder.{path}", value)
    mixing: dict[str, Any] = {"attn_layers": []}
    for each in blocks:
        told = _told(each.mixer, encoder.width)
        clash = any(mixing.setdefault(name, value) != value for name, value in told.items())
        if not told or clash or (causal and getattr(each.mixer, "after", 0)):
            raise _absent(f"{recipe.name}.encoder.stack.block.mixer", each.mixer)
        mixing["attn_layers"].append("lsh" if isinstance(each.mixer, LSH) else "local")
    assert isinstance(ffn, FeedForward)
    rates = [embed.dropout, block.dropout, ffn.dropout, stack.dropout]
    rates += [positions.dropout] if isinstance(positions, AxialPositions) else []
    if len(set(rates)) > 1:
        needed = "the Hugging Face class has one rate for all but attention"
        raise RecipeError(f"{recipe.name}.encoder", f"rates of dropout {rates}", needed, "set all to the same rate")
    return {
        "model_type": "reformer",
        "architectures": [class_of(recipe, HEADS)],
        "is_decoder": causal,
        "vocab_size": encoder.vocab,
        "hidden_size": encoder.width,
        **mixing,
        "feed_forward_size": ffn.inner,
        "chunk_size_feed_forward": ffn.chunk or 0,
        "hidden_act": names[ffn.activation],
        "hidden_dropout_prob": block.dropout,
        **_grid(positions),
        "layer_norm_eps": block.eps,
        "initializer_range": encoder.init,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }


def _absent(where: str, value: object) -> RecipeError:
    return RecipeError(where, value, "the Hugging Face class has no such part", "keep the model in its own format")


def _told(mixer: Mixer, width: int) -> dict[str, Any]:
    """What the config says of a mixer, once for all of its kind; nothing of one that the class does not have."""
    if not isinstance(mixer, LSH | LocalAttention):
        return {}
    kind = "lsh" if isinstance(mixer, LSH) else "local"
    told: dict[str, Any] = {
        "num_attention_heads": mixer.heads,
        "attention_head_size": mixer.head_width or width // mixer.heads,
        f"{kind}_attn_chunk_length": mixer.chunk,
        f"{kind}_num_chunks_before": mixer.before,
        f"{kind}_num_chunks_after": mixer.after,
        f"{kind}_attention_probs_dropout_prob": mixer.dropout,
    }
    if isinstance(mixer, LSH):
        buckets = list(mixer.buckets) if isinstance(mixer.buckets, tuple) else mixer.buckets
        told |= {"num_hashes": mixer.rounds, "num_buckets": buckets, "hash_seed": mixer.seed or None}
    return told


def _grid(positions: object) -> dict[str, Any]:
    if isinstance(positions, LearnedPositions):
        return {"axial_pos_embds": False, "max_position_embeddings": positions.length}
    assert isinstance(positions, AxialPositions)
    return {
        "axial_pos_embds": True,
        "axial_pos_shape": list(positions.shape),
        "axial_pos_embds_dim": list(positions.widths),
        "axial_norm_std": DEFAULTS["axial_norm_std"] if positions.deviation is None else positions.deviation,
        "max_position_embeddings": positions.length,
    }


def arrive(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
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


def leave(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    if POSITIONS + "rows" in tensors:
        tensors[POSITIONS + "rows"] = tensors[POSITIONS + "rows"][:, None].contiguous()
        tensors[POSITIONS + "columns"] = tensors[POSITIONS + "columns"][None].contiguous()
    for index, loss in enumerate(recipe.objective.losses):
        name, table = f"heads.{loss.name}.", tensors["encoder.embed.words.table.weight"]
        if isinstance(loss, NextToken) and loss.tied and name + "dense.weight" in tensors:
            tensors[name + "head.weight"] = table @ tensors.pop(name + "dense.weight")
        if name + "head.weight" not in tensors:
            raise _absent(f"{recipe.name}.objective.losses.{index}", loss)
        if bool(tensors.setdefault(name + "bias", torch.zeros(len(table))).any()):
            needed = "the Hugging Face class adds none"
            raise RecipeError(f"{recipe.name}.objective.losses.{index}.bias", True, needed, "train it without")


FAMILY = Family(
    model_type="reformer",
    names=NAMES,
    tied={},
    prefix="reformer.",
    read=read,
    write=write,
    layers=head_names,
    import_hook=arrive,
    export_hook=leave,
    heads=TASKS,
    template=roberta.FRAME,
)
