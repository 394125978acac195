"""What length costs: time and memory of a pass over one long row, ours and the peers'.

The sides are encoders of one shape without heads, with fresh weights and one rate of dropout (`--dropout`, none unless
it is given): of vectors at the same places, and of the weights of attention, except those of `full`, whose kernel is
fast without. Without gradients nothing is dropped. `window` looks 128 tokens to each side, `lsh` hashes, `full` looks
at everything through torch's fused kernel; `longformer` and `reformer` are the classes of `transformers`. Each side at
each length is a process of its own, and the sides of a length work in turns. Memory is the most that a process held
above what it held when its model was built and nothing had been read.
"""

import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks.child import Contestant
from benchmarks.contestant import memory_mb
from benchmarks.figures import setting_of, spread
from benchmarks.long_figures import RIVALS, draw, render
from clozeworks.machine import doctor
from clozeworks.plots import charts as plot

__all__ = ["Setting", "render", "run"]

if TYPE_CHECKING:
    from torch import Tensor

    from clozeworks.model import EncoderLayer

PACKAGES = ("torch", "transformers", "numpy")
SETTING = "setting.json"
MODES = ("forward", "both")  # without gradients; with them, forward and backward
CHUNK = 64  # tokens of a piece of sorted tokens, as `transformers` has it by default


@dataclass(frozen=True, slots=True)
class Setting:
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384, 32768)
    full: int = 8192  # the longest row that full attention goes back through
    depths: tuple[int, ...] = (2, 4, 8, 16)  # at which it is told what is kept for the way back
    width: int = 256
    depth: int = 4
    heads: int = 4
    window: int = 128  # to each side
    rounds: int = 1
    vocab: int = 512
    dropout: float = 0.0  # of vectors and of weights, while gradients are computed
    repetitions: int = 3
    seconds: float = 1.0  # of work of each side in a repetition, at least
    threads: int | None = None  # None: every core this process may use
    plot: str | None = None  # where to draw it

    @staticmethod
    def quick() -> "Setting":
        return Setting(lengths=(512, 1024, 2048, 4096), full=2048, depths=(2, 4), repetitions=2, seconds=0.3)


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    threads, begin = setting.threads or doctor.cores(), time.monotonic()
    if setting.plot is not None:
        plot.check_ending(setting.plot)
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        (folder / SETTING).write_text(json.dumps(asdict(setting)))
        rows = {str(length): compared(setting, length, folder, threads) for length in setting.lengths}
        kept = Contestant("long", folder, threads, "kept", str(min(setting.lengths))).go(1)
    if setting.plot is not None:
        draw(rows, setting.plot)
    return {
        "benchmark": "long",
        "dtype": "fp32",
        "shape": {"depth": setting.depth, "width": setting.width, "heads": setting.heads, "window": setting.window,
                  "rounds": setting.rounds, "chunk": CHUNK, "batch": 1, "dropout": setting.dropout},
        "repetitions": setting.repetitions,
        "slopes": slopes(rows),
        "kept_bytes": kept,
        "lengths": rows,
        **setting_of(threads, PACKAGES, begin),
    }  # fmt: skip


def compared(setting: Setting, length: int, folder: Path, threads: int) -> dict[str, Any]:
    """The sides at one length in turns; who goes first changes each time. Forward and backward come after all of
    forward, so that the peak of each is its own."""
    names = [side for side in SIDES if has_peers() or side not in RIVALS]
    sides = {side: Contestant("long", folder, threads, side, str(length)) for side in names}
    found: dict[str, Any] = {}
    try:
        for mode in MODES:
            able = [side for side in names if mode == "forward" or side != "full" or length <= setting.full]
            tried = {side: sides[side].go(1, mode) for side in able}  # warm, and how long it takes
            steps = {side: max(1, round(setting.seconds / tried[side]["seconds"])) for side in able}
            segments: dict[str, list[Any]] = {side: [] for side in able}
            for turn in range(setting.repetitions):
                for side in able if turn % 2 == 0 else reversed(able):
                    segments[side].append(sides[side].go(steps[side], mode))
            found[mode] = summary(segments)
    finally:
        for side in sides.values():
            side.close()
    return found


def summary(segments: dict[str, list[Any]]) -> dict[str, Any]:
    """Seconds a pass, megabytes, and how much of both a rival takes for one of ours, repetition by repetition."""
    found: dict[str, Any] = {}
    each = {side: [row["seconds"] / row["steps"] for row in rows] for side, rows in segments.items()}
    cpu = {side: [row["cpu_seconds"] / row["steps"] for row in rows] for side, rows in segments.items()}
    found["seconds"] = {side: spread(took, 5) for side, took in each.items()}
    found["cpu_seconds"] = {side: spread(took, 5) for side, took in cpu.items()}
    found["mb"] = {side: round(max(row["peak_mb"] - row["base_mb"] for row in rows), 1)
                   for side, rows in segments.items() if rows[0]["peak_mb"] is not None}  # fmt: skip
    found["path"] = {side: rows[0]["path"] for side, rows in segments.items() if "path" in rows[0]}
    for rival, mine in RIVALS.items():
        if rival in segments and mine in segments:
            for name, took in (("ratio", each), ("cpu_ratio", cpu)):
                pairs = zip(took[rival], took[mine], strict=True)
                found.setdefault(name, {})[rival] = spread([theirs / ours for theirs, ours in pairs], 2)
            if rival in found["mb"]:
                found.setdefault("mb_ratio", {})[rival] = round(found["mb"][rival] / max(found["mb"][mine], 0.1), 2)
    return found


def slopes(rows: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By mode and side the exponent of time in length: the slope of a line through the logarithms of both."""
    found: dict[str, dict[str, float]] = {}
    for mode in MODES:
        for side in {side: None for row in rows.values() for side in row[mode]["seconds"]}:
            points = [
                (math.log(int(length)), math.log(row[mode]["seconds"][side]["median"]))
                for length, row in rows.items()
                if side in row[mode]["seconds"]
            ]
            if len(points) > 1:
                found.setdefault(mode, {})[side] = round(slope(points), 3)
    return found


def slope(points: list[tuple[float, float]]) -> float:
    """Of the line with the least squares."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def has_peers() -> bool:
    from importlib.util import find_spec

    return find_spec("transformers") is not None


# ---- the sides: each gives a pass over a row of tokens, [1, L] -> [1, L, D]

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


def kept(setting: Setting, length: int) -> dict[str, dict[str, int]]:
    """Bytes that are kept for the way back at each depth, each storage once: reversible layers, and others."""
    import torch

    found: dict[str, dict[str, int]] = {}
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
            found.setdefault(kind, {})[str(depth)] = sum(size for at, size in storages.items() if at not in own)
    return found


def serve(folder: Path, answers: IO[str], side: str, length: int) -> None:
    """Work when told to, `steps mode` a line, and say what it took."""
    import torch

    given = json.loads((folder / SETTING).read_text())
    setting = Setting(**given | {name: tuple(given[name]) for name in ("lengths", "depths")})
    if side == "kept":
        print(json.dumps(kept(setting, length)), file=answers, flush=True)
        return
    torch.manual_seed(0)
    read = SIDES[side](setting, length)
    tokens = torch.randint(setting.vocab, (1, length))
    base = memory_mb("VmRSS")
    while line := sys.stdin.readline().split():
        steps, begin, cpu = int(line[0]), time.perf_counter(), time.process_time()
        for _ in range(steps):
            if line[1] == "forward":
                with torch.no_grad():
                    read(tokens)
            else:
                out = read(tokens)
                out.backward(torch.ones_like(out))
        facts = {"steps": steps, "seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}
        facts |= {"path": path(setting, length, line[1])} if side == "window" else {}
        print(json.dumps({**facts, "peak_mb": memory_mb("VmHWM"), "base_mb": base}), file=answers, flush=True)
