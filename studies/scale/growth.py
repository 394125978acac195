"""A recipe on so many GPUs: memory, steps, text, checkpoints, put together from `footprint` and `traffic`."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clozeworks.core.errors import InputError
from studies.scale.cluster import Cluster
from studies.scale.footprint import Kept, Shape, flops, keeps, layer_flops, recomputed
from studies.scale.peak import Memory, memory, most_rows
from studies.scale.traffic import Reading, Saving, Shards, Step, levels, reading, saving, shards, step

LENGTH = 512  # tokens a row, as in both schedules


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
    name: str
    shape: Shape
    cluster: Cluster
    forward: float  # FLOPs a token
    again: float  # FLOPs a token more, if layers are recomputed
    kept: Kept  # of one micro-batch
    recomputed: int  # the same, if layers are
    shards: Shards
    layouts: tuple[Layout, ...]


def plan(name: str, shape: Shape, cluster: Cluster, gpus: Sequence[int]) -> Plan:
    """What so many GPUs need, for each of several numbers."""
    if shape.positions < LENGTH:
        raise InputError(name, f"{shape.positions} positions", f"rows of {LENGTH} tokens are counted", "take another")
    work = cluster.work
    for ranks in gpus:
        levels(ranks, cluster.node)
    return Plan(
        name,
        shape,
        cluster,
        flops(shape, work.micro, LENGTH, work.hidden) / (work.micro * LENGTH),
        layer_flops(shape, work.micro, LENGTH, work.hidden) / (work.micro * LENGTH),
        keeps(shape, work.micro, LENGTH, work.hidden),
        recomputed(shape, work.micro, LENGTH, work.hidden),
        shards(cluster.text, shape.vocab),
        tuple(_layout(shape, cluster, ranks, sharded) for ranks in gpus for sharded in (False, True)),
    )


def _layout(shape: Shape, cluster: Cluster, ranks: int, sharded: bool) -> Layout:
    work, room = cluster.work, cluster.gpu.memory * (1 - cluster.gpu.reserve)
    held = memory(shape, work.micro, LENGTH, work.hidden, ranks, sharded, bool(work.recompute))
    most, most_again = (
        most_rows(room, shape, LENGTH, work.hidden, ranks, sharded, again) for again in (False, True)
    )  # fmt: skip
    return Layout(
        ranks, sharded, held, most, most_again, tuple(_run(shape, cluster, ranks, sharded, each) for each in SCHEDULES)
    )


def _run(shape: Shape, cluster: Cluster, ranks: int, sharded: bool, schedule: Schedule) -> Run:
    one = step(shape, cluster, ranks, schedule.rows, LENGTH, sharded)
    return Run(
        schedule,
        one,
        reading(one, LENGTH, cluster, ranks, shape.vocab, shards(cluster.text, shape.vocab).size),
        saving(shape, cluster, ranks, schedule.steps * one.together, sharded),
    )


def as_json(plan: Plan) -> dict[str, Any]:
    """All of it, bytes and seconds; what never happens (no failures, hence no interval) is null."""
    found = asdict(plan)
    found["assumptions"] = plan.cluster.assumptions()
    del found["cluster"]
    found["kept"] |= {"layers": plan.kept.layers, "total": plan.kept.total}
    for layout, each in zip(plan.layouts, found["layouts"], strict=True):
        each["memory"]["total"] = layout.memory.total
        for run, facts in zip(layout.runs, each["runs"], strict=True):
            facts["seconds"], facts["seconds_with_failures"] = run.seconds, run.with_failures
            facts["step"] |= {"apart": run.step.apart, "together": run.step.together}
            facts["saving"] = {key: None if math.isinf(v) else v for key, v in facts["saving"].items()}
    return found
