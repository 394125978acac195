"""How many threads train vectors."""

import os

from clozeworks.core.errors import InputError


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of(workers: int | None, deterministic: bool) -> int | None:
    """How many are asked for; None: one a core."""
    if workers is not None and workers < 1:
        raise InputError("workers", workers, "1 or more is needed", "leave it out")
    if deterministic and workers not in (None, 1):
        needed = "one thread repeats itself exactly, several do not"
        raise InputError("workers", workers, needed, "leave one of them out")
    return 1 if deterministic else workers
