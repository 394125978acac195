"""Where units are made: in this process, in several, or on a Ray cluster. The results come back in order.

Each engine takes a task, which says how a worker makes something of a unit, and the units, and keeps only a few of
them in flight, so memory does not grow with the text.
"""

import contextlib
import importlib
import logging
import os
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, Protocol, TypeVar

from clozeworks.core.child_process import SAFE
from clozeworks.core.errors import InputError
from clozeworks.data.shards.units import Unit

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Task(Protocol[Result_co]):
    """What is handed to a worker, small and the same for every unit; started there, it gives what runs on a unit."""

    def start(self) -> Callable[[Unit], Result_co]: ...


class Engine(Protocol):
    """Runs a task on units, somewhere, and gives the results in the order of the units."""

    def __call__(self, task: Task[Result], units: Iterator[Unit], /) -> Iterator[Result]: ...


def run_here(task: Task[Result], units: Iterator[Unit]) -> Iterator[Result]:
    """In this process: the next unit is read while the last one is tokenised (`tokenizers` has threads of its own)."""
    run = task.start()
    with ThreadPoolExecutor(1) as pool:
        yield from _run_in_order(lambda unit: pool.submit(run, unit), Future.result, units, ahead=1)


def use_processes(count: int) -> Engine:
    """In so many processes of this machine, one core each."""

    def run(task: Task[Result], units: Iterator[Unit]) -> Iterator[Result]:
        # Fresh interpreters: a fork would inherit the threads of whatever was imported before. They hold no torch.
        with _for_children():
            pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=_start, initargs=(task,))
            try:
                yield from _run_in_order(lambda unit: pool.submit(_run, unit), Future.result, units, ahead=count + 1)
            except BrokenProcessPool as error:
                given = "a worker process died"
                todo = 'memory short? or a script without `if __name__ == "__main__":`? run it again to resume'
                raise InputError("prepare", given, "workers that stay alive", todo) from error
            finally:
                pool.shutdown(cancel_futures=True)

    return run


def use_ray() -> Engine:
    """On a Ray cluster: the one that RAY_ADDRESS names, else one of this machine's cores alone.

    Text goes out and columns come back through Ray, so the nodes need clozeworks but no common disk. A cluster that is
    started here asks for a token that only this process knows; one that is joined takes its own from the environment.
    """

    def run(task: Task[Result], units: Iterator[Unit]) -> Iterator[Result]:
        """Start a worker a core of the cluster, and end what was started here."""
        at = os.environ.get("RAY_ADDRESS")
        if at is None and "ray" not in sys.modules:  # it looks at its environment once
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        try:
            ray = importlib.import_module("ray")
        except ImportError:
            todo = "pip install 'clozeworks[ray]'"
            raise InputError("--engine ray", "ray is not installed", "the package ray is needed", todo) from None
        started = not ray.is_initialized()
        if started:
            try:
                local = {} if at else {"include_dashboard": False}
                ray.init(address=at, log_to_driver=False, logging_level=logging.ERROR, **local)
            except (ConnectionError, RuntimeError, ValueError) as error:
                given = str(error).splitlines()[0]
                raise InputError(f"Ray at {at or 'this machine'}", given, "a running cluster", "check it") from None
        try:
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            alone = {"env_vars": {"TOKENIZERS_PARALLELISM": "false"}}
            # A worker that dies with its node is made again on another one, and its units with it.
            actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1, runtime_env=alone)(Worker)
            workers = [actor.remote(task) for _ in range(cores)]
            yield from _run_in_order(
                lambda unit: workers[unit.number % cores].run.remote(unit), ray.get, units, ahead=2 * cores
            )
        finally:
            if started:
                ray.shutdown()

    return run


def _run_in_order(
    submit: Callable[[Unit], Any], result: Callable[[Any], Result], units: Iterator[Unit], ahead: int
) -> Iterator[Result]:
    """Results in the order of the units, with at most `ahead` of them waiting behind the one that is asked for."""
    flying: deque[Any] = deque()
    for unit in units:
        flying.append(submit(unit))
        if len(flying) > ahead:
            yield result(flying.popleft())
    while flying:
        yield result(flying.popleft())


@contextlib.contextmanager
def _for_children() -> Iterator[None]:
    """Children inherit the environment: one thread each, since there is one of them a core, and no module of the
    working directory."""
    own = {"TOKENIZERS_PARALLELISM": "false", SAFE: "1"}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


class Worker:
    """One of a cluster."""

    def __init__(self, task: Task[Any]):
        self._run_task = task.start()

    def run(self, unit: Unit) -> Any:
        return self._run_task(unit)


_run_task: Callable[[Unit], Any] | None = None  # of a worker process


def _start(task: Task[Any]) -> None:
    global _run_task
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _run_task = task.start()


def _end_with_parent() -> None:
    """A pool's workers would wait for ever for a parent that was killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(unit: Unit) -> Any:
    assert _run_task is not None
    return _run_task(unit)
