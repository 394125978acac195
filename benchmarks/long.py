"""What length costs: time and memory of a pass over one long row, ours and the peers'.

The sides are encoders of one shape without heads, with fresh weights and one rate of dropout (`--dropout`, none unless
it is given): of vectors at the same places, and of the weights of attention, except those of `full`, whose kernel is
fast without. Without gradients nothing is dropped. `window` looks 128 tokens to each side, `lsh` hashes, `full` looks
at everything through torch's fused kernel; `longformer` and `reformer` are the classes of `transformers`. Each side at
each length is a process of its own, and the sides of a length work in turns. Memory is the most that a process held
above what it held when its model was built and nothing had been read.
"""

import math
import sys
import time
from pathlib import Path
from typing import IO, Any

from benchmarks import harness
from benchmarks.harness import Segments, Side, benchmark, closing, per, ratio_of_pairs, spread
from benchmarks.long_report import RIVALS, draw, render
from benchmarks.long_sides import CHUNK, SIDES, Setting, count_saved_bytes, path
from benchmarks.side import answer, memory_mb
from clozeworks.plots import charts as plot

__all__ = ["Setting", "render", "run"]

MODES = ("forward", "both")  # without gradients; with them, forward and backward


@benchmark("long", ("torch", "transformers", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Measure every length; draw it where asked."""
    if setting.plot is not None:
        plot.check_ending(setting.plot)
    lengths = {str(length): measure_length(setting, length, folder) for length in setting.lengths}
    saved = harness.ask("long", folder, setting.cores, "kept", str(min(setting.lengths)))
    if setting.plot is not None:
        draw(lengths, setting.plot)
    return {
        "dtype": "fp32",
        "shape": {"depth": setting.depth, "width": setting.width, "heads": setting.heads, "window": setting.window,
                  "rounds": setting.rounds, "chunk": CHUNK, "batch": 1, "dropout": setting.dropout},
        "repetitions": setting.repetitions,
        "slopes": fit_slopes(lengths),
        "kept_bytes": saved,
        "lengths": lengths,
    }  # fmt: skip


def measure_length(setting: Setting, length: int, folder: Path) -> dict[str, Any]:
    """The sides at one length in turns. Forward and backward come after all of forward, so that the peak of each is its
    own."""
    names = [side for side in SIDES if has_peers() or side not in RIVALS]
    results: dict[str, Any] = {}
    with closing({side: Side("long", folder, setting.cores, side, str(length)) for side in names}) as sides:
        for mode in MODES:
            able = {
                name: side
                for name, side in sides.items()
                if mode == "forward" or name != "full" or length <= setting.full
            }
            tried = {name: side.go(1, mode) for name, side in able.items()}  # warm, and how long it takes
            steps = {name: max(1, round(setting.seconds / each["seconds"])) for name, each in tried.items()}
            results[mode] = summary(harness.take_turns(able, steps, setting.repetitions, mode))
    return results


def summary(segments: Segments) -> dict[str, Any]:
    """Seconds a pass, megabytes, and how much of both a rival takes for one of ours, repetition by repetition."""
    clocks = {clock: {side: per(some, clock, "steps") for side, some in segments.items()} for clock in harness.CLOCKS}
    results: dict[str, Any] = {
        clock: {side: spread(took, 5) for side, took in each.items()} for clock, each in clocks.items()
    }
    results["mb"] = {side: round(max(each["peak_mb"] - each["base_mb"] for each in some), 1)
                     for side, some in segments.items() if some[0]["peak_mb"] is not None}  # fmt: skip
    results["path"] = {side: some[0]["path"] for side, some in segments.items() if "path" in some[0]}
    for rival, mine in RIVALS.items():
        if rival in segments and mine in segments:
            for name, took in zip(("ratio", "cpu_ratio"), clocks.values(), strict=True):
                results.setdefault(name, {})[rival] = ratio_of_pairs(took[rival], took[mine], 2)
            if rival in results["mb"]:
                ratio = results["mb"][rival] / max(results["mb"][mine], 0.1)
                results.setdefault("mb_ratio", {})[rival] = round(ratio, 2)
    return results


def fit_slopes(lengths: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By mode and side the exponent of time in length: the slope of a line through the logarithms of both."""
    slopes: dict[str, dict[str, float]] = {}
    for mode in MODES:
        for side in {side: None for each in lengths.values() for side in each[mode]["seconds"]}:
            points = [
                (math.log(int(length)), math.log(each[mode]["seconds"][side]["median"]))
                for length, each in lengths.items()
                if side in each[mode]["seconds"]
            ]
            if len(points) > 1:
                slopes.setdefault(mode, {})[side] = round(slope(points), 3)
    return slopes


def slope(points: list[tuple[float, float]]) -> float:
    """Of the line with the least squares."""
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def has_peers() -> bool:
    from importlib.util import find_spec

    return find_spec("transformers") is not None


def serve(folder: Path, answers: IO[str], side: str, length: str) -> None:
    """Work when asked to, `steps mode` a line, and say what it took."""
    import torch

    setting, longest = Setting.read(folder), int(length)
    if side == "kept":
        answer(answers, count_saved_bytes(setting, longest))
        return
    torch.manual_seed(0)
    read = SIDES[side](setting, longest)
    tokens = torch.randint(setting.vocab, (1, longest))
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
        facts |= {"path": path(setting, longest, line[1])} if side == "window" else {}
        answer(answers, {**facts, "peak_mb": memory_mb("VmHWM"), "base_mb": base})
