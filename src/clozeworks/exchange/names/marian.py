"""Marian's names and config: the Transformer of Vaswani et al. 2017 with its sines before its cosines."""

from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.names import Family, Names
from clozeworks.exchange.names.bert import class_of
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
from clozeworks.objectives.objective import Loss, Objective
from clozeworks.objectives.segments import Pairs
from clozeworks.objectives.translate import Translate
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe

DEFAULTS: dict[str, Any] = {
    "vocab_size": 58101,
    "max_position_embeddings": 1024,
    "encoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_layers": 12,
    "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "activation_function": "gelu",
    "d_model": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "init_std": 0.02,
    "scale_embedding": False,
    "decoder_start_token_id": 58100,
    "eos_token_id": 0,
}
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "swish": "silu",
    "silu": "silu",
    "gelu_new": "gelu_tanh",
}
HEADS: dict[str, tuple[str, ...]] = {"MarianMTModel": ("next_token",), "MarianModel": ()}
EPS = 1e-5  # of every norm there, not in the config
WORDS, BIAS, FIXED = "encoder.embed.words.table.weight", "heads.next_token.bias", "embed.positions.fixed"


def _layer(side: str) -> Names:
    ours, theirs = f"{side}.stack.blocks.{{i}}.", f"model.{side}.layers.{{i}}."
    pairs = [
        ("ffn.up", "fc1"),
        ("ffn.down", "fc2"),
        ("ffn_norm", "final_layer_norm"),
    ]
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
    *_layer("encoder"),
    *_layer("decoder"),
    (BIAS, "final_logits_bias"),
)


def read(config: dict[str, Any], found: tuple[str, ...]) -> Recipe:
    config = DEFAULTS | config
    vocab = config["vocab_size"]
    for name, held in (
        ("share_encoder_decoder_embeddings", True),
        ("tie_word_embeddings", True),
        ("decoder_vocab_size", vocab),
    ):
        if config.get(name) not in (None, held):
            needed = "one table of words for source, target and output is supported"
            raise InputError("config.json", f"{name} {config[name]}", needed, "choose a model that shares it")
    if config["activation_function"] not in ACTIVATIONS:
        given, known = f"activation_function {config['activation_function']}", f"one of {', '.join(ACTIVATIONS)}"
        raise InputError("config.json", given, f"{known} is supported", "choose a model with one of them")

    def block(side: str, cross: bool) -> Block:
        attention = Attention(config[f"{side}_attention_heads"], config["attention_dropout"])
        activation = ACTIVATIONS[config["activation_function"]]
        ffn = FeedForward(config[f"{side}_ffn_dim"], activation, config["activation_dropout"])
        return Block(attention, ffn, attention if cross else None, LayerNorm(EPS), dropout=config["dropout"])

    embed = Embed(
        SinusoidalPositions("halves"),
        segments=0,
        norm=None,
        dropout=config["dropout"],
        scale=bool(config["scale_embedding"]),
    )
    encoder = Encoder(
        width=config["d_model"],
        vocab=vocab,
        embed=embed,
        stack=Stack(config["encoder_layers"], block("encoder", False)),
        init=config["init_std"],
    )
    decoder = Decoder(
        Stack(config["decoder_layers"], block("decoder", True)),
        start=config["decoder_start_token_id"],
        end=_one(config["eos_token_id"]),
    )
    room = min(512, config["max_position_embeddings"])
    bare = "MarianModel" in (config.get("architectures") or ())
    losses: tuple[Loss, ...] = () if bare else (NextToken(bias="next_token" in found, smoothing=0.1),)
    objective = Objective(Pairs(length=room, target_length=room // 2), Translate(), losses)
    train = Train(learning_rate=1e-4, batch_tokens=max(4096, room))
    return Recipe("marian", encoder, objective, train, decoder=decoder)


def _one(token: Any) -> int:
    return int(token[0] if isinstance(token, list) else token)


def write(recipe: Recipe) -> dict[str, Any]:
    encoder, decoder = recipe.encoder, recipe.decoder
    assert decoder is not None
    first, second = encoder.stack.block_at(0), decoder.stack.block_at(0)
    embed, names = encoder.embed, {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    facts: list[tuple[bool, str, object]] = [
        (isinstance(embed.positions, SinusoidalPositions), "encoder.embed.positions", embed.positions),
        (embed.segments == 0 and embed.norm is None, "encoder.embed", embed),
        (embed.width in (None, encoder.width) and not embed.project, "encoder.embed.width", embed.width),
        (embed.words is None, "encoder.embed.words", embed.words),
        (decoder.embed is None, "decoder.embed", decoder.embed),
        (first.dropout == second.dropout == embed.dropout, "decoder.stack.block.dropout", second.dropout),
    ]
    for side, stack in (("encoder", encoder.stack), ("decoder", decoder.stack)):
        block, share = stack.block_at(0), stack.share
        alike = all(stack.block_at(n) == block for n in range(stack.depth))
        ffn = block.ffn
        same = (first.ffn is not None and ffn is not None
                and (ffn.activation, ffn.dropout) == (first.ffn.activation, first.ffn.dropout))  # fmt: skip
        facts += [
            (alike and block.place == "post" and block.eps == EPS, f"{side}.stack.block", stack.block),
            (type(stack) is Stack and stack.norm is None and not stack.dropout, f"{side}.stack", stack),
            ({share.attention, share.ffn} <= {None, stack.depth}, f"{side}.stack.share", share),
            (same and ffn is not None and ffn.activation in names, f"{side}.stack.block.ffn", ffn),
        ]
        for name in ("mixer",) if side == "encoder" else ("mixer", "cross"):
            mixer = getattr(block, name)
            plain = isinstance(mixer, Attention) and mixer.bias is None and mixer.affine and mixer.window is None
            plain = plain and mixer.dropout == getattr(first.mixer, "dropout", None)
            if side == "decoder":
                plain = plain and mixer.heads == getattr(block.mixer, "heads", None)
            facts.append((plain, f"{side}.stack.block.{name}", mixer))
    for holds, path, value in facts:
        if not holds:
            needed, todo = "the Hugging Face class has no such part", "keep the model in its own format"
            raise RecipeError(f"{recipe.name}.{path}", value, needed, todo)
    if decoder.start is None or decoder.end is None:
        needed = "the Hugging Face class has to know where a text begins and ends"
        raise RecipeError(f"{recipe.name}.decoder.start", decoder.start, needed, "give decoder.start and decoder.end")
    shape: dict[str, Any] = {}
    for side, stack in (("encoder", encoder.stack), ("decoder", decoder.stack)):
        block = stack.block_at(0)
        assert isinstance(block.mixer, Attention)
        assert block.ffn is not None
        shape[f"{side}_layers"] = stack.depth
        shape[f"{side}_attention_heads"] = block.mixer.heads
        shape[f"{side}_ffn_dim"] = block.ffn.inner
    assert first.ffn is not None
    return {
        "model_type": "marian",
        "architectures": [class_of(recipe, HEADS)],
        "is_encoder_decoder": True,
        "vocab_size": encoder.vocab,
        "decoder_vocab_size": encoder.vocab,
        "max_position_embeddings": max(512, recipe.longest()),
        "d_model": encoder.width,
        **shape,
        "activation_function": names[first.ffn.activation],
        "dropout": first.dropout,
        "attention_dropout": getattr(first.mixer, "dropout", 0.0),
        "activation_dropout": first.ffn.dropout,
        "init_std": encoder.init,
        "scale_embedding": embed.scale,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "pad_token_id": decoder.start,
        "decoder_start_token_id": decoder.start,
        "eos_token_id": decoder.end,
        "forced_eos_token_id": None,
        "torch_dtype": "float32",
    }


def arrive(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    if BIAS in tensors:
        tensors[BIAS] = tensors[BIAS].flatten()
    for name in [name for name in tensors if FIXED in name]:
        table = tensors.pop(name)
        formula = sinusoids(torch.arange(len(table)), table.shape[1])
        if not torch.allclose(table, formula, rtol=0, atol=1e-3):
            needed = "positions are sines and cosines there, which nothing learns"
            raise InputError("model.safetensors", "other positions", needed, "choose a model with the published ones")


def leave(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    if BIAS in tensors:
        tensors[BIAS] = tensors[BIAS][None]
    positions = recipe.encoder.embed.positions
    if isinstance(positions, SinusoidalPositions) and positions.order == "pairs":
        positions.order = "halves"
        write(recipe)  # what the class does not have is refused before its tensors are taken apart
        _reorder(tensors, recipe.encoder.width)


def _reorder(tensors: dict[str, Tensor], width: int) -> None:
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
    import_hook=arrive,
    export_hook=leave,
)
