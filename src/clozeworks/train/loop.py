"""The training loop: one generator for every objective and task.

It owns accumulation, clipping and precision, and asks the guard before each update; logging, saving, evaluating and
going back happen in the caller's `for`.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from clozeworks.core.batch import Batch
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.core.world import ProcessGroup, gradients
from clozeworks.model import Model
from clozeworks.optim.constraints import constrain, list_constrained
from clozeworks.train.guard import SpikeGuard


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
    examples: tuple[int, ...]  # of this process; of all where the step was skipped
    seconds: float
    cpu_seconds: float  # of all processes, taken to be alike
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
    watch: SpikeGuard | None = None,
    world: ProcessGroup | None = None,
    teach: Callable[[Batch], Batch] | None = None,
    recall: SegmentMemory | None = None,
    unfreeze: Callable[[int], None] | None = None,
) -> Iterator[Step]:
    """Train, one step for each list of micro-batches, from step `start` + 1 to `steps`.

    Each loss is a sum over its predictions divided once by their number in the whole step (`Loss.divisor`), so that any
    cut of a step into micro-batches gives the same gradient. A step that `watch` refuses changes nothing and is
    reported as skipped; one that it passes over is not even computed. Where it finds lasting trouble, the steps end, or
    an error is raised.

    In a `world` of several processes each gives its share of a step, and all see the same losses, norms and decisions.
    `teach` has a teacher read each micro-batch before the model does. `recall` is what streams of text remember at the
    start; after a step that changes nothing they remember nothing. `thaw` says before each step which parameters learn.
    """
    batches, watch, world = iter(data), watch or SpikeGuard(), world or ProcessGroup()
    recall = SegmentMemory() if recall is None else recall
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    bound = list_constrained(model)
    constrain(bound)
    for number in range(start + 1, steps + 1):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        try:
            micro = next(batches)
        except StopIteration:
            raise RuntimeError(f"the data ended before step {number} of {steps}") from None
        waited, rate = time.perf_counter() - begin, schedule(number)
        examples = tuple(index for batch in micro for index in batch.index)
        if passed := watch.passes(number):
            examples, reason = world.joined(examples), f"passed over: {passed.reason}"
            recall.forget()
            seconds = time.perf_counter() - begin
            yield Step(number, steps, math.nan, {}, rate, math.nan, 0, examples, seconds, 0.0, waited, True, reason)
            continue
        micro = [batch.to(device) for batch in micro]
        if unfreeze is not None:
            unfreeze(number)
            parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

        optimizer.zero_grad(set_to_none=True)
        keys = make_dropout_keys(micro, seed, number) if dropout else [None] * len(micro)
        counts, tokens = count_predictions(model, micro, world)
        parts = accumulate(model, micro, keys, precision, world, counts, teach, recall)
        norm = get_total_norm(gradients(parameters)).detach().to(device)
        means, norm = world.settled(torch.stack(list(parts.values())), norm)
        *values, grad_norm = torch.cat([means, norm[None]]).tolist()  # the one wait a step
        metrics = dict(zip(parts, values, strict=True))
        loss = sum(spec.weight * metrics[spec.name] for spec in model.specs if not spec.regularizer)

        verdict = watch(number, loss, grad_norm)
        if verdict.act == "update":
            if clip is not None and grad_norm > clip:
                clip_grads_with_norm_(parameters, clip, norm)
            for group in optimizer.param_groups:
                group["lr"] = rate * group.get("share", 1.0)
            optimizer.step()
            constrain(bound)
        else:
            recall.forget()
        step = Step(
            number,
            steps,
            loss,
            metrics,
            rate,
            grad_norm,
            tokens,
            examples=examples if verdict.act == "update" else world.joined(examples),
            seconds=time.perf_counter() - begin,
            cpu_seconds=(time.process_time() - cpu_begin) * world.size,
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


def make_dropout_keys(micro: list[Batch], seed: int, step: int) -> list[DropoutKey]:
    """Of each micro-batch, by the numbers of its rows within the step: cut otherwise, a step drops the same."""
    keys, end = [], 0
    for batch in micro:
        begin = end if batch.row is None else batch.row
        end = begin + len(batch.tokens)
        keys.append(DropoutKey.make(seed, step, rows=range(begin, end)).to(batch.tokens.device))
    return keys


def count_predictions(model: Model, micro: list[Batch], world: ProcessGroup) -> tuple[dict[str, int], int]:
    """The predictions of each loss and the tokens in the step, those of other processes too."""
    mine = [sum(spec.count(batch) for batch in micro) for spec in model.specs]
    *counts, tokens = world.totals([*mine, sum(batch.read for batch in micro)])
    return {spec.name: found for spec, found in zip(model.specs, counts, strict=True)}, tokens


def accumulate(
    model: Model,
    micro: list[Batch],
    keys: Sequence[DropoutKey | None],
    precision: Literal["fp32", "bf16"] = "fp32",
    world: ProcessGroup | None = None,
    counts: dict[str, int] | None = None,
    teach: Callable[[Batch], Batch] | None = None,
    recall: SegmentMemory | None = None,
) -> dict[str, Tensor]:
    """Add the gradients of one step; give this process's part of each loss and metric by name, still on the device."""
    world, recall = world or ProcessGroup(), SegmentMemory() if recall is None else recall
    counts = counts or count_predictions(model, micro, world)[0]
    divisors = {spec.name: spec.divisor(counts[spec.name]) for spec in model.specs}
    device = micro[0].tokens.device
    means: dict[str, Tensor] = {}
    for number, (batch, key) in enumerate(zip(micro, keys, strict=True), 1):
        with world.running(model, last=number == len(micro)) as run:
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
                output = run(recall.give(batch if teach is None else teach(batch)), key)
            recall.take(batch, output.hidden.memory)
            total = torch.zeros((), device=device)
            for spec in model.specs:
                if counts[spec.name]:  # a loss without a prediction in this step says nothing
                    total = total + spec.weight * output.losses[spec.name].float() / divisors[spec.name]
                elif world.size > 1:  # but every process waits for the gradients of every parameter
                    total = total + 0.0 * output.losses[spec.name].float()
            if total.requires_grad:
                (total if world.factor == 1 else total * world.factor).backward()
        sums = {name: (name, value) for name, value in output.losses.items()} | output.metrics
        for name, (loss, value) in sums.items():
            part = value.detach().float() / max(divisors[loss] if name == loss else counts[loss], 1)
            means[name] = means[name] + part if name in means else part
    return means
