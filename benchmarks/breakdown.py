"""Where the time of our step goes, by part, forward and backward together."""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile

from benchmarks.workload import Workload
from clozeworks.core.batch import Batch
from clozeworks.model import Model
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.ffn import FeedForwardLayer
from clozeworks.nn.mixers.attention import AttentionLayer
from clozeworks.objectives.objective import LossLayer
from clozeworks.optim import parameter_groups
from clozeworks.train.loop import accumulate, make_dropout_keys
from clozeworks.train.resources import allocator

PARTS = {EmbedLayer: "embedding", AttentionLayer: "attention", FeedForwardLayer: "ffn", LossLayer: "head"}
PRODUCTS = ("mm", "addmm", "addmm_", "bmm", "baddbmm", "_linear_pointwise")


class Clock:
    """Adds up the seconds of each kind of part.

    Blocks are timed by hooks both ways. Nothing that can be differentiated goes into an embedding or, as a bare tensor,
    into a head, so their ways back are what comes before the first and after the last part of the blocks.
    """

    def __init__(self, model: Model):
        self.seconds: dict[str, float] = defaultdict(float)
        self.begun, self.last, self.back = 0.0, 0.0, False
        for module in model.modules():
            name = next((name for kind, name in PARTS.items() if isinstance(module, kind)), None)
            if name:
                module.register_forward_pre_hook(lambda *_: self.start())
                module.register_forward_hook(lambda *_, name=name: self.stop(name))
            if name in ("attention", "ffn"):
                module.register_full_backward_pre_hook(lambda *_: self.start(back=True))
                module.register_full_backward_hook(lambda *_, name=name: self.stop(name))

    def start(self, back: bool = False) -> None:
        self.begun = time.perf_counter()
        if back and not self.back:
            self.back = True
            self.seconds["head"] += self.begun - self.last

    def stop(self, name: str) -> None:
        self.last = time.perf_counter()
        self.seconds[name] += self.last - self.begun

    def end(self) -> None:
        self.seconds["embedding"] += time.perf_counter() - self.last
        self.back = False


def measure(folder: Path, steps: int = 8) -> dict[str, Any]:
    """Milliseconds of a step by part and by kind of work, each the median of some steps.

    `norms, residuals, dropout` is the rest of the blocks. The kinds are taken in steps of their own, under torch's
    profiler, which itself slows the interpreter: `Python` is what no operator took, so rather too much than too little.
    """
    allocator.keep_freed()
    work = Workload.open(folder)
    train, model = work.recipe.train, work.model()
    adam = parameter_groups.build_optimizer(model, train.optimizer, train.learning_rate)
    batches = work.steps()
    kinds = by_kind(model, adam, batches)
    return {"parts": by_part(model, adam, batches, steps), "kinds": kinds}


def by_part(model: Model, adam: Optimizer, batches: Iterator[list[Batch]], steps: int) -> dict[str, float]:
    clock, rows = Clock(model), []
    for number in range(steps + 1):
        begin = time.perf_counter()
        micro = next(batches)
        clock.seconds.clear()
        clock.seconds["data"] = time.perf_counter() - begin
        begin = time.perf_counter()
        accumulate(model, micro, make_dropout_keys(micro, 0, number))
        clock.end()
        inside = time.perf_counter() - begin
        clock.seconds["norms, residuals, dropout"] = inside - sum(clock.seconds[name] for name in PARTS.values())
        begin = time.perf_counter()
        update(model, adam)
        clock.seconds["optimizer"] = time.perf_counter() - begin
        rows.append(dict(clock.seconds))
    return _medians(rows[1:])


def by_kind(model: Model, adam: Optimizer, batches: Iterator[list[Batch]], steps: int = 3) -> dict[str, float]:
    rows = []
    for number in range(steps + 1):
        micro = next(batches)
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            begin = time.perf_counter()
            accumulate(model, micro, make_dropout_keys(micro, 0, number))
            update(model, adam)
            whole = time.perf_counter() - begin
        seconds: dict[str, float] = dict.fromkeys(("matrix products", "other operators"), 0.0)
        for event in profiled.key_averages():
            if event.key.startswith(("aten::", "mkldnn::", "clozeworks::")):
                kind = "matrix products" if event.key.partition("::")[2] in PRODUCTS else "other operators"
                seconds[kind] += event.self_cpu_time_total / 1e6
        rows.append(seconds | {"Python": max(whole - sum(seconds.values()), 0.0)})
    return _medians(rows[1:])


def update(model: Model, adam: Optimizer) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    adam.zero_grad(set_to_none=True)


def _medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(1000 * statistics.median(row[name] for row in rows), 2) for name in rows[-1]}
