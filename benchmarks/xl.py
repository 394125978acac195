"""What it costs to tell a token from the tokens before it: a window that is read anew for each, or a memory.

The sides of a comparison are models of one shape with characters for tokens. `window` has no memory and learned
positions, and reads the last L tokens again for every token it tells. `memory` has relative positions, remembers L rows
of every layer, and reads each token once. `peer` is what `window` does, done by `transformers` (GPT-2 of the same
shape). Each side is a process of its own; the ratio is the time of a token by the window by that with the memory.

How many windows are read at once, and how many tokens go on with a memory at once, each side finds out for itself
before it is timed: the fastest counts, and is told.
"""

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child import Contestant
from benchmarks.figures import footer, setting_of, spread
from clozeworks.machine import doctor
from clozeworks.plots import charts as plot

if TYPE_CHECKING:
    from rich.console import RenderableType
    from torch import Tensor

    from clozeworks.model import Model
    from clozeworks.recipe import Recipe

PACKAGES = ("torch", "transformers", "numpy")
SETTING, TEXT = "setting.json", "text"
PUBLISHED = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}  # Dai et al. 2019, table 9, on a GPU
SEGMENTS = (64, 128, 256, 512)  # tokens that go on with a memory at once
TOKENS = (2048, 8192)  # of the windows that are read at once


@dataclass(frozen=True, slots=True)
class Setting:
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 3800)
    peer: tuple[int, ...] = (64, 256, 1024)  # lengths at which the peer is timed, too
    width: int = 256
    depth: int = 4
    heads: int = 4
    vocab: int = 256  # bytes, as in the published comparison
    repetitions: int = 5
    seconds: float = 1.0  # of work of each side in a repetition, at least
    threads: int | None = None  # None: every core this process may use
    plot: str | None = None  # where to draw it

    @staticmethod
    def quick() -> "Setting":
        return Setting(lengths=(64, 256, 1024), peer=(64,), repetitions=3, seconds=0.5)


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    threads, begin = setting.threads or doctor.cores(), time.monotonic()
    if setting.plot is not None:
        plot.check_ending(setting.plot)
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        (folder / SETTING).write_text(json.dumps(asdict(setting)))
        write_text(folder / TEXT)
        found = {str(length): compared(setting, length, folder, threads) for length in setting.lengths}
    if setting.plot is not None:
        draw(found, setting.plot)
    return {
        "benchmark": "xl",
        "dtype": "fp32",
        "shape": {"depth": setting.depth, "width": setting.width, "heads": setting.heads, "vocabulary": setting.vocab},
        "repetitions": setting.repetitions,
        "lengths": found,
        **setting_of(threads, PACKAGES, begin),
    }


def compared(setting: Setting, length: int, folder: Path, threads: int) -> dict[str, Any]:
    """The sides at one length in turns; who goes first changes each time."""
    names = ["window", "memory", *(["peer"] if length in setting.peer and has_peer() else [])]
    sides = {side: Contestant("xl", folder, threads, side, str(length)) for side in names}
    segments: dict[str, list[Any]] = {side: [] for side in names}
    try:
        tuned = {side: sides[side].go(1) for side in names}
        steps = {side: max(1, round(setting.seconds / tuned[side]["seconds"])) for side in names}
        for turn in range(setting.repetitions):
            for side in names if turn % 2 == 0 else reversed(names):
                segments[side].append(sides[side].go(steps[side]))
    finally:
        for side in sides.values():
            side.close()
    return {**summary(segments), "at_once": {side: found["at_once"] for side, found in tuned.items()},
            "segments": segments}  # fmt: skip


def summary(segments: dict[str, list[Any]]) -> dict[str, Any]:
    """Microseconds a token of each side, and the ratios of each repetition."""
    found: dict[str, Any] = {}
    for prefix, field in (("", "seconds"), ("cpu_", "cpu_seconds")):
        each = {side: [row[field] / row["tokens"] for row in rows] for side, rows in segments.items()}
        for name, (mine, other) in {"ratio": ("window", "memory"), "peer_ratio": ("peer", "window")}.items():
            if mine in each and other in each:
                pairs = zip(each[mine], each[other], strict=True)
                found[f"{prefix}{name}"] = spread([long / short for long, short in pairs], 2)
        found[f"{prefix}us_a_token"] = {side: spread([1e6 * one for one in took], 1) for side, took in each.items()}
    found["peak_mb"] = {side: max(row["peak_mb"] or 0.0 for row in rows) for side, rows in segments.items()}
    return found


def has_peer() -> bool:
    from importlib.util import find_spec

    return find_spec("transformers") is not None


# ---- the sides


def recipe_of(setting: Setting, length: int, remembers: bool) -> "Recipe":
    """The shape with a memory of so many rows, or with so many positions."""
    from clozeworks.nn.ffn import FeedForward
    from clozeworks.nn.mixers.attention import Attention
    from clozeworks.nn.positions import LearnedPositions
    from clozeworks.recipes import recipe

    r = recipe("transformer_xl_mini")
    r.encoder.vocab, r.encoder.width, r.encoder.stack.depth = setting.vocab, setting.width, setting.depth
    block = r.encoder.stack.block_at(0)
    assert isinstance(block.mixer, Attention)
    block.mixer.heads, block.ffn = setting.heads, FeedForward(4 * setting.width, "relu")
    r.encoder.stack.memory, r.objective.segments.length = length if remembers else 0, length
    if not remembers:
        block.mixer.bias, r.encoder.stack.share.bias = None, None
        r.encoder.embed.positions = LearnedPositions(length)
    return r


def write_text(file: Path) -> None:
    """Bytes of the embedded English text: enough to slide over for as long as anybody measures."""
    from clozeworks.corpus import documents

    file.write_bytes("\n\n".join(each.text for each in itertools.islice(documents("en"), 200)).encode())


def read_text(file: Path, vocab: int) -> "Tensor":
    """[n]"""
    import numpy as np
    import torch

    return torch.from_numpy(np.frombuffer(file.read_bytes(), np.uint8).astype(np.int64)) % vocab


Work = Iterator[int]  # the tokens that each step tells


def window(setting: Setting, text: "Tensor", length: int, at_once: int) -> Work:
    from clozeworks.evaluate.sliding import by_window

    model = _built(setting, length, remembers=False)
    while True:
        pieces = by_window(model, text, length, batch_tokens=at_once * length)
        _passed(pieces, length)  # what the first window tells is no work of a slide
        yield from map(len, itertools.takewhile(lambda piece: len(piece) == at_once, pieces))


def memory(setting: Setting, text: "Tensor", length: int, at_once: int) -> Work:
    from clozeworks.evaluate.sliding import by_memory

    model = _built(setting, length, remembers=True)
    while True:
        pieces = by_memory(model, text, at_once)
        _passed(pieces, length)  # until the memory is full
        yield from map(len, itertools.takewhile(lambda piece: len(piece) == at_once, pieces))


def peer(setting: Setting, text: "Tensor", length: int, at_once: int) -> Work:
    import torch
    from torch.nn import functional as F
    from transformers import GPT2Config, GPT2Model

    sizes: dict[str, Any] = {
        "n_embd": setting.width,
        "n_layer": setting.depth,
        "n_head": setting.heads,
        "n_positions": length,
    }
    config = GPT2Config(vocab_size=setting.vocab, use_cache=False, activation_function="relu", **sizes)
    model = GPT2Model(config).eval()
    rows = text.unfold(0, length, 1)[:-1]
    with torch.no_grad():
        for at in itertools.cycle(range(0, len(rows) - at_once, at_once)):
            last = model(rows[at : at + at_once].contiguous()).last_hidden_state[:, -1]
            F.cross_entropy(last @ model.wte.weight.T, text[at + length : at + length + at_once], reduction="none")
            yield at_once


SIDES: dict[str, Callable[[Setting, "Tensor", int, int], Work]] = {"window": window, "memory": memory, "peer": peer}


def candidates(side: str, length: int) -> list[int]:
    """What may be done at once."""
    if side == "memory":
        return [segment for segment in SEGMENTS if segment <= max(4 * length, SEGMENTS[0])]
    return sorted({max(1, tokens // length) for tokens in TOKENS})


def fastest(setting: Setting, text: "Tensor", side: str, length: int) -> tuple[int, float, Work]:
    """What is best done at once, the seconds of such a step, and the steps that follow."""
    found = []
    for at_once in candidates(side, length):
        steps = SIDES[side](setting, text, length, at_once)
        next(steps)  # warm
        took, tokens = [], 1
        while len(took) < 3 and sum(took) < 1.0:
            begin = time.perf_counter()
            tokens = next(steps)
            took.append(time.perf_counter() - begin)
        found.append((min(took) / tokens, at_once, min(took), steps))
    _, at_once, seconds, steps = min(found, key=lambda each: each[:2])
    return at_once, seconds, steps


def side_of(folder: Path, side: str, length: int) -> tuple[int, float, Work]:
    given = json.loads((folder / SETTING).read_text())
    given |= {"lengths": tuple(given["lengths"]), "peer": tuple(given["peer"])}
    setting = Setting(**given)
    return fastest(setting, read_text(folder / TEXT, setting.vocab), side, length)


def _built(setting: Setting, length: int, remembers: bool) -> "Model":
    from clozeworks.recipe import build
    from clozeworks.train.resources import allocator

    allocator.keep_freed()
    return build(recipe_of(setting, length, remembers))


def _passed(pieces: "Iterator[Tensor]", tokens: int) -> None:
    while tokens > 0:
        tokens -= len(next(pieces))


# ---- how it is told


def draw(found: dict[str, Any], path: str) -> None:
    lengths = [int(length) for length in found]
    ratios = [each["ratio"] for each in found.values()]
    plot.growth(
        {
            "this machine": [
                (at, r["median"], r["lowest"], r["highest"]) for at, r in zip(lengths, ratios, strict=True)
            ],
            "published, one GPU": [(at, ratio, ratio, ratio) for at, ratio in PUBLISHED.items()],
        },
        path,
        "A token by a sliding window, by one with a memory",
        "tokens of context",
        "times as long",
    )


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    shape = figures["shape"]
    head = (
        f"{shape['depth']} layers of width {shape['width']}, {shape['heads']} heads, {shape['vocabulary']} characters; "
        f"fp32, {figures['machine']['threads']} threads; {figures['repetitions']} repetitions"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("context", "window us", "memory us", "ratio", "by processor time", "peer"):
        table.add_column(heading, justify="right")
    for length, found in figures["lengths"].items():
        took = found["us_a_token"]
        ratios = (
            f"{r['median']:,.0f} ({r['lowest']:,.0f} to {r['highest']:,.0f})"
            for r in (found["ratio"], found["cpu_ratio"])
        )
        table.add_row(
            f"{int(length):,}",
            f"{took['window']['median']:,.0f}",
            f"{took['memory']['median']:,.0f}",
            *ratios,
            f"{found['peer_ratio']['median']:.2f}" if "peer_ratio" in found else "",
        )
    note = "Microseconds a token; the peer's window (transformers) by ours."
    return Group(head, "", table, "", note, footer(figures))
