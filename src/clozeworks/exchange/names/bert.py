"""BERT's names and config, and the part of both that RoBERTa shares."""

from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.config_table import CONFIG, OWN_FORMAT, ConfigTable, Constant, Field, absent
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
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
HEADS = {  # class -> losses it is pretrained with
    "BertForPreTraining": ("masked_lm", "sentence_pair"),
    "BertForMaskedLM": ("masked_lm",),
    "BertForNextSentencePrediction": ("sentence_pair",),
    "BertModel": (),
}


def encoder_names(prefix: str) -> tuple[tuple[str, str], ...]:
    """Names of an encoder of BERT's make, in a class that calls it by the prefix."""
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


def blank() -> Recipe:
    """BERT's recipe before a config fills in its sizes and rates."""
    encoder = Encoder(0, 0, Embed(), Stack(0, Block(Attention(0), FeedForward(0))), Pooler())
    return Recipe("bert", encoder, Objective(SegmentPair(), MaskTokens(), ()), Train(learning_rate=1e-4))


BLOCK, EMBED = "encoder.stack.block.", "encoder.embed."
TABLE = ConfigTable(
    blank,
    (
        Field("vocab_size", "encoder.vocab"),
        Field("hidden_size", "encoder.width"),
        Field("num_hidden_layers", "encoder.stack.depth"),
        Field("num_attention_heads", BLOCK + "mixer.heads"),
        Field("intermediate_size", BLOCK + "ffn.inner"),
        Field("hidden_act", BLOCK + "ffn.activation", default="gelu", codes=ACTIVATIONS),
        Field("hidden_dropout_prob", BLOCK + "dropout", (EMBED + "dropout",), default=0.1),
        Field("attention_probs_dropout_prob", BLOCK + "mixer.dropout", default=0.1),
        Field("max_position_embeddings", EMBED + "positions.length", default=512),
        Field("type_vocab_size", EMBED + "segments", default=2),
        Field("initializer_range", "encoder.init", default=0.02),
        Field("layer_norm_eps", BLOCK + "norm.eps", (EMBED + "norm.eps",), default=1e-12),
        Constant("position_embedding_type", "absolute", "absolute positions are supported", "convert the model"),
        Constant("tie_word_embeddings", True),
        Constant("torch_dtype", "float32"),
    ),
    unsaid=("encoder.pooler",),  # it is in the file or not
)


def read_encoder(config: dict[str, Any], table: ConfigTable = TABLE) -> Recipe:
    """The recipe that a config describes, without losses, for rows of the usual length or of as many positions."""
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise InputError(CONFIG, "a decoder", "an encoder is needed", "load the encoder's directory")
    recipe = table.read(config)
    recipe.objective.segments.length = fitting_length(recipe)
    return recipe


def fitting_length(recipe: Recipe) -> int:
    """The usual length of a row, or as many tokens as there are positions."""
    positions = recipe.encoder.embed.positions
    assert isinstance(positions, LearnedPositions)
    return min(128, positions.length)


def write_encoder(recipe: Recipe, table: ConfigTable = TABLE) -> dict[str, Any]:
    """The config of an encoder that tells segments apart, or a refusal of the first part the family does not have."""
    if not recipe.encoder.embed.segments:
        raise absent(recipe, EMBED + "segments")
    return table.write(recipe)


def shares(stack: Stack) -> bool:
    """Whether some layers have the weights of others."""
    return any(groups not in (None, stack.depth) for groups in (stack.share.attention, stack.share.ffn))


def masked_lm(recipe: Recipe, activation: Activation | None = None) -> MaskedLM:
    """Their head, which has the encoder's norm, and its activation where the class has no other one."""
    block = recipe.encoder.stack.block_at(0)
    assert block.ffn is not None
    return MaskedLM(activation=activation or block.ffn.activation, norm=LayerNorm(block.eps))


def check_head(recipe: Recipe, activation: Activation | None = None) -> None:
    """Their masked-LM head has no activation and norm of its own: it takes the encoder's, or the `activation` that its
    class has whatever the encoder's is. The head of spans is fixed."""
    block = recipe.encoder.stack.block_at(0)
    theirs = activation or getattr(block.ffn, "activation", None)
    for index, loss in enumerate(recipe.objective.losses):
        if isinstance(loss, SpanBoundary) and (loss.norm != LayerNorm() or loss.activation != "gelu"):
            needed = f"the published head has gelu and {LayerNorm()}"
        elif isinstance(loss, MaskedLM) and (loss.plain or loss.norm != block.norm or loss.activation != theirs):
            needed = f"the Hugging Face head uses the encoder's norm and {activation or 'activation'}"
        else:
            continue
        raise RecipeError(f"{recipe.name}.objective.losses.{index}", loss, needed, OWN_FORMAT)


def class_of(recipe: Recipe, heads: dict[str, tuple[str, ...]], besides: tuple[str, ...] = ()) -> str:
    """The Hugging Face class with just these heads; it ignores those `besides`, whose tensors are in the file too."""
    names = tuple(loss.name for loss in recipe.objective.losses if loss.name not in besides)
    for name, losses in heads.items():
        if set(losses) == set(names):
            return name
    given, needed = ", ".join(names), f"Hugging Face has {', '.join(heads)}"
    raise RecipeError(f"{recipe.name}.objective.losses", given, needed, OWN_FORMAT)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """The recipe of a config and of the heads in the file: with spans, it is SpanBERT's; without pairs, RoBERTa's."""
    recipe = read_encoder(config)
    heads: dict[str, Loss] = {
        "masked_lm": masked_lm(recipe),
        "sentence_pair": SentenceRelation(),
        "span_boundary": SpanBoundary(),
    }
    objective, spans = recipe.objective, "span_boundary" in losses
    objective.losses = tuple(heads[name] for name in losses)
    if losses and "sentence_pair" not in losses:
        segments = DocSentences if spans else FullSentences
        objective.segments = segments(length=objective.segments.length)
    if spans:
        objective.corruption = MaskSpans()
    return recipe


def import_hook(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """How many places the head of spans knows, and how wide they are, its table alone says."""
    table = tensors.get(f"{SPANS}.positions.weight")
    for loss in recipe.objective.losses:
        if isinstance(loss, SpanBoundary) and table is not None:
            loss.longest, loss.positions = table.shape


def export_hook(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
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
    import_hook=import_hook,
    export_hook=export_hook,
    heads=task_heads("Bert"),
)
