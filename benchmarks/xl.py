"""What predicting a token from the tokens before it costs: a window that is read again for each, or a memory.

The sides of a comparison are models of one shape with characters for tokens. `window` has no memory and learned
positions, and reads the last L tokens again for every token that it predicts. `memory` (Transformer-XL) has relative
positions, remembers L vectors of every layer, and reads each token once. `peer` is what `window` does, done by
`transformers` (GPT-2 of the same shape). Each side is a process of its own; the ratio is the time of a token by the
window by that with the memory.

How many windows are read at once, and how many tokens continue with a memory at once, each side finds out for itself
before it is timed: the fastest counts, and is reported.
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.harness import Segments, Side, benchmark, closing, footer, per, ratio_of_pairs, spread
from benchmarks.side import Meter, answer
from clozeworks.plots import charts as plot
from studies import figures

if TYPE_CHECKING:
    from rich.console import RenderableType
    from torch import Tensor

    from clozeworks.model import Model
    from clozeworks.recipe import Recipe

TEXT = "text"
PUBLISHED = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}  # Dai et al. 2019, table 9, on a GPU
SEGMENTS = (64, 128, 256, 512)  # tokens that continue with a memory at once
TOKENS = (2048, 8192)  # of the windows that are read at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """The shape of the models, and the lengths of context."""

    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 3800)
    peer: tuple[int, ...] = (64, 256, 1024)  # lengths at which the peer is timed, too
    width: int = 256
    depth: int = 4
    heads: int = 4
    vocab: int = 256  # bytes, as in the published comparison
    seconds: float = 1.0  # of work of each side in a repetition, at least
    plot: str | None = None  # where to draw it

    @classmethod
    def quick(cls) -> "Setting":
        return cls(lengths=(64, 256, 1024), peer=(64,), repetitions=3, seconds=0.5)


@benchmark("xl", ("torch", "transformers", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Measure every length of context; draw it where asked."""
    if setting.plot is not None:
        plot.check_ending(setting.plot)
    write_text(folder / TEXT)
    lengths = {str(length): measure_length(setting, length, folder) for length in setting.lengths}
    if setting.plot is not None:
        draw(lengths, setting.plot)
    return {
        "dtype": "fp32",
        "shape": {"depth": setting.depth, "width": setting.width, "heads": setting.heads, "vocabulary": setting.vocab},
        "repetitions": setting.repetitions,
        "lengths": lengths,
    }


def measure_length(setting: Setting, length: int, folder: Path) -> dict[str, Any]:
    """The sides at one length in turns."""
    names = ["window", "memory", *(["peer"] if length in setting.peer and has_peer() else [])]
    with closing({side: Side("xl", folder, setting.cores, side, str(length)) for side in names}) as sides:
        tuned = {name: side.go(1) for name, side in sides.items()}
        steps = {name: max(1, round(setting.seconds / each["seconds"])) for name, each in tuned.items()}
        segments = harness.take_turns(sides, steps, setting.repetitions)
    at_once = {name: each["at_once"] for name, each in tuned.items()}
    return {**summary(segments), "at_once": at_once, "segments": segments}


def summary(segments: Segments) -> dict[str, Any]:
    """Microseconds a token of each side, and the ratios of each repetition."""
    results: dict[str, Any] = {}
    for prefix, clock in (("", "seconds"), ("cpu_", "cpu_seconds")):
        each = {side: per(some, clock, "tokens") for side, some in segments.items()}
        for name, (mine, other) in {"ratio": ("window", "memory"), "peer_ratio": ("peer", "window")}.items():
            if mine in each and other in each:
                results[f"{prefix}{name}"] = ratio_of_pairs(each[mine], each[other], 2)
        results[f"{prefix}us_a_token"] = {side: spread([1e6 * one for one in took], 1) for side, took in each.items()}
    results["peak_mb"] = {side: max(each["peak_mb"] or 0.0 for each in some) for side, some in segments.items()}
    return results


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


Work = Iterator[int]  # the tokens that each step predicts


def window(setting: Setting, text: "Tensor", length: int, at_once: int) -> Work:
    from clozeworks.evaluate.sliding import by_window

    model = _built(setting, length, remembers=False)
    while True:
        pieces = by_window(model, text, length, batch_tokens=at_once * length)
        _passed(pieces, length)  # what the first window predicts is no work of a slide
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
    tried = []
    for at_once in candidates(side, length):
        steps = SIDES[side](setting, text, length, at_once)
        next(steps)  # warm
        took, tokens = [], 1
        while len(took) < 3 and sum(took) < 1.0:
            begin = time.perf_counter()
            tokens = next(steps)
            took.append(time.perf_counter() - begin)
        tried.append((min(took) / tokens, at_once, min(took), steps))
    _, at_once, seconds, steps = min(tried, key=lambda each: each[:2])
    return at_once, seconds, steps


def serve(folder: Path, answers: IO[str], side: str, length: str) -> None:
    """What a side does: find out what is best done at once, then predict, segment by segment."""
    sys.stdin.readline()  # nobody else works while this side finds out what is best for it
    setting = Setting.read(folder)
    at_once, seconds, steps = fastest(setting, read_text(folder / TEXT, setting.vocab), side, int(length))
    answer(answers, {"at_once": at_once, "seconds": seconds})
    Meter(answers).follow(steps)


def _built(setting: Setting, length: int, remembers: bool) -> "Model":
    from clozeworks.recipe import build
    from clozeworks.train.resources import allocator

    allocator.keep_freed()
    return build(recipe_of(setting, length, remembers))


def _passed(pieces: "Iterator[Tensor]", tokens: int) -> None:
    while tokens > 0:
        tokens -= len(next(pieces))


# ---- the plot and the table


def draw(results: dict[str, Any], path: str) -> None:
    """The ratio by length of context, beside the published one."""
    lengths = [int(length) for length in results]
    ratios = [each["ratio"] for each in results.values()]
    here = [(at, r["median"], r["lowest"], r["highest"]) for at, r in zip(lengths, ratios, strict=True)]
    published = [(at, ratio, ratio, ratio) for at, ratio in PUBLISHED.items()]
    panels = {"times as long": {"this machine": here, "published, one GPU": published}}
    figures.growths(panels, path, "A token by a sliding window, by one with a memory", "tokens of context")


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    shape = results["shape"]
    head = (
        f"{shape['depth']} layers of width {shape['width']}, {shape['heads']} heads, {shape['vocabulary']} characters; "
        f"fp32, {results['machine']['threads']} threads; {results['repetitions']} repetitions"
    )
    table = harness.make_table("context", "window us", "memory us", "ratio", "by processor time", "peer", left=0)
    for length, each in results["lengths"].items():
        took = each["us_a_token"]
        ratios = (
            f"{r['median']:,.0f} ({r['lowest']:,.0f} to {r['highest']:,.0f})"
            for r in (each["ratio"], each["cpu_ratio"])
        )
        table.add_row(
            f"{int(length):,}",
            f"{took['window']['median']:,.0f}",
            f"{took['memory']['median']:,.0f}",
            *ratios,
            f"{each['peer_ratio']['median']:.2f}" if "peer_ratio" in each else "",
        )
    note = "Microseconds a token; the peer's window (transformers) by ours."
    return Group(head, "", table, "", note, footer(results))
