"""Where the time of our step goes, by part, forward and backward together."""

import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from torch import nn

from clozeworks.bench.workload import Workload
from clozeworks.key import Key
from clozeworks.model import Model
from clozeworks.nn.attention import AttentionLayer
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.ffn import FeedForwardLayer
from clozeworks.objectives.objective import LossLayer
from clozeworks.train import optim
from clozeworks.train.loop import accumulate

PARTS = {EmbedLayer: "embedding", AttentionLayer: "attention", FeedForwardLayer: "ffn", LossLayer: "head"}


class Clock:
    """Adds up the processor seconds of each kind of part.

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
        self.begun = time.process_time()
        if back and not self.back:
            self.back = True
            self.seconds["head"] += self.begun - self.last

    def stop(self, name: str) -> None:
        self.last = time.process_time()
        self.seconds[name] += self.last - self.begun

    def end(self) -> None:
        self.seconds["embedding"] += time.process_time() - self.last
        self.back = False


def measure(folder: Path, steps: int = 10) -> dict[str, Any]:
    """Median processor milliseconds of each part of a step; `norms, residuals, dropout` is the rest of the blocks."""
    work = Workload.open(folder)
    train, model = work.recipe.train, work.model()
    adam = optim.optimizer(model, train.optimizer, train.learning_rate)
    clock, rows = Clock(model), []
    batches = work.steps()
    for number in range(steps + 2):
        begin = time.process_time()
        micro = next(batches)
        clock.seconds.clear()
        clock.seconds["data"] = time.process_time() - begin
        begin = time.process_time()
        accumulate(model, micro, [Key.make(0, number)])
        clock.end()
        inside = time.process_time() - begin
        clock.seconds["norms, residuals, dropout"] = inside - sum(clock.seconds[name] for name in PARTS.values())
        begin = time.process_time()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        clock.seconds["optimizer"] = time.process_time() - begin
        rows.append(dict(clock.seconds))
    return {name: round(1000 * statistics.median(row[name] for row in rows[2:]), 2) for name in rows[-1]}
