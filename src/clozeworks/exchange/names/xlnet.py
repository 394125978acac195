"""XLNet's names and config. Its products are stored by head, as (D, H, d)."""

import dataclasses
from typing import Any, Literal

from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.heads import CLASSES, Head, answers
from clozeworks.exchange.names import Family, Names
from clozeworks.exchange.names.bert import ACTIVATIONS, class_of, shares
from clozeworks.model import Encoder
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.two_stream import TwoStream
from clozeworks.objectives.losses.permuted_lm import PermutedLM
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.permute import Permute
from clozeworks.objectives.segments import FullSentences
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.template import InputTemplate

DEFAULTS = {
    "vocab_size": 32000,
    "d_model": 1024,
    "n_layer": 24,
    "n_head": 16,
    "d_inner": 4096,
    "ff_activation": "gelu",  # by erf, where the released code has tanh
    "attn_type": "bi",
    "clamp_len": -1,
    "dropout": 0.1,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
}
HEADS: dict[str, tuple[str, ...]] = {"XLNetLMHeadModel": ("permuted_lm",), "XLNetModel": ()}
LAYER, BLOCK, BLANK = "transformer.layer.{i}.", "encoder.stack.blocks.{i}.", "encoder.stack.blank"
TURNED = ("query", "key", "value", "bias.position")  # W^T there
NAMES: Names = (
    ("encoder.embed.words.table", "transformer.word_embedding"),
    (BLANK, "transformer.mask_emb"),
    (BLOCK + "mixer.query.weight", LAYER + "rel_attn.q"),
    (BLOCK + "mixer.key.weight", LAYER + "rel_attn.k"),
    (BLOCK + "mixer.value.weight", LAYER + "rel_attn.v"),
    (BLOCK + "mixer.out.weight", LAYER + "rel_attn.o"),
    (BLOCK + "mixer.bias.position.weight", LAYER + "rel_attn.r"),
    (BLOCK + "mixer.bias.u", LAYER + "rel_attn.r_w_bias"),
    (BLOCK + "mixer.bias.v", LAYER + "rel_attn.r_r_bias"),
    (BLOCK + "mixer.bias.w", LAYER + "rel_attn.r_s_bias"),
    (BLOCK + "mixer.bias.segment", LAYER + "rel_attn.seg_embed"),
    (BLOCK + "mixer_norm", LAYER + "rel_attn.layer_norm"),
    (BLOCK + "ffn.up", LAYER + "ff.layer_1"),
    (BLOCK + "ffn.down", LAYER + "ff.layer_2"),
    (BLOCK + "ffn_norm", LAYER + "ff.layer_norm"),
    ("heads.permuted_lm.bias", "lm_loss.bias"),
)
PLACES: tuple[Literal["last", "first"], ...] = ("last", "first")  # the published one, and where [CLS] opens a text
TWO = (("summary.dense", "sequence_summary.summary"), ("out", "logits_proj"))
FIXED = {"summary_use_proj": True, "summary_activation": "tanh"}
RATE = "summary_last_dropout"
TASKS = (
    *(
        Head(name, tasks, TWO, Summary(place, "own"), RATE, 0.1, fixed={"summary_type": place, **FIXED})
        for place in PLACES
        for name, tasks in (("XLNetForSequenceClassification", CLASSES), ("XLNetForMultipleChoice", ("choice",)))
    ),
    Head("XLNetForTokenClassification", ("tag",), (("out", "classifier"),), usual=0.0),
    dataclasses.replace(answers("XLNet"), name="XLNetForQuestionAnsweringSimple"),
)


def read(config: dict[str, Any], found: tuple[str, ...]) -> Recipe:
    """What the class remembers between calls is no part of its weights: the model read has no memory."""
    config = DEFAULTS | config
    if "XLNetForQuestionAnswering" in (config.get("architectures") or ()):
        needed = "its end of an answer is predicted from its start, which no head here does"
        raise InputError("config.json", "XLNetForQuestionAnswering", needed, "take XLNetForQuestionAnsweringSimple")
    for name, known in (("attn_type", {"bi": None}), ("ff_activation", ACTIVATIONS)):
        if config[name] not in known:
            given, needed = f"{name} {config[name]}", f"one of {', '.join(known)} is supported"
            raise InputError("config.json", given, needed, "choose a model with one of them")
    rate, clamp = config["dropout"], config["clamp_len"]
    bias = Relative(clamp if clamp > 0 else None, segments=True, dropout=rate)
    mixer = Attention(config["n_head"], rate, bias, affine=False)
    ffn = FeedForward(config["d_inner"], ACTIVATIONS[config["ff_activation"]], rate)
    block = Block(mixer, ffn, norm=LayerNorm(config["layer_norm_eps"]), dropout=rate)
    encoder = Encoder(
        width=config["d_model"],
        vocab=config["vocab_size"],
        embed=Embed(None, segments=0, norm=None, dropout=rate),
        stack=TwoStream(config["n_layer"], block, dropout=rate),
        init=config["initializer_range"],
    )
    losses = tuple(PermutedLM() for _ in found)
    train = Train(learning_rate=1e-4, optimizer=AdamW(eps=1e-6))
    return Recipe("xlnet", encoder, Objective(FullSentences(length=128), Permute(), losses), train)


def write(recipe: Recipe) -> dict[str, Any]:
    encoder, stack, embed = recipe.encoder, recipe.encoder.stack, recipe.encoder.embed
    block = stack.block_at(0)
    mixer, ffn = block.mixer, block.ffn
    bias = mixer.bias if isinstance(mixer, Attention) else None
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    words = Embed(None, segments=0, norm=None, dropout=embed.dropout)
    facts = (
        (isinstance(stack, TwoStream) and stack.norm is None, "stack", stack),
        (embed == words, "embed", embed),
        (isinstance(mixer, Attention) and not mixer.affine and mixer.window is None, "stack.block.mixer", mixer),
        (isinstance(bias, Relative) and bias.segments, "stack.block.mixer.bias", bias),
        (isinstance(ffn, FeedForward) and ffn.activation in names, "stack.block.ffn", ffn),
        (all(stack.block_at(n) == block for n in range(stack.depth)), "stack.block", stack.block),
        (block.place == "post" and block.cross is None, "stack.block", block),
        (not shares(stack) and stack.share.bias in (None, stack.depth), "stack.share", stack.share),
        (encoder.pooler is None, "pooler", encoder.pooler),
        (
            all(loss.bias and loss.tied for loss in recipe.objective.losses if isinstance(loss, PermutedLM)),
            "losses",
            "no bias, or a table of its own",
        ),
    )
    for holds, path, value in facts:
        if not holds:
            needed, todo = "the Hugging Face class has no such part", "keep the model in its own format"
            raise RecipeError(f"{recipe.name}.encoder.{path}", value, needed, todo)
    assert isinstance(mixer, Attention)
    assert isinstance(bias, Relative)
    assert isinstance(ffn, FeedForward)
    rates = (embed.dropout, block.dropout, mixer.dropout, bias.dropout, ffn.dropout, stack.dropout)
    if len(set(rates)) > 1:
        needed = "the Hugging Face class has one rate for all"
        raise RecipeError(f"{recipe.name}.encoder", f"rates of dropout {rates}", needed, "set all to the same rate")
    return {
        "model_type": "xlnet",
        "architectures": [class_of(recipe, HEADS)],
        "vocab_size": encoder.vocab,
        "d_model": encoder.width,
        "n_layer": stack.depth,
        "n_head": mixer.heads,
        "d_inner": ffn.inner,
        "ff_activation": names[ffn.activation],
        "attn_type": "bi",
        "clamp_len": bias.clamp or -1,
        "dropout": block.dropout,
        "layer_norm_eps": block.eps,
        "initializer_range": encoder.init,
        "mem_len": stack.memory or None,
        "use_mems_eval": bool(stack.memory),
        "reuse_len": getattr(recipe.objective.segments, "reuse", None),
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def arrive(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if name == BLANK:
            tensors[name] = tensor.flatten()
        elif _product(name) and tensor.ndim == 3:
            flat = tensor.flatten(1)
            tensors[name] = (flat.t() if name.removesuffix(".weight").endswith(TURNED) else flat).contiguous()


def leave(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    heads = getattr(recipe.encoder.stack.block_at(0).mixer, "heads", 1)
    for name, tensor in tensors.items():
        if name == BLANK:
            tensors[name] = tensor[None, None]
        elif _product(name):
            flat = tensor.t() if name.removesuffix(".weight").endswith(TURNED) else tensor
            tensors[name] = flat.unflatten(1, (heads, -1)).contiguous()


def _product(name: str) -> bool:
    return ".mixer." in name and name.endswith(".weight")


FAMILY = Family(
    model_type="xlnet",
    names=NAMES,
    tied={"lm_loss.weight": "encoder.embed.words.table.weight"},
    prefix="transformer.",
    read=read,
    write=write,
    import_hook=arrive,
    export_hook=leave,
    heads=TASKS,
    template=InputTemplate((), ("<sep>",), ("<sep>", "<cls>"), "last"),
)
