"""A recipe on so many GPUs: memory, steps, text, checkpoints, put together from `estimate` and `traffic`."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from studies.scale.cluster import Cluster
from studies.scale.estimate import LENGTH, Estimate, Memory, estimate_memory, most_rows
from studies.scale.traffic import Reading, Saving, Shards, Step, reading, saving, shards, step


@dataclass(frozen=True, slots=True)
class Schedule:
    """A published number of steps and rows a step, all of them at full length."""

    name: str
    steps: int
    rows: int

    @property
    def tokens(self) -> int:
        return self.steps * self.rows * LENGTH


SCHEDULES = (Schedule("BERT", 1_000_000, 256), Schedule("RoBERTa", 500_000, 8192))


@dataclass(frozen=True, slots=True)
class Run:
    """One schedule on so many GPUs."""

    schedule: Schedule
    step: Step
    reading: Reading
    saving: Saving

    @property
    def seconds(self) -> float:
        """Without failures and saves."""
        return self.schedule.steps * self.step.together

    @property
    def with_failures(self) -> float:
        return self.seconds * (1 + self.saving.wasted)


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to spread the model over so many GPUs."""

    gpus: int
    sharded: bool
    memory: Memory
    rows: int  # at once that fit
    rows_recomputed: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe on several numbers of GPUs."""

    name: str
    model: Estimate
    cluster: Cluster
    shards: Shards
    layouts: tuple[Layout, ...]


def plan(name: str, model: Estimate, cluster: Cluster, gpus: Sequence[int]) -> Plan:
    """What so many GPUs need, for each of several numbers."""
    layouts = tuple(_layout(model, cluster, ranks, sharded) for ranks in gpus for sharded in (False, True))
    return Plan(name, model, cluster, shards(cluster.text, model.vocab), layouts)


def _layout(model: Estimate, cluster: Cluster, ranks: int, sharded: bool) -> Layout:
    work, room = cluster.work, cluster.gpu.memory * (1 - cluster.gpu.reserve)
    held = estimate_memory(model, work.micro, ranks=ranks, sharded=sharded, again=bool(work.recompute))
    most, most_again = (most_rows(room, model, ranks=ranks, sharded=sharded, again=again) for again in (False, True))
    runs = tuple(_run(model, cluster, ranks, sharded, each) for each in SCHEDULES)
    return Layout(ranks, sharded, held, most, most_again, runs)


def _run(model: Estimate, cluster: Cluster, ranks: int, sharded: bool, schedule: Schedule) -> Run:
    one = step(model, cluster, ranks, schedule.rows, sharded)
    return Run(
        schedule,
        one,
        reading(one, cluster, ranks, model.vocab, shards(cluster.text, model.vocab).size),
        saving(model, cluster, ranks, schedule.steps * one.together, sharded),
    )


def as_json(plan: Plan) -> dict[str, Any]:
    """All of it, bytes and seconds; what never happens (no failures, hence no interval) is null."""
    facts = asdict(plan)
    facts["assumptions"] = plan.cluster.assumptions()
    del facts["cluster"]
    for layout, each in zip(plan.layouts, facts["layouts"], strict=True):
        each["memory"]["total"] = layout.memory.total
        for run, each_run in zip(layout.runs, each["runs"], strict=True):
            each_run["seconds"], each_run["seconds_with_failures"] = run.seconds, run.with_failures
            each_run["step"] |= {"apart": run.step.apart, "together": run.step.together}
            each_run["saving"] = {key: None if math.isinf(v) else v for key, v in each_run["saving"].items()}
    return facts
