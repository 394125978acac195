"""BERT's names and config, and the part of both that RoBERTa shares."""

from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.heads import CLASSES, Head, answers
from clozeworks.exchange.names import Family
from clozeworks.model import Encoder, Pooler
from clozeworks.nn.activation import Activation
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.losses.span_boundary import SpanBoundary
from clozeworks.objectives.mask.spans import MaskSpans
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Loss, Objective
from clozeworks.objectives.segments import DocSentences, FullSentences, SegmentPair
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
DEFAULTS = {  # what a config may leave out
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
HEADS = {  # class -> losses it is pretrained with
    "BertForPreTraining": ("masked_lm", "sentence_pair"),
    "BertForMaskedLM": ("masked_lm",),
    "BertForNextSentencePrediction": ("sentence_pair",),
    "BertModel": (),
}


def encoder_names(prefix: str) -> tuple[tuple[str, str], ...]:
    layer, block = prefix + "encoder.layer.{i}.", "encoder.stack.blocks.{i}."
    return (
        ("encoder.embed.words.table", prefix + "embeddings.word_embeddings"),
        ("encoder.embed.positions.table", prefix + "embeddings.position_embeddings"),
        ("encoder.embed.segments", prefix + "embeddings.token_type_embeddings"),
        ("encoder.embed.norm", prefix + "embeddings.LayerNorm"),
        (block + "mixer.query", layer + "attention.self.query"),
        (block + "mixer.key", layer + "attention.self.key"),
        (block + "mixer.value", layer + "attention.self.value"),
        (block + "mixer.out", layer + "attention.output.dense"),
        (block + "mixer_norm", layer + "attention.output.LayerNorm"),
        (block + "ffn.up", layer + "intermediate.dense"),
        (block + "ffn.down", layer + "output.dense"),
        (block + "ffn_norm", layer + "output.LayerNorm"),
        ("encoder.pooler.dense", prefix + "pooler.dense"),
    )


HEAD_NAMES = (
    ("heads.masked_lm.dense", "cls.predictions.transform.dense"),
    ("heads.masked_lm.norm", "cls.predictions.transform.LayerNorm"),
    ("heads.masked_lm", "cls.predictions"),  # its bias
    ("heads.sentence_pair.out", "cls.seq_relationship"),
)
SPANS, THEIR_SPANS = "heads.span_boundary", "pair_target_predictions"  # SpanBERT's head; no Hugging Face class has it
NAMES = (
    *encoder_names("bert."),
    *HEAD_NAMES,
    (f"{SPANS}.positions", f"{THEIR_SPANS}.position_embeddings"),
    (f"{SPANS}.first", f"{THEIR_SPANS}.mlp_layer_norm.linear1"),
    (f"{SPANS}.first_norm", f"{THEIR_SPANS}.mlp_layer_norm.layer_norm1"),
    (f"{SPANS}.second", f"{THEIR_SPANS}.mlp_layer_norm.linear2"),
    (f"{SPANS}.second_norm", f"{THEIR_SPANS}.mlp_layer_norm.layer_norm2"),
    (SPANS, THEIR_SPANS),  # its bias
)
TIED = {
    "cls.predictions.decoder.weight": "encoder.embed.words.table.weight",
    "cls.predictions.decoder.bias": "heads.masked_lm.bias",
}


def task_heads(name: str, rate: str = "classifier_dropout", usual: float | None = None) -> tuple[Head, ...]:
    """Their classes of a name, whose heads read the pooled vector or every token."""
    out = (("out", "classifier"),)
    return (
        Head(f"{name}ForSequenceClassification", CLASSES, out, Summary(), rate, usual),
        Head(f"{name}ForMultipleChoice", ("choice",), out, Summary(), rate, usual),
        Head(f"{name}ForTokenClassification", ("tag",), out, None, rate, usual),
        answers(name),
    )


def read_encoder(config: dict[str, Any], where: str, offset: int = 0) -> Encoder:
    """The encoder a config describes; settings we have no part for are refused, not dropped."""
    config = DEFAULTS | config
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise InputError(where, "a decoder", "an encoder is needed", "load the encoder's directory")
    kind = config.get("position_embedding_type") or "absolute"
    if kind != "absolute":
        raise InputError(
            where, f"position_embedding_type {kind}", "absolute positions are supported", "convert the model"
        )
    if config["hidden_act"] not in ACTIVATIONS:
        raise InputError(
            where,
            f"hidden_act {config['hidden_act']}",
            f"one of {', '.join(ACTIVATIONS)} is supported",
            "choose a model with one of them",
        )
    norm = lambda: LayerNorm(config["layer_norm_eps"])  # noqa: E731
    positions = LearnedPositions(config["max_position_embeddings"] - offset, offset)
    dropout = config["hidden_dropout_prob"]
    mixer = Attention(config["num_attention_heads"], config["attention_probs_dropout_prob"])
    ffn = FeedForward(config["intermediate_size"], ACTIVATIONS[config["hidden_act"]])
    return Encoder(
        width=config["hidden_size"],
        vocab=config["vocab_size"],
        embed=Embed(positions, config["type_vocab_size"], norm(), dropout),
        stack=Stack(config["num_hidden_layers"], Block(mixer, ffn, norm=norm(), dropout=dropout)),
        pooler=Pooler(),
        init=config["initializer_range"],
    )


def write_encoder(recipe: Recipe, offset: int = 0, groups: bool = False, typed: bool = True) -> dict[str, Any]:
    """The config of an encoder, or a refusal that names the first part the family does not have.

    With `groups` the family has layers that share, and tables of another width; `typed`: it tells segments apart.
    """
    encoder, stack = recipe.encoder, recipe.encoder.stack
    block = stack.block_at(0)
    positions, mixer, ffn = encoder.embed.positions, block.mixer, block.ffn
    facts = (
        (isinstance(positions, LearnedPositions) and positions.offset == offset, "embed.positions", positions),
        (isinstance(mixer, Attention) and mixer == Attention(mixer.heads, mixer.dropout), "stack.block.mixer", mixer),
        (isinstance(ffn, FeedForward) and not ffn.dropout, "stack.block.ffn", ffn),
        (all(stack.block_at(n) == block for n in range(stack.depth)), "stack.block", stack.block),
        (block.place == "post" and block.cross is None, "stack.block", block),
        (type(stack) is Stack and stack.norm is None and not stack.memory and not stack.dropout, "stack", stack),
        (not encoder.embed.scale, "embed.scale", encoder.embed.scale),
        (groups or not shares(stack), "stack.share", stack.share),
        (groups or encoder.embed.width in (None, encoder.width), "embed.width", encoder.embed.width),
        (groups or not encoder.embed.project, "embed.project", encoder.embed.project),
        ((encoder.embed.segments > 0) == typed, "embed.segments", encoder.embed.segments),
        (encoder.embed.norm == block.norm, "embed.norm", encoder.embed.norm),
        (encoder.embed.dropout == block.dropout, "embed.dropout", encoder.embed.dropout),
    )
    for holds, path, value in facts:
        if not holds:
            raise RecipeError(
                f"{recipe.name}.encoder.{path}",
                value,
                "the Hugging Face class has no such part",
                "keep the model in its own format",
            )
    assert isinstance(positions, LearnedPositions)
    assert isinstance(mixer, Attention)
    assert isinstance(ffn, FeedForward)
    theirs = {ours: name for name, ours in reversed(ACTIVATIONS.items())}
    return {
        "vocab_size": encoder.vocab,
        "hidden_size": encoder.width,
        "num_hidden_layers": stack.depth,
        "num_attention_heads": mixer.heads,
        "intermediate_size": ffn.inner,
        "hidden_act": theirs[ffn.activation],
        "hidden_dropout_prob": block.dropout,
        "attention_probs_dropout_prob": mixer.dropout,
        "max_position_embeddings": positions.length + offset,
        "type_vocab_size": encoder.embed.segments,
        "initializer_range": encoder.init,
        "layer_norm_eps": block.eps,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }


def shares(stack: Stack) -> bool:
    """Whether some layers have the weights of others."""
    return any(groups not in (None, stack.depth) for groups in (stack.share.attention, stack.share.ffn))


def masked_lm(config: dict[str, Any]) -> MaskedLM:
    config = DEFAULTS | config
    return MaskedLM(activation=ACTIVATIONS[config["hidden_act"]], norm=LayerNorm(config["layer_norm_eps"]))


def check_head(recipe: Recipe, activation: Activation | None = None) -> None:
    """Their masked-LM head has no activation and norm of its own: it takes the encoder's, or the `activation` that its
    class has whatever the encoder's is. The head of spans is fixed."""
    block = recipe.encoder.stack.block_at(0)
    theirs = activation or getattr(block.ffn, "activation", None)
    for index, loss in enumerate(recipe.objective.losses):
        if isinstance(loss, SpanBoundary) and (loss.norm != LayerNorm() or loss.activation != "gelu"):
            raise RecipeError(
                f"{recipe.name}.objective.losses.{index}",
                loss,
                f"the published head has gelu and {LayerNorm()}",
                "keep the model in its own format",
            )
        if isinstance(loss, MaskedLM) and (loss.plain or loss.norm != block.norm or loss.activation != theirs):
            raise RecipeError(
                f"{recipe.name}.objective.losses.{index}",
                loss,
                f"the Hugging Face head uses the encoder's norm and {activation or 'activation'}",
                "keep the model in its own format",
            )


def class_of(recipe: Recipe, heads: dict[str, tuple[str, ...]], besides: tuple[str, ...] = ()) -> str:
    """The Hugging Face class with just these heads; it ignores those `besides`, whose tensors are in the file too."""
    names = tuple(loss.name for loss in recipe.objective.losses if loss.name not in besides)
    for name, losses in heads.items():
        if set(losses) == set(names):
            return name
    raise RecipeError(
        f"{recipe.name}.objective.losses",
        ", ".join(names),
        f"Hugging Face has {', '.join(heads)}",
        "keep the model in its own format",
    )


def read(config: dict[str, Any], found: tuple[str, ...]) -> Recipe:
    encoder = read_encoder(config, "config.json")
    heads: dict[str, Loss] = {
        "masked_lm": masked_lm(config),
        "sentence_pair": SentenceRelation(),
        "span_boundary": SpanBoundary(),
    }
    assert isinstance(encoder.embed.positions, LearnedPositions)
    length, spans = min(128, encoder.embed.positions.length), "span_boundary" in found
    segments = SegmentPair(length=length)
    if found and "sentence_pair" not in found:
        segments = DocSentences(length=length) if spans else FullSentences(length=length)
    losses = tuple(heads[name] for name in found)
    objective = Objective(segments, MaskSpans() if spans else MaskTokens(), losses)
    return Recipe("bert", encoder, objective, Train(learning_rate=1e-4))


def arrive(config: dict[str, Any], recipe: Recipe, found: dict[str, Tensor]) -> None:
    """How many places the head of spans knows, and how wide they are, is told by its table alone."""
    table = found.get(f"{SPANS}.positions.weight")
    for loss in recipe.objective.losses:
        if isinstance(loss, SpanBoundary) and table is not None:
            loss.longest, loss.positions = table.shape


def leave(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The class always tells segments apart: an encoder that does not has one, which adds nothing."""
    if not recipe.encoder.embed.segments:
        recipe.encoder.embed.segments = 1
        tensors["encoder.embed.segments.weight"] = torch.zeros(1, tensors["encoder.embed.words.table.weight"].shape[1])


def write(recipe: Recipe, heads: dict[str, tuple[str, ...]] = HEADS) -> dict[str, Any]:
    check_head(recipe)
    config = write_encoder(recipe)
    besides = ("span_boundary",) if heads is HEADS else ()
    return {"model_type": "bert", "architectures": [class_of(recipe, heads, besides)], **config}


FAMILY = Family(
    model_type="bert",
    names=NAMES,
    tied=TIED | {f"{THEIR_SPANS}.decoder.weight": "encoder.embed.words.table.weight"},
    prefix="bert.",
    read=read,
    write=write,
    import_hook=arrive,
    export_hook=leave,
    heads=task_heads("Bert"),
)
