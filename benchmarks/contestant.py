"""One side of a comparison, in a process of its own: it works when told to, and says what that took.

A side that trains reads one line a segment, the number of steps to make; every answer is one JSON line.
"""

import json
import sys
import time
from pathlib import Path
from typing import IO, Any


class Meter:
    """Counts a segment's tokens, seconds and processor seconds, and waits between segments."""

    def __init__(self, answers: IO[str]):
        self.answers, self.wanted, self.idle_cpu = answers, 0, time.process_time()

    def wait(self) -> bool:
        """Until the next segment; False if there is none."""
        if not self.wanted:
            self.base = memory_mb("VmRSS")
        line = sys.stdin.readline().strip()
        self.wanted = int(line or 0)
        self.steps = self.real = self.computed = 0
        self.begin, self.cpu = time.perf_counter(), self.idle_cpu  # work done while waiting is not free
        return self.wanted > 0

    def step(self, real: int, computed: int) -> bool:
        """One step was made; False when it was the last one."""
        self.steps, self.real, self.computed = self.steps + 1, self.real + real, self.computed + computed
        if self.steps < self.wanted:
            return True
        seconds = time.perf_counter() - self.begin
        cpu, self.idle_cpu = time.process_time() - self.cpu, time.process_time()
        self.say(steps=self.steps, tokens=self.real, computed=self.computed, seconds=seconds, cpu_seconds=cpu)
        return self.wait()

    def say(self, **facts: Any) -> None:
        print(json.dumps({**facts, "peak_mb": memory_mb("VmHWM"), "base_mb": self.base}), file=self.answers, flush=True)


def memory_mb(name: str) -> float | None:
    """What the kernel says of this process: VmRSS now, VmHWM at most; not ru_maxrss, which remembers the parent's."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    except OSError:  # not Linux
        return None
    return round(int(lines[name].split()[0]) / 1024, 1)


def ours(folder: Path, answers: IO[str]) -> None:
    from benchmarks.workload import Workload
    from clozeworks.optim import parameter_groups
    from clozeworks.train.loop import Policy, fit
    from clozeworks.train.resources import allocator

    allocator.keep_freed()
    work = Workload.open(folder)
    train, model = work.recipe.train, work.model()
    adam = parameter_groups.build_optimizer(model, train.optimizer, train.learning_rate)
    meter = Meter(answers)
    if not meter.wait():
        return
    policy = Policy(clip=train.clip)
    for step in fit(model, work.steps(), adam, lambda _: train.learning_rate, steps=10**9, policy=policy):
        if not meter.step(step.tokens, train.batch_tokens):
            return


def trainer(folder: Path, answers: IO[str]) -> None:
    from benchmarks import peer

    peer.train(folder, Meter(answers))


def make(folder: Path, answers: IO[str]) -> None:
    from benchmarks import workload
    from benchmarks.arithmetic import flops_a_token

    work = workload.make(folder)
    print(json.dumps({**work.facts(), "flops_a_token": flops_a_token(work)}), file=answers, flush=True)


def same(folder: Path, answers: IO[str]) -> None:
    from benchmarks import peer

    ours, theirs = peer.losses(folder)
    print(json.dumps({"ours": ours, "theirs": theirs}), file=answers, flush=True)


def lm(folder: Path, answers: IO[str], act: str) -> None:
    from benchmarks import plain_loop, workload

    if act == "theirs":
        plain_loop.train(folder, Meter(answers))
        return
    facts = workload.make(folder).facts() if act == "make" else plain_loop.losses(folder)
    print(json.dumps(facts), file=answers, flush=True)


def breakdown(folder: Path, answers: IO[str]) -> None:
    from benchmarks.breakdown import measure

    print(json.dumps(measure(folder)), file=answers, flush=True)


def rates(folder: Path, answers: IO[str]) -> None:
    from benchmarks.arithmetic import Rates
    from benchmarks.workload import Workload
    from clozeworks.train.resources import allocator

    allocator.keep_freed()
    found = Rates(Workload.open(folder))
    while times := int(sys.stdin.readline().strip() or 0):
        print(json.dumps(found.measure(times)), file=answers, flush=True)


def masking(folder: Path, answers: IO[str]) -> None:
    from benchmarks.masking import measure

    print(json.dumps(measure(folder)), file=answers, flush=True)


def loader(folder: Path, answers: IO[str], name: str) -> None:
    from benchmarks.loader import Runs

    runs = Runs(folder, name)
    while steps := int(sys.stdin.readline().strip() or 0):
        print(json.dumps(runs.go(steps)), file=answers, flush=True)


def family(folder: Path, answers: IO[str], comparison: str, side: str) -> None:
    from benchmarks.family import steps_of

    steps, meter = steps_of(folder, comparison, side), Meter(answers)
    if not meter.wait():
        return
    for tokens in steps:
        if not meter.step(tokens, tokens):
            return


def xl(folder: Path, answers: IO[str], side: str, length: str) -> None:
    from benchmarks.xl import side_of

    sys.stdin.readline()  # nobody else works while this side finds out what is best for it
    at_once, seconds, steps = side_of(folder, side, int(length))
    print(json.dumps({"at_once": at_once, "seconds": seconds}), file=answers, flush=True)
    meter = Meter(answers)
    if not meter.wait():
        return
    for tokens in steps:
        if not meter.step(tokens, tokens):
            return


def long(folder: Path, answers: IO[str], side: str, length: str) -> None:
    from benchmarks.long import serve

    serve(folder, answers, side, int(length))


def tune(folder: Path, answers: IO[str], act: str) -> None:
    from benchmarks import tune

    if act == "make":
        print(json.dumps(tune.make(folder)), file=answers, flush=True)
    else:
        tune.work(folder, Meter(answers), act)


def main(role: str, folder: str, threads: str, *more: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # a library that prints must not be taken for an answer
    import torch

    torch.set_num_threads(int(threads))
    roles = (make, ours, trainer, same, breakdown, rates, masking, loader, family, lm, xl, long, tune)
    {each.__name__: each for each in roles}[role](Path(folder), answers, *more)


if __name__ == "__main__":
    main(*sys.argv[1:])
