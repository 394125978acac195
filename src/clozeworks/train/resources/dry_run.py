"""What a run would take: counted where it can be counted, measured on a few pieces of a step where it cannot."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from clozeworks.core.batch import Batch
from clozeworks.core.dropout import DropoutKey
from clozeworks.exchange.bundle import Bundle
from clozeworks.model import Model
from clozeworks.optim import parameter_groups
from clozeworks.recipe import Recipe, build
from clozeworks.train.loop import Policy, accumulate
from clozeworks.train.pretrain import StrPath, choose_precision, fit_to_data, open_data, pick_device
from clozeworks.train.pretraining_batches import PretrainingBatches, phase_ends
from clozeworks.train.resources import memory_check
from clozeworks.train.resources.cost import measure_cost
from clozeworks.train.teacher import check_teacher, fit_to_teacher, make_teacher

PATIENCE = 10.0  # seconds of measuring for each length


@dataclass(frozen=True, slots=True)
class Forecast:
    """Steps, tokens, time, memory and disk of a run that was not started."""

    steps: int
    tokens: int
    corpus_tokens: int
    epochs: float
    seconds: float
    cpu_seconds: float
    tokens_per_second: float
    parameters: int
    memory_bytes: int
    memory_free_bytes: int | None
    disk_bytes: int


def forecast(
    recipe: Recipe,
    data: Sequence[tuple[StrPath, float]],
    source: Model | None = None,
    device: str = "auto",
    teacher: Bundle | None = None,
) -> Forecast:
    """What a pretraining run would take: a few micro-batches of each length phase are computed and timed."""
    corpora, tokenizer = open_data(data)
    recipe = fit_to_teacher(fit_to_data(recipe, tokenizer, source), teacher)
    check_teacher(recipe, tokenizer, teacher)
    device = pick_device(device)
    cost, train = measure_cost(recipe, teacher), recipe.train
    memory = memory_check.free_bytes(cost, device)
    model = build(recipe).to(device)
    adam = parameter_groups.build_optimizer(model, train.optimizer, train.learning_rate)
    taught = make_teacher(teacher, recipe, tokenizer, device)
    policy = Policy(precision=choose_precision(recipe, device), teacher=taught)
    seconds, cpu, tokens, before = 0.0, 0.0, 0, 0
    for phase, (end, _) in enumerate(phase_ends(train, recipe.objective.segments.length)):
        batches = iter(
            PretrainingBatches(recipe, corpora, tokenizer.vocabulary(), before, {"phase": phase, "place": None})
        )
        micro = next(batches)
        batches.close()  # pyright: ignore[reportAttributeAccessIssue]
        (piece, update), (cpu_piece, cpu_update) = measure_step(model, adam, micro[0].to(device), policy)
        seconds += (end - before) * (piece * len(micro) + update)
        cpu += (end - before) * (cpu_piece * len(micro) + cpu_update)
        tokens += (end - before) * sum(batch.read for batch in micro)
        before = end
    corpus = sum(corpus.counts.tokens for corpus, _ in corpora)
    return Forecast(
        steps=train.steps,
        tokens=tokens,
        corpus_tokens=corpus,
        epochs=tokens / corpus,
        seconds=seconds,
        cpu_seconds=cpu,
        tokens_per_second=tokens / seconds,
        parameters=cost.parameters,
        memory_bytes=memory.need,
        memory_free_bytes=None if memory.free is None else memory.free + memory.held,
        disk_bytes=train.keep.last * cost.saving,
    )


Times = tuple[float, float]  # of the gradients of one micro-batch, and of an update


def measure_step(model: Model, adam: torch.optim.Optimizer, batch: Batch, policy: Policy) -> tuple[Times, Times]:
    """Seconds, and CPU seconds: the best of a few, the first not counted."""
    gradients: list[Times] = []
    updates: list[Times] = []
    begin = time.perf_counter()
    while len(gradients) < 4 and (len(gradients) < 2 or time.perf_counter() - begin < PATIENCE):
        adam.zero_grad(set_to_none=True)
        key = DropoutKey.make(0, len(gradients))
        start = _now()
        accumulate(model, [batch], [key], policy)
        middle = _now()
        adam.step()
        end = _now()
        gradients.append((middle[0] - start[0], middle[1] - start[1]))
        updates.append((end[0] - middle[0], end[1] - middle[1]))
    best = [[min(times[which] for times in kind[1:]) for kind in (gradients, updates)] for which in (0, 1)]
    return (best[0][0], best[0][1]), (best[1][0], best[1][1])


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
