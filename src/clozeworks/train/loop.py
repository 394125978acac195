"""The training loop: one generator for every objective and task.

It owns accumulation, clipping and precision, and asks the guard before each update; logging, saving, evaluating and
going back happen in the caller's `for`.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from clozeworks.batch import Batch
from clozeworks.key import Key
from clozeworks.model import Model
from clozeworks.train.guard import Watch


@dataclass(frozen=True, slots=True)
class Step:
    """What one update did. The model and the optimizer are as this step left them until the next is asked for."""

    number: int  # from 1
    steps: int
    loss: float  # weighted sum of the losses, each a mean over the predictions of the whole step
    metrics: dict[str, float]  # every loss and metric by name
    learning_rate: float
    grad_norm: float  # before clipping
    tokens: int  # without padding
    examples: tuple[int, ...]
    seconds: float
    cpu_seconds: float
    waited: float  # seconds of them spent waiting for data
    skipped: bool = False  # nothing was changed
    reason: str = ""  # why not
    trouble: bool = False  # it lasts: no step follows until the caller has gone back, or asking for one raises

    @property
    def first(self) -> bool:
        return self.number == 1

    @property
    def last(self) -> bool:
        return self.number == self.steps

    def every(self, count: int) -> bool:
        return self.number % count == 0


def fit(
    model: Model,
    data: Iterable[list[Batch]],
    optimizer: torch.optim.Optimizer,
    schedule: Callable[[int], float],
    *,
    steps: int,
    start: int = 0,
    clip: float | None = None,
    seed: int = 0,
    dropout: bool = True,
    precision: Literal["fp32", "bf16"] = "fp32",
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Iterator[Step]:
    """Train, one step for each list of micro-batches, from step `start` + 1 to `steps`.

    Each loss is a sum over its predictions divided by their number in the whole step, so that any cut of a step into
    micro-batches gives the same gradient. A step that `watch` refuses changes nothing and is reported as skipped; one
    that it passes over is not even computed. Where it finds lasting trouble, the steps end, or an error is raised.
    """
    batches, watch = iter(data), watch or Watch()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for number in range(start + 1, steps + 1):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        try:
            micro = next(batches)
        except StopIteration:
            raise RuntimeError(f"the data ended before step {number} of {steps}") from None
        waited, rate = time.perf_counter() - begin, schedule(number)
        examples = tuple(index for batch in micro for index in batch.index)
        if passed := watch.passes(number):
            seconds, reason = time.perf_counter() - begin, f"passed over: {passed.reason}"
            yield Step(number, steps, math.nan, {}, rate, math.nan, 0, examples, seconds, 0.0, waited, True, reason)
            continue
        micro = [batch.to(device) for batch in micro]

        optimizer.zero_grad(set_to_none=True)
        keys = keys_of(micro, seed, number) if dropout else [None] * len(micro)
        means = accumulate(model, micro, keys, precision)
        norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        *values, grad_norm = torch.stack([*means.values(), norm.detach().to(device)]).tolist()  # the one wait a step
        metrics = dict(zip(means, values, strict=True))
        loss = sum(spec.weight * metrics[spec.name] for spec in model.specs)

        verdict = watch(number, loss, grad_norm)
        if verdict.act == "update":
            if clip is not None and grad_norm > clip:
                clip_grads_with_norm_(parameters, clip, norm)
            for group in optimizer.param_groups:
                group["lr"] = rate * group.get("share", 1.0)
            optimizer.step()
        step = Step(
            number,
            steps,
            loss,
            metrics,
            rate,
            grad_norm,
            tokens=sum(batch.real for batch in micro),
            examples=examples,
            seconds=time.perf_counter() - begin,
            cpu_seconds=time.process_time() - cpu_begin,
            waited=waited,
            skipped=verdict.act != "update",
            reason=verdict.reason,
            trouble=verdict.act in ("back", "stop"),
        )
        yield step
        if verdict.act == "stop":
            raise watch.diverged(step)
        if verdict.act == "back":
            return


def keys_of(micro: list[Batch], seed: int, step: int) -> list[Key]:
    """Of each micro-batch, by the numbers of its rows within the step: cut otherwise, a step drops the same."""
    ends = itertools.accumulate(len(batch.tokens) for batch in micro)
    rows = [range(end - len(batch.tokens), end) for batch, end in zip(micro, ends, strict=True)]
    return [Key.make(seed, step, rows=each).to(batch.tokens.device) for each, batch in zip(rows, micro, strict=True)]


def accumulate(
    model: Model, micro: list[Batch], keys: Sequence[Key | None], precision: Literal["fp32", "bf16"] = "fp32"
) -> dict[str, Tensor]:
    """Add the gradients of one step; give each loss and metric of the step by name, still on the device."""
    counts = {spec.name: sum(spec.count(batch) for batch in micro) for spec in model.specs}
    device = micro[0].tokens.device
    means: dict[str, Tensor] = {}
    for batch, key in zip(micro, keys, strict=True):
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            output = model(batch, key)
        total = torch.zeros((), device=device)
        for spec in model.specs:
            if counts[spec.name]:  # a loss without a prediction in this step says nothing
                total = total + spec.weight * output.losses[spec.name].float() / counts[spec.name]
        if total.requires_grad:
            total.backward()
        sums = {name: (name, value) for name, value in output.losses.items()} | output.metrics
        for name, (loss, value) in sums.items():
            part = value.detach().float() / max(counts[loss], 1)
            means[name] = means[name] + part if name in means else part
    return means
