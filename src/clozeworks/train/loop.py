"""The training loop: one generator for every objective and task.

`fit` owns gradient accumulation, clipping, mixed precision and the check that losses and gradients are finite. Logging,
saving, evaluating, early stopping and going back to a checkpoint happen in the caller's `for` (see `run`).
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from clozeworks.core.batch import Batch
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.process_group import ProcessGroup, gradients
from clozeworks.core.segment_memory import SegmentMemory
from clozeworks.model import Model
from clozeworks.optim.constraints import constrain, list_constrained
from clozeworks.train.guard import SpikeGuard, Verdict
from clozeworks.train.step import Step


@dataclass(slots=True, kw_only=True)
class Policy:
    """How a step is computed, whatever is trained and on whatever data."""

    clip: float | None = None  # the norm that gradients are clipped to
    precision: Literal["fp32", "bf16"] = "fp32"  # bf16: mixed precision, weights and updates stay fp32
    device: torch.device | str = "cpu"
    seed: int = 0  # of dropout
    dropout: bool = True
    guard: SpikeGuard = field(default_factory=SpikeGuard)  # which updates are not made
    group: ProcessGroup = field(default_factory=ProcessGroup)  # data parallel: each process gives its share of a step
    teacher: Callable[[Batch], Batch] | None = None  # reads each micro-batch before the model does
    memory: SegmentMemory = field(default_factory=SegmentMemory)  # what streams of text remember at the start
    unfreezing: Callable[[int], None] | None = None  # says before each step which parameters learn


def fit(
    model: Model,
    batches: Iterable[list[Batch]],
    optimizer: torch.optim.Optimizer,
    schedule: Callable[[int], float],
    *,
    steps: int,
    start: int = 0,
    policy: Policy | None = None,
) -> Iterator[Step]:
    """Train from step `start` + 1 to `steps`, each on a list of micro-batches and at the learning rate of `schedule`.

    Gradient accumulation: each loss is a sum over its predictions divided once by their number in the whole step, so
    any cut into micro-batches, or shares of data-parallel processes, gives the same gradient. A step that the guard
    refuses is skipped and changes nothing; where trouble lasts, the steps end, or an error is raised.
    """
    policy = policy or Policy()
    iterator, constrained = iter(batches), list_constrained(model)
    constrain(constrained)
    for number in range(start + 1, steps + 1):
        clock = Clock()
        micro = clock.wait_for(iterator, f"step {number} of {steps}")
        rate = schedule(number)
        if (passed := policy.guard.passes(number)) is not None:
            gradient, verdict = NO_GRADIENT, Verdict("skip", f"passed over: {passed.reason}")
        else:
            placed, keys = prepare_step(micro, optimizer, number, policy)
            counts, tokens = count_predictions(model, placed, policy.group)
            parts = accumulate(model, placed, keys, policy, counts)
            gradient = reduce_gradient(model, parts, tokens, policy)
            verdict = policy.guard(number, gradient.loss, gradient.norm)
        examples = tuple(index for batch in micro for index in batch.index)
        if verdict.act == "update":
            update(optimizer, rate, gradient, policy.clip)
            constrain(constrained)
        else:
            examples = policy.group.joined(examples)
            policy.memory.forget()  # streams of text continue from what the model has read
        step = Step(
            number=number,
            steps=steps,
            loss=gradient.loss,
            metrics=gradient.metrics,
            learning_rate=rate,
            grad_norm=gradient.norm,
            tokens=gradient.tokens,
            examples=examples,
            seconds=clock.seconds,
            cpu_seconds=clock.cpu_seconds * policy.group.size,
            waited=clock.waited,
            skipped=verdict.act != "update",
            reason=verdict.reason,
            trouble=verdict.act in ("back", "stop"),
            batch=micro[0],
        )
        yield step
        if verdict.act == "stop":
            raise policy.guard.diverged(step)
        if verdict.act == "back":
            return


class Clock:
    """The time of a step, from its beginning on."""

    def __init__(self) -> None:
        self._begin, self._cpu_begin = time.perf_counter(), time.process_time()
        self.waited = 0.0  # seconds for data

    def wait_for(self, batches: Iterator[list[Batch]], step: str) -> list[Batch]:
        """The micro-batches of a step; the time until they come is `waited`."""
        micro = next(batches, None)
        if micro is None:
            raise RuntimeError(f"the data ended before {step}")
        self.waited = self.seconds
        return micro

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._begin

    @property
    def cpu_seconds(self) -> float:
        return time.process_time() - self._cpu_begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """What the forward and backward passes of a step gave; the gradients themselves are in `parameters`."""

    loss: float
    metrics: dict[str, float]
    norm: float
    tokens: int
    parameters: list[nn.Parameter]
    device_norm: Tensor  # the norm again, where the parameters are


NO_GRADIENT = Gradient(
    loss=math.nan, metrics={}, norm=math.nan, tokens=0, parameters=[], device_norm=torch.tensor(math.nan)
)


def prepare_step(
    micro: list[Batch], optimizer: torch.optim.Optimizer, number: int, policy: Policy
) -> tuple[list[Batch], Sequence[DropoutKey | None]]:
    """The micro-batches on their device, each with the key of its dropout; no gradient is left of the last step."""
    if policy.unfreezing is not None:
        policy.unfreezing(number)
    optimizer.zero_grad(set_to_none=True)
    placed = [batch.to(policy.device) for batch in micro]
    return placed, make_dropout_keys(placed, policy.seed, number) if policy.dropout else [None] * len(placed)


def reduce_gradient(model: Model, parts: dict[str, Tensor], tokens: int, policy: Policy) -> Gradient:
    """The gradient that all processes have together, with its norm; the one wait for the device a step."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    norm = get_total_norm(gradients(parameters)).detach().to(policy.device)
    means, norm = policy.group.settled(torch.stack(list(parts.values())), norm)
    *values, grad_norm = torch.cat([means, norm[None]]).tolist()
    metrics = dict(zip(parts, values, strict=True))
    loss = sum(spec.weight * metrics[spec.name] for spec in model.specs if not spec.regularizer)
    return Gradient(loss=loss, metrics=metrics, norm=grad_norm, tokens=tokens, parameters=parameters, device_norm=norm)


def update(optimizer: torch.optim.Optimizer, rate: float, gradient: Gradient, clip: float | None) -> None:
    """Clip the gradient and take one step at this learning rate, of which a group of parameters may have a share."""
    if clip is not None and gradient.norm > clip:
        clip_grads_with_norm_(gradient.parameters, clip, gradient.device_norm)
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("share", 1.0)
    optimizer.step()


def make_dropout_keys(micro: list[Batch], seed: int, step: int) -> list[DropoutKey]:
    """Of each micro-batch, by the numbers of its rows within the step: cut otherwise, a step drops the same."""
    keys, end = [], 0
    for batch in micro:
        begin = end if batch.row is None else batch.row
        end = begin + len(batch.tokens)
        keys.append(DropoutKey.make(seed, step, rows=range(begin, end)).to(batch.tokens.device))
    return keys


def count_predictions(model: Model, micro: list[Batch], group: ProcessGroup) -> tuple[dict[str, int], int]:
    """The predictions of each loss and the tokens in the step, those of other processes too."""
    own = [sum(spec.count(batch) for batch in micro) for spec in model.specs]
    *counts, tokens = group.totals([*own, sum(batch.read for batch in micro)])
    return {spec.name: count for spec, count in zip(model.specs, counts, strict=True)}, tokens


def accumulate(
    model: Model,
    micro: list[Batch],
    keys: Sequence[DropoutKey | None],
    policy: Policy | None = None,
    counts: dict[str, int] | None = None,
) -> dict[str, Tensor]:
    """Gradient accumulation: add up the gradients of the micro-batches of one step.

    Gives this process's part of each loss and metric by name, still on the device.
    """
    policy = policy or Policy()
    group, memory, teacher = policy.group, policy.memory, policy.teacher
    counts = counts or count_predictions(model, micro, group)[0]
    divisors = {spec.name: spec.divisor(counts[spec.name]) for spec in model.specs}
    device = micro[0].tokens.device
    means: dict[str, Tensor] = {}
    for number, (batch, key) in enumerate(zip(micro, keys, strict=True), 1):
        with group.running(model, last=number == len(micro)) as run:
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=policy.precision == "bf16"):
                output = run(memory.give(batch if teacher is None else teacher(batch)), key)
            memory.take(batch, output.hidden.memory)
            total = torch.zeros((), device=device)
            for spec in model.specs:
                if counts[spec.name]:  # a loss without a prediction in this step says nothing
                    total = total + spec.weight * output.losses[spec.name].float() / divisors[spec.name]
                elif group.size > 1:  # but every process waits for the gradients of every parameter
                    total = total + 0.0 * output.losses[spec.name].float()
            if total.requires_grad:
                (total if group.factor == 1 else total * group.factor).backward()
        sums = {name: (name, value) for name, value in output.losses.items()} | output.metrics
        for name, (loss, value) in sums.items():
            part = value.detach().float() / max(divisors[loss] if name == loss else counts[loss], 1)
            means[name] = means[name] + part if name in means else part
    return means
