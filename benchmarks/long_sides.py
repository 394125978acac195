"""The sides of `long`: each gives a pass over a row of tokens, [1, L] -> [1, L, D]."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks import harness

if TYPE_CHECKING:
    from torch import Tensor

    from clozeworks.model import EncoderLayer

CHUNK = 64  # tokens of a piece of sorted tokens, as `transformers` has it by default


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """The shape of the encoders, and the lengths of rows."""

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384, 32768)
    full: int = 8192  # the longest row that full attention goes back through
    depths: tuple[int, ...] = (2, 4, 8, 16)  # at which bytes saved for the backward pass are counted
    width: int = 256
    depth: int = 4
    heads: int = 4
    window: int = 128  # to each side
    rounds: int = 1
    vocab: int = 512
    dropout: float = 0.0  # of vectors and of weights, while gradients are computed
    repetitions: int = 3
    seconds: float = 1.0  # of work of each side in a repetition, at least
    plot: str | None = None  # where to draw it

    @classmethod
    def quick(cls) -> "Setting":
        return cls(lengths=(512, 1024, 2048, 4096), full=2048, depths=(2, 4), repetitions=2, seconds=0.3)


Pass = Callable[["Tensor"], "Tensor"]


def ours(setting: Setting, length: int, kind: str, depth: int | None = None) -> "EncoderLayer":
    """An encoder of the shape with mixers of a kind."""
    import torch

    from clozeworks.model import Encoder, initialise
    from clozeworks.nn.block import Block
    from clozeworks.nn.embed import Embed
    from clozeworks.nn.ffn import FeedForward
    from clozeworks.nn.mixers.attention import Attention
    from clozeworks.nn.mixers.global_window import GlobalWindow
    from clozeworks.nn.mixers.lsh import LSH
    from clozeworks.nn.norm import LayerNorm
    from clozeworks.nn.positions import LearnedPositions
    from clozeworks.nn.reversible import Reversible
    from clozeworks.nn.stack import Stack
    from clozeworks.nn.window import Window

    ffn, depth, rate = FeedForward(4 * setting.width), depth or setting.depth, setting.dropout
    if kind == "lsh":
        mixer = LSH(setting.heads, chunk=CHUNK, rounds=setting.rounds, dropout=rate)
        ffn.dropout = rate  # as the peer has it
        stack: Stack = Reversible(depth, Block(mixer, ffn, place="pre", dropout=rate), norm=LayerNorm(), dropout=rate)
    elif kind == "window":
        stack = Stack(depth, Block(GlobalWindow(setting.heads, Window(setting.window), rate), ffn, dropout=rate))
    else:
        stack = Stack(depth, Block(Attention(setting.heads), ffn, dropout=rate))  # its weights are never dropped
    embed = Embed(LearnedPositions(length), segments=1, dropout=rate)
    with torch.random.fork_rng():
        encoder = Encoder(setting.width, setting.vocab, embed, stack).build()
    initialise(encoder, 0.02, 0)
    return encoder


def passing(encoder: "EncoderLayer") -> Pass:
    import torch

    from clozeworks.core.batch import from_padded
    from clozeworks.core.dropout import DropoutKey
    from clozeworks.train.resources import allocator

    allocator.keep_freed()
    passes = itertools.count()

    def read(tokens: "Tensor") -> "Tensor":
        batch = from_padded(tokens)
        key = DropoutKey.make(0, next(passes), rows=range(len(tokens))) if torch.is_grad_enabled() else None
        return encoder(tokens, batch.token_info, batch.context(key=key)).last

    return read


def path(setting: Setting, length: int, mode: str) -> str:
    """Which way of `window` a row takes: cut into pieces, or whole with a mask where it is short."""
    import torch

    from clozeworks.core.batch import from_padded
    from clozeworks.core.dropout import DropoutKey
    from clozeworks.nn.kernels.windowed import fits
    from clozeworks.nn.window import Window

    batch = from_padded(torch.zeros(1, length, dtype=torch.int64))
    context = batch.context(key=None if mode == "forward" else DropoutKey.make(0, 0, rows=range(1)))
    return "pieces" if fits(context, Window(setting.window)) else "mask"


def longformer(setting: Setting, length: int) -> Pass:
    import torch
    from transformers import LongformerConfig, LongformerModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # pyright: ignore[reportPrivateImportUsage]
    sizes: dict[str, Any] = {
        "hidden_size": setting.width,
        "num_hidden_layers": setting.depth,
        "num_attention_heads": setting.heads,
        "intermediate_size": 4 * setting.width,
        "hidden_dropout_prob": setting.dropout,
        "attention_probs_dropout_prob": setting.dropout,
        "max_position_embeddings": length + 2,
    }
    config = LongformerConfig(attention_window=2 * setting.window, vocab_size=setting.vocab, type_vocab_size=1, **sizes)
    model = LongformerModel(config, add_pooling_layer=False)
    real = torch.ones(1, length, dtype=torch.int64)
    return lambda tokens: model.train(torch.is_grad_enabled())(tokens, attention_mask=real).last_hidden_state


def reformer(setting: Setting, length: int) -> Pass:
    import torch
    from transformers import ReformerConfig, ReformerModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # pyright: ignore[reportPrivateImportUsage]
    sizes: dict[str, Any] = {
        "hidden_size": setting.width,
        "num_attention_heads": setting.heads,
        "attention_head_size": setting.width // setting.heads,
        "feed_forward_size": 4 * setting.width,
        "hidden_dropout_prob": setting.dropout,
        "lsh_attention_probs_dropout_prob": setting.dropout,
        "lsh_attn_chunk_length": CHUNK,
        "num_hashes": setting.rounds,
        "max_position_embeddings": length,
    }
    kind: dict[str, Any] = {"axial_pos_embds": False, "is_decoder": False, "hidden_act": "gelu"}
    config = ReformerConfig(attn_layers=["lsh"] * setting.depth, vocab_size=setting.vocab, **kind, **sizes)
    model = ReformerModel(config)
    return lambda tokens: model.train(torch.is_grad_enabled())(tokens).last_hidden_state


SIDES: dict[str, Callable[[Setting, int], Pass]] = {
    "window": lambda setting, length: passing(ours(setting, length, "window")),
    "longformer": longformer,
    "lsh": lambda setting, length: passing(ours(setting, length, "lsh")),
    "reformer": reformer,
    "full": lambda setting, length: passing(ours(setting, length, "full")),
}


def count_saved_bytes(setting: Setting, length: int) -> dict[str, dict[str, int]]:
    """Bytes that autograd saves for the backward pass at each depth, each storage once."""
    import torch

    saved: dict[str, dict[str, int]] = {}
    tokens = torch.randint(setting.vocab, (1, length))
    for kind in ("lsh", "window"):
        for depth in setting.depths:
            encoder, storages = ours(setting, length, kind, depth), {}
            own = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}

            def keep(tensor: "Tensor", storages: dict[int, int] = storages) -> "Tensor":
                storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                passing(encoder)(tokens)
            saved.setdefault(kind, {})[str(depth)] = sum(size for at, size in storages.items() if at not in own)
    return saved
