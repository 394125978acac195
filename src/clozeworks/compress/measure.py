"""What a model directory costs here: read off the file and the clock, after it was written and read again."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clozeworks.compress.quality import Judge, Quality, Work
from clozeworks.compress.start_up import start_up
from clozeworks.exchange import tensors
from clozeworks.inference.text_encoder import TextEncoder

ROUNDS = 5
SECONDS = 0.1  # that a round should take at least: clocks tick


@dataclass(frozen=True, slots=True)
class Speed:
    """By one thread, of the processor's own clock, so that other processes do not count; medians of rounds in which the
    original took its turn. `ratio` is that of each round to the original's."""

    tokens_per_second: float
    milliseconds: float  # for one short text
    ratio: float


@dataclass(slots=True)
class Measured:
    """A model directory in figures."""

    bytes: int  # of the file of weights
    parameters: int
    speed: Speed | None = None
    quality: Quality | None = None
    load_seconds: float | None = None
    peak_memory_mb: float | None = None
    model_memory_mb: float | None = None


def measure_size(directory: Path, encoder: TextEncoder) -> Measured:
    """Bytes of the weights, and numbers that they are: parameters, and whatever a quantised layer holds instead."""
    held = sum(each.numel() for each in tensors.state(encoder.model).values())
    return Measured((directory / tensors.FILE).stat().st_size, held)


def measure(
    directory: Path,
    encoder: TextEncoder,
    original: TextEncoder,
    judge: Judge,
    work: Work,
    *,
    fresh: bool = True,
    rounds: int = ROUNDS,
) -> Measured:
    """All figures; without `fresh`, none that need a process of their own."""
    measured = measure_size(directory, encoder)
    measured.quality = judge.judge(encoder)
    measured.speed = measure_speed(encoder, original, work, rounds)
    if fresh:
        for name, value in (start_up(directory, work.short) or {}).items():
            setattr(measured, name, value)
    return measured


def measure_speed(encoder: TextEncoder, original: TextEncoder, work: Work, rounds: int = ROUNDS) -> Speed:
    """Of a model and its original in turn, so that a machine that slows down slows both."""
    with one_thread():
        many = _race(work.many, encoder, original, rounds)
        one = _race(work.one, encoder, original, rounds)
    ratio = statistics.median(theirs / ours for ours, theirs in many)
    ours = statistics.median(ours for ours, _ in many)
    return Speed(work.tokens / ours, 1000 * statistics.median(each for each, _ in one), ratio)


def _race(
    work: Callable[[TextEncoder], object], encoder: TextEncoder, original: TextEncoder, rounds: int
) -> list[tuple[float, float]]:
    """Seconds of the model and of the original, round by round."""
    clock = time.process_time if encoder.device.type == "cpu" else time.perf_counter

    def seconds(each: TextEncoder, times: int) -> float:
        begin = clock()
        for _ in range(times):
            work(each)
        return (clock() - begin) / times

    seconds(encoder, 1)
    slow = max(seconds(original, 1), 1e-4)
    times = max(1, round(SECONDS / slow))
    pairs = []
    for number in range(rounds):
        first, second = (encoder, original) if number % 2 else (original, encoder)
        taken = {id(first): seconds(first, times)}
        taken[id(second)] = seconds(second, times)
        pairs.append((taken[id(encoder)], taken[id(original)]))
    return pairs


@contextmanager
def one_thread() -> Iterator[None]:
    """With one thread the processor's seconds are those of an idle machine's clock; waiting threads would spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def as_row(measured: Measured) -> dict[str, Any]:
    """The figures by name, for a report in JSON."""
    row: dict[str, Any] = {"bytes": measured.bytes, "parameters": measured.parameters}
    if measured.speed is not None:
        row |= {
            "tokens_per_second": measured.speed.tokens_per_second,
            "milliseconds": measured.speed.milliseconds,
            "speed": measured.speed.ratio,
        }
    row |= {name: getattr(measured, name) for name in ("load_seconds", "peak_memory_mb", "model_memory_mb")}
    if measured.quality is not None:
        quality = measured.quality
        row |= {
            "metric": quality.metric,
            quality.metric: quality.value,
            "retained": quality.retained,
            "difference": quality.difference._asdict(),
            **{name: value for name, value in quality.more.items() if name not in row},
        }
    return row
