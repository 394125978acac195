"""What a fine-tuning run would take, before any of it is done: memory by shapes alone, time by a few steps."""

import copy
from dataclasses import dataclass

from clozeworks.data.batches.labelled import make_batch, order
from clozeworks.optim.parameter_groups import build_optimizer
from clozeworks.recipe import build
from clozeworks.train.finetune.batches import predict_words, steps_an_epoch
from clozeworks.train.finetune.memory import choose_micro_tokens, largest_step, measure_finetuning
from clozeworks.train.finetune.plan import Plan
from clozeworks.train.finetune.recipe import choose_epochs
from clozeworks.train.loop import Policy
from clozeworks.train.pretrain import choose_precision, pick_device
from clozeworks.train.resources import memory_check
from clozeworks.train.resources.dry_run import measure_step

FORWARD = 1 / 3  # of the time of both passes, which an evaluation takes for a token


@dataclass(frozen=True, slots=True)
class FinetuneForecast:
    """Tokens, time and memory of a fine-tuning run, all of its seeds or folds, without --continue-pretraining."""

    tokens: int
    seconds: float
    tokens_per_second: float
    parameters: int
    micro_tokens: int | None  # of a piece of a step, where gradients are accumulated
    memory_bytes: int
    memory_free_bytes: int | None


def forecast_finetuning(plan: Plan, device: str = "auto") -> tuple[FinetuneForecast, list[str]]:
    """A few pieces of one step are computed and timed; nothing is written. With it comes what a run would say of its
    memory."""
    device = pick_device(device)
    recipe, rows, notes = copy.deepcopy(plan.recipe), plan.examples, list[str]()
    tune, train = recipe.finetune, recipe.train
    assert tune is not None
    if any("labels" in loss.needs.reads for loss in recipe.objective.losses):
        rows = copy.deepcopy(rows)
        predict_words(rows)
    if train.micro_tokens is None:
        notes = choose_micro_tokens(recipe, rows, device)
    cost = measure_finetuning(recipe, largest_step(rows, recipe))
    room = memory_check.free_bytes(cost, device)
    model = build(recipe).to(device)
    optimizer = build_optimizer(model, train.optimizer, train.learning_rate)
    chosen = order(len(rows), train.seed, 0)[: tune.batch_size]
    batch = make_batch(rows, chosen, recipe.reading, plan.tokenizer.filler, train.micro_tokens)[0]
    (piece, update), _ = measure_step(
        model, optimizer, batch.to(device), Policy(precision=choose_precision(recipe, device))
    )
    epochs, evaluations = train.steps / steps_an_epoch(len(rows), tune.batch_size), train.steps // train.evaluate_every
    once, steps = int(rows.lengths.sum()), train.steps
    tokens = round(epochs * once)
    if plan.unlabelled is not None:  # then all rows, from the beginning
        more = plan.task.examples(plan.unlabelled, plan.tokenizer, truth=False).lengths
        units = len(rows) + len(more)
        passes = plan.options.epochs or choose_epochs(units, tune.batch_size, plan.options.from_scratch)
        tokens += passes * (once + int(more.sum()))
        steps += passes * steps_an_epoch(units, tune.batch_size)
        evaluations += passes
    evaluated = 0 if plan.dev is None else evaluations * once * len(plan.dev) / len(plan.train)
    each = piece / batch.read
    seconds = each * (tokens + FORWARD * evaluated) + update * steps
    times = len(plan.folds) or plan.options.seeds  # k models learn from (k - 1) / k of the rows, and one from all
    return FinetuneForecast(
        tokens=times * tokens,
        seconds=times * seconds,
        tokens_per_second=1 / each,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        micro_tokens=train.micro_tokens,
        memory_bytes=room.need,
        memory_free_bytes=None if room.free is None else room.free + room.held,
    ), notes
