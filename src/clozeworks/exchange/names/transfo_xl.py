"""Transformer-XL's names and config, as Hugging Face's last class (4.35) and as the authors' state dicts have them.

Queries, keys and values are stored as one product; the table of words and, of most clusters, the projections are those
of the way in. The authors' softmax counts the entries of its clusters from the end, and their u and v, one pair for all
layers, stand at the top.
"""

import copy
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.config_table import (
    CONFIG,
    NO_SUCH_PART,
    NONE_AS_MINUS_ONE,
    OWN_FORMAT,
    ConfigTable,
    Constant,
    Convert,
    Field,
)
from clozeworks.exchange.names import Family, Names, bert
from clozeworks.model import Encoder
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.bias.within import Within
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.stack import Stack
from clozeworks.nn.words import Adaptive
from clozeworks.objectives.losses.adaptive_next_token import AdaptiveNextToken
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments.stream import Stream
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe

DEFAULTS: dict[str, Any] = {  # of what the table of fields does not say
    "cutoffs": [20000, 40000, 200000],
    "d_embed": 1024,
    "d_head": 64,
    "div_val": 4,
    "same_length": True,
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


def blank() -> Recipe:
    """Transformer-XL's recipe before a config fills in its sizes and rates."""
    mixer = Attention(0, bias=Relative(), affine=False)
    stack = Stack(0, Block(mixer, FeedForward(0, "relu")))
    encoder = Encoder(0, 0, Embed(None, segments=0, norm=None, scale=True), stack)
    return Recipe("transformer_xl", encoder, Objective(Stream(), Shift(), ()), Train(learning_rate=2.5e-4))


OURS, STACK = "encoder.stack.block.", "encoder.stack."
RATES = ("encoder.embed.dropout", STACK + "dropout", OURS + "ffn.dropout", OURS + "mixer.bias.dropout")
PRE_NORM = Convert(lambda pre: "pre" if pre else "post", lambda place: place == "pre")
UNTIED = Convert(lambda untied: None if untied else 1, lambda groups: groups is None)
OTHER_HEADS = "choose a model with relative positions and heads that share its width"
TABLE = ConfigTable(
    blank,
    (
        Field("vocab_size", "encoder.vocab", default=267735),
        Field("d_model", "encoder.width", default=1024),
        Field("n_head", OURS + "mixer.heads", default=16),
        Field("d_inner", OURS + "ffn.inner", default=4096),
        Field("pre_lnorm", OURS + "place", default=False, convert=PRE_NORM),
        Field("n_layer", STACK + "depth", default=18),
        Field("mem_len", STACK + "memory", default=1600),
        Field("initial_memory", STACK + "initial_memory", default="empty"),  # ours: their class begins with zeros
        Field("clamp_len", OURS + "mixer.bias.clamp", default=1000, convert=NONE_AS_MINUS_ONE),
        Constant("attn_type", 0, "attn_type 0 is supported", OTHER_HEADS),
        Constant("sample_softmax", -1),
        Constant("adaptive", True),
        Field("dropout", OURS + "dropout", RATES, default=0.1),
        Field("dropatt", OURS + "mixer.dropout", default=0.0),
        Field("untie_r", STACK + "share.bias", default=True, convert=UNTIED),
        Field("init_std", "encoder.init", default=0.02),
        Field("layer_norm_epsilon", OURS + "norm.eps", default=1e-5),
        Constant("tie_word_embeddings", True),
        Constant("torch_dtype", "float32"),
    ),
    unsaid=("encoder.pooler",),
)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """The recipe of a config: clusters of words where it cuts or narrows the vocabulary, else one plain table."""
    recipe, config = TABLE.read(config), DEFAULTS | config
    encoder, memory, mixer = recipe.encoder, recipe.encoder.stack.memory, _mixer(recipe)
    if config["d_head"] != encoder.width // mixer.heads:
        needed = f"d_head {encoder.width // mixer.heads} is supported"
        raise InputError(CONFIG, f"d_head {config['d_head']}", needed, OTHER_HEADS)
    if config["same_length"] and memory:
        assert mixer.bias is not None
        mixer.bias = Within(memory, mixer.bias)
    narrow = None if config["d_embed"] == encoder.width else config["d_embed"]
    plain = not config["cutoffs"] and config["div_val"] == 1 and narrow is None
    encoder.embed.width = narrow
    encoder.embed.words = None if plain else Adaptive(tuple(config["cutoffs"]) or (encoder.vocab,), config["div_val"])
    recipe.objective.segments.length = config.get("tgt_len") or 128
    if "next_token" in losses:
        recipe.objective.losses = (NextToken(bias=True) if plain else AdaptiveNextToken(own=_own_projections(config)),)
    return recipe


def _own_projections(config: dict[str, Any]) -> tuple[int, ...]:
    """The clusters whose projection on the way out is not that of the way in."""
    if "tie_projs" not in config:
        return (0,)
    ties = config["tie_projs"] or []
    return tuple(k for k in range(len(config["cutoffs"]) + 1) if k >= len(ties) or not ties[k])


def import_hook(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """Our tensors from theirs: one u and v where all layers share it, three products from the joined one, one bias of
    the softmax from those of its clusters. What a file has twice must be equal."""
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
                _check_twin(same, f"dec_attn.{part} of layer {layer}")
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
                _check_twin(
                    tensors.pop(name).equal(tensors[f"{WORDS}projections.{twin}.weight"]), f"out_projs.{cluster}"
                )


def _check_twin(same: bool, name: str) -> None:
    if not same:
        needed = "it is tied by the config"
        raise InputError("weights", f"{name} differs from its tied twin", needed, "check the config")


def _number(name: str) -> int:
    """That in the name of a cluster's tensor."""
    return next(int(part) for part in name.split(".") if part.isdigit())


def _mixer(recipe: Recipe) -> Attention:
    mixer = recipe.encoder.stack.block_at(0).mixer
    assert isinstance(mixer, Attention)
    return mixer


def write(recipe: Recipe) -> dict[str, Any]:
    """The config of a recipe, and what its clusters of words and its reach say of it."""
    encoder, words = recipe.encoder, recipe.encoder.embed.words
    config = TABLE.write(_plain(recipe))
    for loss in recipe.objective.losses:
        if isinstance(loss, NextToken) and not (loss.bias and loss.tied):
            given = "a softmax without a bias, or untied"
            raise RecipeError(f"{recipe.name}.encoder.losses", given, NO_SUCH_PART, OWN_FORMAT)
    ends = words.ends(encoder.vocab) if isinstance(words, Adaptive) else (encoder.vocab,)
    own = next((loss.own for loss in recipe.objective.losses if isinstance(loss, AdaptiveNextToken)), (0,))
    return {
        "model_type": "transfo-xl",
        "architectures": [bert.class_of(recipe, HEADS)],
        **config,
        "cutoffs": list(ends[:-1]),
        "d_embed": encoder.embed.width or encoder.width,
        "d_head": encoder.width // _mixer(recipe).heads,
        "div_val": words.divide if isinstance(words, Adaptive) else 1,
        "same_length": isinstance(_mixer(recipe).bias, Within),
        "tie_projs": [k not in own for k in range(len(ends))],
    }


def _plain(recipe: Recipe) -> Recipe:
    """The recipe without what the table of fields does not say: clusters of words, and a reach of the same length."""
    plain = copy.deepcopy(recipe)
    embed, stack = plain.encoder.embed, plain.encoder.stack
    if isinstance(embed.words, Adaptive):
        embed.words, embed.width = None, None
    for mixer in stack.mixers():
        bias = getattr(mixer, "bias", None)
        if isinstance(mixer, Attention) and isinstance(bias, Within):
            if bias.reach != stack.memory:
                raise RecipeError(f"{recipe.name}.{OURS}mixer.bias.reach", bias, NO_SUCH_PART, OWN_FORMAT)
            mixer.bias = bias.bias
    return plain


def export_hook(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The inverse of `import_hook`."""
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
    import_hook=import_hook,
    export_hook=export_hook,
)
