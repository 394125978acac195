"""Marian's names and config: the Transformer of Vaswani et al. 2017 with its sines before its cosines."""

from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.config_table import ConfigTable, Constant, Convert, Field
from clozeworks.exchange.names import Family, Names, bert
from clozeworks.model import Encoder
from clozeworks.nn.activation import Activation
from clozeworks.nn.block import Block
from clozeworks.nn.decoder import Decoder
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import SinusoidalPositions, sinusoids
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import Pairs
from clozeworks.objectives.translate import Translate
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe

ACTIVATIONS: dict[str, Activation] = {**bert.ACTIVATIONS, "swish": "silu", "silu": "silu"}
HEADS: dict[str, tuple[str, ...]] = {"MarianMTModel": ("next_token",), "MarianModel": ()}
EPS = 1e-5  # of every norm there, not in the config
WORDS, BIAS, FIXED = "encoder.embed.words.table.weight", "heads.next_token.bias", "embed.positions.fixed"


def _name_layer(side: str) -> Names:
    ours, theirs = f"{side}.stack.blocks.{{i}}.", f"model.{side}.layers.{{i}}."
    pairs = [("ffn.up", "fc1"), ("ffn.down", "fc2"), ("ffn_norm", "final_layer_norm")]
    for part, there in (("mixer", "self_attn"), ("cross", "encoder_attn")):
        if part == "mixer" or side == "decoder":
            names = (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("out", "out_proj"))
            pairs += [(f"{part}.{name}", f"{there}.{other}") for name, other in names]
            pairs.append((f"{part}_norm", f"{there}_layer_norm"))
    return tuple((ours + name, theirs + other) for name, other in pairs)


NAMES: Names = (
    ("encoder.embed.words.table", "model.shared"),
    (f"encoder.{FIXED}", "model.encoder.embed_positions"),  # compared with the formula, never built
    (f"decoder.{FIXED}", "model.decoder.embed_positions"),
    *_name_layer("encoder"),
    *_name_layer("decoder"),
    (BIAS, "final_logits_bias"),
)


def blank() -> Recipe:
    """Marian's recipe before a config fills in its sizes and rates."""
    source = Block(Attention(0), FeedForward(0), norm=LayerNorm(EPS))
    target = Block(Attention(0), FeedForward(0), cross=Attention(0), norm=LayerNorm(EPS))
    encoder = Encoder(0, 0, Embed(SinusoidalPositions("halves"), segments=0, norm=None), Stack(0, source))
    objective, train = Objective(Pairs(), Translate(), ()), Train(learning_rate=1e-4)
    return Recipe("marian", encoder, objective, train, decoder=Decoder(Stack(0, target)))


ENCODER, DECODER, ACTIVATION = "encoder.stack.block.", "decoder.stack.block.", "ffn.activation"
ONE_TABLE = ("one table of words for source, target and output is supported", "choose a model that shares it")
ATTENTIONS = (DECODER + "mixer.dropout", DECODER + "cross.dropout")
FIRST = Convert(lambda token: int(token[0] if isinstance(token, list) else token), lambda token: token)
TABLE = ConfigTable(
    blank,
    (
        Constant("is_encoder_decoder", True),
        Field("vocab_size", "encoder.vocab", default=58101),
        Field("d_model", "encoder.width", default=1024),
        Field("encoder_layers", "encoder.stack.depth", default=12),
        Field("encoder_attention_heads", ENCODER + "mixer.heads", default=16),
        Field("encoder_ffn_dim", ENCODER + "ffn.inner", default=4096),
        Field("decoder_layers", "decoder.stack.depth", default=12),
        Field("decoder_attention_heads", DECODER + "mixer.heads", (DECODER + "cross.heads",), default=16),
        Field("decoder_ffn_dim", DECODER + "ffn.inner", default=4096),
        Field("activation_function", ENCODER + ACTIVATION, (DECODER + ACTIVATION,), default="gelu", codes=ACTIVATIONS),
        Field("dropout", ENCODER + "dropout", (DECODER + "dropout", "encoder.embed.dropout"), default=0.1),
        Field("attention_dropout", ENCODER + "mixer.dropout", ATTENTIONS, default=0.0),
        Field("activation_dropout", ENCODER + "ffn.dropout", (DECODER + "ffn.dropout",), default=0.0),
        Field("init_std", "encoder.init", default=0.02),
        Field("scale_embedding", "encoder.embed.scale", default=False, convert=Convert(bool, bool)),
        Constant("share_encoder_decoder_embeddings", True, *ONE_TABLE),
        Constant("tie_word_embeddings", True, *ONE_TABLE),
        Field("decoder_start_token_id", "decoder.start", default=58100),
        Field("eos_token_id", "decoder.end", default=0, convert=FIRST),
        Constant("forced_eos_token_id", None),
        Constant("torch_dtype", "float32"),
    ),
    unsaid=("encoder.embed.positions.order",),  # the export hook brings the units into it
)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """The recipe of a config; rows have room for as many tokens as it counts, up to 512, and targets for half."""
    recipe = TABLE.read(config)
    Constant("decoder_vocab_size", recipe.encoder.vocab, *ONE_TABLE).check(config)
    room = min(512, config.get("max_position_embeddings", 1024))
    recipe.objective.segments = Pairs(length=room, target_length=room // 2)
    recipe.train.batch_tokens = max(4096, room)
    if "MarianModel" not in (config.get("architectures") or ()):
        recipe.objective.losses = (NextToken(bias="next_token" in losses, smoothing=0.1),)
    return recipe


def write(recipe: Recipe) -> dict[str, Any]:
    decoder = recipe.decoder
    assert decoder is not None
    if decoder.start is None or decoder.end is None:
        needed = "the Hugging Face class has to know where a text begins and ends"
        raise RecipeError(f"{recipe.name}.decoder.start", decoder.start, needed, "give decoder.start and decoder.end")
    return {
        "model_type": "marian",
        "architectures": [bert.class_of(recipe, HEADS)],
        **TABLE.write(recipe),
        "decoder_vocab_size": recipe.encoder.vocab,
        "max_position_embeddings": max(512, recipe.longest()),
        "pad_token_id": decoder.start,
    }


def import_hook(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The bias of the output in one dimension; tables of positions are compared with the formula and left out."""
    if BIAS in tensors:
        tensors[BIAS] = tensors[BIAS].flatten()
    for name in [name for name in tensors if FIXED in name]:
        table = tensors.pop(name)
        formula = sinusoids(torch.arange(len(table)), table.shape[1])
        if not torch.allclose(table, formula, rtol=0, atol=1e-3):
            needed = "positions are sines and cosines there, which nothing learns"
            raise InputError("model.safetensors", "other positions", needed, "choose a model with the published ones")


def export_hook(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The bias of the output in two dimensions, and units in the order of sines, then cosines."""
    if BIAS in tensors:
        tensors[BIAS] = tensors[BIAS][None]
    positions = recipe.encoder.embed.positions
    if isinstance(positions, SinusoidalPositions) and positions.order == "pairs":
        positions.order = "halves"
        write(recipe)  # what the class does not have is refused before its tensors are taken apart
        _reorder_units(tensors, recipe.encoder.width)


def _reorder_units(tensors: dict[str, Tensor], width: int) -> None:
    """The same model with the units of its hidden states in another order: even ones, then odd ones."""
    order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
    for name, tensor in tensors.items():
        last = name.rpartition(".")[0].rpartition(".")[2]
        if last in ("table", "query", "key", "value", "up"):  # what reads them, or is added to them
            if tensor.ndim == 2:
                tensors[name] = tensor[:, order].contiguous()
        elif last in ("out", "down") or last.endswith("norm"):
            tensors[name] = tensor[order].contiguous()


FAMILY = Family(
    model_type="marian",
    names=NAMES,
    tied={
        "lm_head.weight": WORDS,
        "model.encoder.embed_tokens.weight": WORDS,
        "model.decoder.embed_tokens.weight": WORDS,
    },
    prefix="model.",
    read=read,
    write=write,
    import_hook=import_hook,
    export_hook=export_hook,
    reorders=True,
)
