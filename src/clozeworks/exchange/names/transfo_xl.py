"""Transformer-XL's names and config, as Hugging Face's last class (4.35) and as the authors' state dicts have them.

Queries, keys and values are stored as one product; the table of words and, of most clusters, the projections are those
of the way in. The authors' softmax counts the entries of its clusters from the end, and their u and v, one pair for all
layers, stand at the top.
"""

from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.names import Family, Names
from clozeworks.exchange.names.bert import class_of
from clozeworks.model import Encoder
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.bias.within import Within
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixer import Bias
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.stack import Share, Stack
from clozeworks.nn.words import Adaptive
from clozeworks.objectives.losses.adaptive_next_token import AdaptiveNextToken
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Loss, Objective
from clozeworks.objectives.segments.stream import Stream
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe

DEFAULTS: dict[str, Any] = {
    "vocab_size": 267735,
    "cutoffs": [20000, 40000, 200000],
    "d_model": 1024,
    "d_embed": 1024,
    "n_head": 16,
    "d_head": 64,
    "d_inner": 4096,
    "div_val": 4,
    "pre_lnorm": False,
    "n_layer": 18,
    "mem_len": 1600,
    "clamp_len": 1000,
    "same_length": True,
    "attn_type": 0,
    "sample_softmax": -1,
    "dropout": 0.1,
    "dropatt": 0.0,
    "untie_r": True,
    "init_std": 0.02,
    "layer_norm_epsilon": 1e-5,
}
HEADS: dict[str, tuple[str, ...]] = {"TransfoXLLMHeadModel": ("next_token",), "TransfoXLModel": ()}
LAYER, BLOCK = "transformer.layers.{i}.", "encoder.stack.blocks.{i}."
WORDS, HEAD, BIAS = "encoder.embed.words.", "heads.next_token.", "mixer.bias."
JOINED, SHARED, TOP, CONSTANT = "mixer.joined", "shared.", "top.", "constant."  # as stored there; never built
NAMES: Names = (
    (WORDS + "tables.{i}", "transformer.word_emb.emb_layers.{i}"),
    (WORDS + "projections.{i}.weight", "transformer.word_emb.emb_projs.{i}"),
    (BLOCK + JOINED, LAYER + "dec_attn.qkv_net"),
    (BLOCK + "mixer.out", LAYER + "dec_attn.o_net"),
    (BLOCK + BIAS + "position", LAYER + "dec_attn.r_net"),
    (BLOCK + BIAS + "u", LAYER + "dec_attn.r_w_bias"),
    (BLOCK + BIAS + "v", LAYER + "dec_attn.r_r_bias"),
    (BLOCK + "mixer_norm", LAYER + "dec_attn.layer_norm"),
    (BLOCK + "ffn.up", LAYER + "pos_ff.CoreNet.0"),
    (BLOCK + "ffn.down", LAYER + "pos_ff.CoreNet.3"),
    (BLOCK + "ffn_norm", LAYER + "pos_ff.layer_norm"),
    (SHARED + "u", "transformer.r_w_bias"),
    (SHARED + "v", "transformer.r_r_bias"),
    (TOP + "u", "r_w_bias"),
    (TOP + "v", "r_r_bias"),
    (CONSTANT + "frequencies", "transformer.pos_emb.inv_freq"),
    (HEAD + "clusters.weight", "crit.cluster_weight"),
    (HEAD + "clusters.bias", "crit.cluster_bias"),
    (HEAD + "biases.{i}", "crit.out_layers.{i}.bias"),
    (HEAD + "projections.{i}.weight", "crit.out_projs.{i}"),
)
TIED = {f"crit.out_layers.{k}.weight": f"{WORDS}tables.{k}.weight" for k in range(32)}


def read(config: dict[str, Any], found: tuple[str, ...]) -> Recipe:
    config = DEFAULTS | config
    width, inner, clamp = config["d_model"], config["d_embed"], config["clamp_len"]
    for name, needed in (("attn_type", 0), ("d_head", width // config["n_head"])):
        if config[name] != needed:
            todo = "choose a model with relative positions and heads that share its width"
            raise InputError("config.json", f"{name} {config[name]}", f"{name} {needed} is supported", todo)
    plain = not config["cutoffs"] and config["div_val"] == 1 and inner == width
    words = None if plain else Adaptive(tuple(config["cutoffs"]) or (config["vocab_size"],), config["div_val"])
    dropout, bias = config["dropout"], _bias(config, Relative(clamp if clamp > 0 else None, dropout=config["dropout"]))
    block = Block(
        Attention(config["n_head"], config["dropatt"], bias, affine=False),
        FeedForward(config["d_inner"], "relu", dropout),
        norm=LayerNorm(config["layer_norm_epsilon"]),
        place="pre" if config["pre_lnorm"] else "post",
        dropout=dropout,
    )
    share = Share(bias=None if config["untie_r"] else 1)
    encoder = Encoder(
        width=width,
        vocab=config["vocab_size"],
        embed=Embed(None, 0, None, dropout, None if inner == width else inner, scale=True, words=words),
        stack=Stack(config["n_layer"], block, share, config["mem_len"], dropout=dropout),
        init=config["init_std"],
    )
    ties = config.get("tie_projs") or []
    own = tuple(k for k in range(len(config["cutoffs"]) + 1) if k >= len(ties) or not ties[k])
    head: Loss = NextToken(bias=True) if plain else AdaptiveNextToken(own=own if "tie_projs" in config else (0,))
    segments = Stream(length=config.get("tgt_len") or 128)
    losses = (head,) if "next_token" in found else ()
    return Recipe("transformer_xl", encoder, Objective(segments, Shift(), losses), Train(learning_rate=2.5e-4))


def _bias(config: dict[str, Any], bias: Bias) -> Bias:
    return Within(config["mem_len"], bias) if config["same_length"] and config["mem_len"] else bias


def arrive(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    stack, embed = recipe.encoder.stack, recipe.encoder.embed
    tensors.pop(CONSTANT + "frequencies", None)
    authors = TOP + "u" in tensors and bool(recipe.objective.losses)
    for part in ("u", "v"):
        common = [tensors.pop(where + part) for where in (TOP, SHARED) if where + part in tensors]
        if common:
            stack.share.bias = 1
            for layer in range(stack.depth):
                name = BLOCK.replace("{i}", str(layer)) + BIAS + part
                same = tensors.pop(name, common[0]).equal(common[0])
                _twin(same, f"dec_attn.{part} of layer {layer}")
            tensors[BLOCK.replace("{i}", "0") + BIAS + part] = common[0]
    clusters = [name for name in (HEAD + "clusters.weight", HEAD + "clusters.bias") if name in tensors]
    for name in clusters:
        tensors[name] = tensors[name].flip(0).contiguous() if authors else tensors[name]
    biases = sorted((name for name in tensors if name.startswith(HEAD + "biases.")), key=_number)
    if biases:
        tensors[HEAD + "bias"] = torch.cat([tensors.pop(name) for name in biases])
    _projections(recipe, tensors)
    if embed.words is None:
        tensors[WORDS + "table.weight"] = tensors.pop(WORDS + "tables.0.weight")
    for name in list(tensors):
        if f".{JOINED}." in name:
            for part, tensor in zip(("query", "key", "value"), tensors.pop(name).chunk(3), strict=True):
                tensors[name.replace("joined", part)] = tensor.contiguous()
    if isinstance(_mixer(recipe).bias, Within):
        for name in [name for name in tensors if f".{BIAS}" in name]:
            tensors[name.replace(f".{BIAS}", f".{BIAS}bias.")] = tensors.pop(name)


def _projections(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """Of the projections on the way out those of clusters without one of their own are those of the way in."""
    for loss in recipe.objective.losses:
        for name in [name for name in tensors if name.startswith(HEAD + "projections.")]:
            cluster = _number(name)
            if isinstance(loss, AdaptiveNextToken) and cluster not in loss.own:
                words = recipe.encoder.embed.words
                twin = cluster if isinstance(words, Adaptive) and words.divide > 1 else 0
                _twin(tensors.pop(name).equal(tensors[f"{WORDS}projections.{twin}.weight"]), f"out_projs.{cluster}")


def _twin(same: bool, name: str) -> None:
    if not same:
        raise InputError(
            "weights", f"{name} differs from its tied twin", "it is tied by the config", "check the config"
        )


def _number(name: str) -> int:
    """That in the name of a cluster's tensor."""
    return next(int(part) for part in name.split(".") if part.isdigit())


def _mixer(recipe: Recipe) -> Attention:
    mixer = recipe.encoder.stack.block_at(0).mixer
    assert isinstance(mixer, Attention)
    return mixer


def write(recipe: Recipe) -> dict[str, Any]:
    encoder, stack, embed = recipe.encoder, recipe.encoder.stack, recipe.encoder.embed
    block = stack.block_at(0)
    mixer, ffn, bias = block.mixer, block.ffn, getattr(block.mixer, "bias", None)
    relative = bias.bias if isinstance(bias, Within) else bias
    losses = [loss for loss in recipe.objective.losses if isinstance(loss, NextToken | AdaptiveNextToken)]
    rates = {embed.dropout, stack.dropout, block.dropout, getattr(ffn, "dropout", 0), getattr(relative, "dropout", 0)}
    facts = (
        (embed.positions is None and not embed.segments and embed.norm is None, "embed", embed),
        (embed.words is None or isinstance(embed.words, Adaptive), "embed.words", embed.words),
        (embed.scale and not embed.project, "embed.scale", embed.scale),
        (embed.words is not None or embed.width in (None, encoder.width), "embed.width", embed.width),
        (isinstance(mixer, Attention) and not mixer.affine and mixer.window is None, "stack.block.mixer", mixer),
        (isinstance(relative, Relative) and not relative.segments, "stack.block.mixer.bias", bias),
        (not isinstance(bias, Within) or bias.reach == stack.memory, "stack.block.mixer.bias.reach", bias),
        (isinstance(ffn, FeedForward) and ffn.activation == "relu", "stack.block.ffn", ffn),
        (all(stack.block_at(n) == block for n in range(stack.depth)), "stack.block", stack.block),
        (type(stack) is Stack and block.cross is None and stack.norm is None and block.place != "none", "stack", stack),
        ({stack.share.attention, stack.share.ffn} <= {None, stack.depth}, "stack.share", stack.share),
        (stack.share.bias in (None, 1, stack.depth), "stack.share.bias", stack.share.bias),
        (len(rates) == 1, "stack.block.dropout", f"one of the rates {sorted(rates)}"),
        (
            all(not isinstance(loss, NextToken) or (loss.bias and loss.tied) for loss in losses),
            "losses",
            "a softmax without a bias, or untied",
        ),
    )
    for holds, path, value in facts:
        if not holds:
            needed, todo = "the Hugging Face class has no such part", "keep the model in its own format"
            raise RecipeError(f"{recipe.name}.encoder.{path}", value, needed, todo)
    assert isinstance(mixer, Attention)
    assert isinstance(relative, Relative)
    assert isinstance(ffn, FeedForward)
    clusters = embed.words if isinstance(embed.words, Adaptive) else None
    ends = (encoder.vocab,) if clusters is None else clusters.ends(encoder.vocab)
    own = next((loss.own for loss in losses if isinstance(loss, AdaptiveNextToken)), (0,))
    return {
        "model_type": "transfo-xl",
        "architectures": [class_of(recipe, HEADS)],
        "vocab_size": encoder.vocab,
        "cutoffs": list(ends[:-1]),
        "d_model": encoder.width,
        "d_embed": embed.width or encoder.width,
        "n_head": mixer.heads,
        "d_head": encoder.width // mixer.heads,
        "d_inner": ffn.inner,
        "div_val": 1 if clusters is None else clusters.divide,
        "pre_lnorm": block.place == "pre",
        "n_layer": stack.depth,
        "mem_len": stack.memory,
        "clamp_len": relative.clamp or -1,
        "same_length": isinstance(bias, Within),
        "attn_type": 0,
        "sample_softmax": -1,
        "adaptive": True,
        "dropout": block.dropout,
        "dropatt": mixer.dropout,
        "untie_r": stack.share.bias in (None, stack.depth),
        "init_std": encoder.init,
        "layer_norm_epsilon": block.eps,
        "tie_projs": [k not in own for k in range(len(ends))],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def leave(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    write(recipe)  # what the class does not have is refused before its tensors are taken apart
    stack, embed, vocab = recipe.encoder.stack, recipe.encoder.embed, recipe.encoder.vocab
    even = torch.arange(0.0, recipe.encoder.width, 2.0) / recipe.encoder.width
    tensors[CONSTANT + "frequencies"] = 1 / 10000**even
    if WORDS + "table.weight" in tensors:
        tensors[WORDS + "tables.0.weight"] = tensors.pop(WORDS + "table.weight")
    for name in [name for name in tensors if f".{BIAS}bias." in name]:
        tensors[name.replace(f".{BIAS}bias.", f".{BIAS}")] = tensors.pop(name)
    for name in [name for name in tensors if ".mixer.query." in name]:
        three = [tensors.pop(name.replace("query", part)) for part in ("query", "key", "value")]
        tensors[name.replace("query", "joined")] = torch.cat(three)
    if stack.share.bias == 1 < stack.depth:
        for part in ("u", "v"):
            tensors[SHARED + part] = tensors[BLOCK.replace("{i}", "0") + BIAS + part].clone()
            for layer in range(1, stack.depth):
                tensors[BLOCK.replace("{i}", str(layer)) + BIAS + part] = tensors[SHARED + part].clone()
    if HEAD + "bias" in tensors:
        bias = tensors.pop(HEAD + "bias")
        clusters = embed.words if isinstance(embed.words, Adaptive) and embed.words.divide > 1 else None
        ends = (vocab,) if clusters is None else clusters.ends(vocab)
        for k, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
            tensors[f"{HEAD}biases.{k}"] = bias[begin:end].clone()


FAMILY = Family(
    model_type="transfo-xl",
    names=NAMES,
    tied=TIED,
    prefix="transformer.",
    read=read,
    write=write,
    import_hook=arrive,
    export_hook=leave,
)
