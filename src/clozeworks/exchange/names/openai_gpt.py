"""GPT's names and config. Its products are stored as (in, out), and queries, keys and values as one."""

from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.heads import CLASSES, Head
from clozeworks.exchange.names import Family, Names
from clozeworks.exchange.names.bert import class_of
from clozeworks.model import Encoder
from clozeworks.nn.activation import Activation
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Loss, Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.template import InputTemplate

DEFAULTS = {
    "vocab_size": 40478,
    "n_positions": 512,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "afn": "gelu",
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
}
ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu_tanh", "relu": "relu"}
HEADS: dict[str, tuple[str, ...]] = {
    "OpenAIGPTLMHeadModel": ("next_token",),
    "OpenAIGPTModel": (),
}
LAYER, BLOCK = "transformer.h.{i}.", "encoder.stack.blocks.{i}."
JOINED = "mixer.joined"  # of the three, as stored there; never built
NAMES: Names = (
    ("encoder.embed.words.table", "transformer.tokens_embed"),
    ("encoder.embed.positions.table", "transformer.positions_embed"),
    (BLOCK + JOINED, LAYER + "attn.c_attn"),
    (BLOCK + "mixer.out", LAYER + "attn.c_proj"),
    (BLOCK + "mixer_norm", LAYER + "ln_1"),
    (BLOCK + "ffn.up", LAYER + "mlp.c_fc"),
    (BLOCK + "ffn.down", LAYER + "mlp.c_proj"),
    (BLOCK + "ffn_norm", LAYER + "ln_2"),
)
FRAME = InputTemplate(("_start_",), ("_delimiter_",), ("_classify_",), "last", segments=False)
TURNED = ("mixer.out.weight", "ffn.up.weight", "ffn.down.weight")
LAST = Summary("last", None)
FIXED = {"summary_type": "cls_index", "summary_activation": None, "summary_use_proj": True}
TASKS = (
    Head("OpenAIGPTForSequenceClassification", CLASSES, (("out", "score"),), LAST, usual=0.0, bias=False),
    Head(
        "OpenAIGPTDoubleHeadsModel",
        ("choice",),
        (("out", "multiple_choice_head.summary"),),
        LAST,
        "summary_first_dropout",
        usual=0.1,
        fixed=FIXED,
        besides=("next_token",),
    ),
)


def read(config: dict[str, Any], found: tuple[str, ...]) -> Recipe:
    config = DEFAULTS | config
    if config["afn"] not in ACTIVATIONS:
        known = f"one of {', '.join(ACTIVATIONS)} is supported"
        raise InputError("config.json", f"afn {config['afn']}", known, "choose a model with one of them")
    width, norm = config["n_embd"], LayerNorm(config["layer_norm_epsilon"])
    mixer, ffn = Attention(config["n_head"], config["attn_pdrop"]), FeedForward(4 * width, ACTIVATIONS[config["afn"]])
    encoder = Encoder(
        width=width,
        vocab=config["vocab_size"],
        embed=Embed(LearnedPositions(config["n_positions"]), segments=0, norm=None, dropout=config["embd_pdrop"]),
        stack=Stack(config["n_layer"], Block(mixer, ffn, norm=norm, dropout=config["resid_pdrop"])),
        init=config["initializer_range"],
    )
    segments = FullSentences(length=min(128, config["n_positions"]))
    bare = "OpenAIGPTModel" in (config.get("architectures") or ())  # the head has no tensor of its own
    losses: tuple[Loss, ...] = () if bare else (NextToken(),)
    return Recipe("gpt", encoder, Objective(segments, Shift(), losses), Train(learning_rate=1e-4))


def write(recipe: Recipe) -> dict[str, Any]:
    encoder, stack = recipe.encoder, recipe.encoder.stack
    block, positions = stack.block_at(0), encoder.embed.positions
    mixer, ffn = block.mixer, block.ffn
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    facts = (
        (isinstance(positions, LearnedPositions) and not positions.offset, "embed.positions", positions),
        (encoder.embed.segments == 0, "embed.segments", encoder.embed.segments),
        (encoder.embed.norm is None, "embed.norm", encoder.embed.norm),
        (
            encoder.embed.width in (None, encoder.width) and not encoder.embed.project,
            "embed.width",
            encoder.embed.width,
        ),
        (isinstance(mixer, Attention) and mixer == Attention(mixer.heads, mixer.dropout), "stack.block.mixer", mixer),
        (isinstance(ffn, FeedForward) and ffn.inner == 4 * encoder.width, "stack.block.ffn", ffn),
        (ffn is not None and not ffn.dropout, "stack.block.ffn", ffn),
        (ffn is not None and ffn.activation in names, "stack.block.ffn.activation", ffn and ffn.activation),
        (all(stack.block_at(n) == block for n in range(stack.depth)), "stack.block", stack.block),
        (block.place == "post" and block.cross is None, "stack.block", block),
        (type(stack) is Stack and stack.norm is None and not stack.memory and not stack.dropout, "stack", stack),
        (not encoder.embed.scale, "embed.scale", encoder.embed.scale),
        ({stack.share.attention, stack.share.ffn} <= {None, stack.depth}, "stack.share", stack.share),
        (
            all(not loss.bias and loss.tied for loss in recipe.objective.losses if isinstance(loss, NextToken)),
            "losses",
            "a bias or a table of its own",
        ),
    )
    for holds, path, value in facts:
        if not holds:
            needed, todo = "the Hugging Face class has no such part", "keep the model in its own format"
            raise RecipeError(f"{recipe.name}.encoder.{path}", value, needed, todo)
    assert isinstance(positions, LearnedPositions)
    assert isinstance(mixer, Attention)
    assert isinstance(ffn, FeedForward)
    return {
        "model_type": "openai-gpt",
        "architectures": [class_of(recipe, HEADS)],
        "vocab_size": encoder.vocab,
        "n_positions": positions.length,
        "n_embd": encoder.width,
        "n_layer": stack.depth,
        "n_head": mixer.heads,
        "afn": names[ffn.activation],
        "resid_pdrop": block.dropout,
        "embd_pdrop": encoder.embed.dropout,
        "attn_pdrop": mixer.dropout,
        "layer_norm_epsilon": block.eps,
        "initializer_range": encoder.init,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def arrive(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    for name in list(tensors):
        if name.endswith(TURNED):
            tensors[name] = tensors[name].t().contiguous()
        elif f".{JOINED}." in name:
            three = tensors.pop(name).chunk(3, -1)
            for part, tensor in zip(("query", "key", "value"), three, strict=True):
                ours = name.replace("joined", part)
                tensors[ours] = (tensor.t() if tensor.ndim == 2 else tensor).contiguous()


def leave(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    for name in list(tensors):
        if name.endswith(TURNED):
            tensors[name] = tensors[name].t().contiguous()
        elif ".mixer.query." in name:
            three = [tensors.pop(name.replace("query", part)) for part in ("query", "key", "value")]
            joined = torch.cat([each.t() if each.ndim == 2 else each for each in three], -1)
            tensors[name.replace("query", "joined")] = joined


FAMILY = Family(
    model_type="openai-gpt",
    names=NAMES,
    tied={"lm_head.weight": "encoder.embed.words.table.weight"},
    prefix="transformer.",
    read=read,
    write=write,
    import_hook=arrive,
    export_hook=leave,
    heads=TASKS,
    template=FRAME,
)
