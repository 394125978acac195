"""A disk that fails at every call that writes, one after the other: `pretrain` and `prepare` say so and lose nothing.

Each case is a fork of a process that runs with `failing.c` before its C library: `python -m tests.faults.disk`.
"""

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clozeworks.cli.main import main
from clozeworks.core.errors import InputError
from clozeworks.exchange import checkpoint
from tests.faults import scene
from tests.faults.scene import Child, Figures, Scene

ERRORS = ("ENOSPC", "EIO", "EROFS")
STEPS = 8


def run(
    place: Scene,
    every: int = 1,
    saves: int = 1,
    errors: tuple[str, ...] = ERRORS,
    lasting: tuple[bool, ...] = (False, True),
    at_once: int = 2,
) -> Figures:
    """Each `every`-th call of the commands and each `saves`-th of a save, failing once or from then on, with each
    error."""
    compiler = shutil.which("cc")
    figures = Figures(skipped="" if compiler and sys.platform == "linux" else "it takes Linux and a C compiler")
    if figures.skipped:
        return figures
    library = place.folder / "failing.so"
    source = Path(__file__).with_name("failing.c")
    subprocess.run([str(compiler), "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True)
    orders = {"library": str(library), "every": every, "saves": saves, "errors": errors, "lasting": lasting}
    workers = []
    for number in range(at_once):
        (folder := place.folder / f"disk-{number}").mkdir()
        words = [sys.executable, "-m", __name__, str(folder), json.dumps({**orders, "number": number, "of": at_once})]
        workers.append((folder, subprocess.Popen(words, env={**os.environ, "LD_PRELOAD": str(library)})))
    for folder, worker in workers:
        assert worker.wait() == 0
        for case in json.loads((folder / "results.json").read_text()):
            figures.cases += 1
            figures.add(case["kind"])
            figures.add(case["came"])
            figures.broken += case["broken"]
    return figures


@dataclass(frozen=True, slots=True)
class Kind:
    """A command on a disk that fails: what it starts from, and what it must end with."""

    name: str
    act: Callable[[Path], int]  # gives the exit code
    base: Path | None
    broken: Callable[[Path], list[str]]  # promises that the failed command broke
    end: Callable[[Path], dict[str, Any]]


def kinds(place: Scene) -> list[Kind]:
    """A save, a new run, a run that resumes from a checkpoint and deletes it in the end, and text that is prepared."""
    whole, base = place.folder / "whole", place.folder / "base"
    assert place.run(place.pretrain(whole, steps=STEPS, save_every=STEPS - 2)).status == 0
    shutil.copytree(whole, base)
    shutil.rmtree(base / checkpoint.name_of(STEPS))
    return [
        Kind("save", _save, base, lambda out: _damaged(out, STEPS - 2), scene.end_of),
        Kind("begin", lambda out: main(place.pretrain(out, steps=2, save_every=1)), None, _damaged, scene.end_of),
        Kind("resume", lambda out: main(place.pretrain(out, steps=STEPS, save_every=1)), base,
             lambda out: _damaged(out, STEPS - 2), scene.end_of),
        Kind("prepare", lambda out: main(place.prepare(out)), None, _half_prepared, _content),
    ]  # fmt: skip


def _save(run: Path) -> int:
    """A checkpoint of step 8 beside the one of step 6, and nothing else."""
    try:
        checkpoint.save(run, STEPS, {checkpoint.MODEL: {"weight": torch.ones(1000)}}, {"tokens": 1})
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _damaged(run: Path, least: int = 0) -> list[str]:
    """Checkpoints that are not what was saved, except such as are being deleted, and the loss of the one before."""
    newest = checkpoint.newest(run)
    step = newest.step if newest else 0
    problems = [] if step >= least else [f"the checkpoint of step {least} is gone"]
    for path in run.glob("step-*"):
        try:
            checkpoint.verify(path)
        except checkpoint.DamagedError as error:
            deleted = int(path.name.removeprefix("step-")) < step and not (path / checkpoint.MANIFEST).exists()
            problems += [] if deleted else [f"a damaged checkpoint has its final name: {error}"]
    return problems


def _half_prepared(data: Path) -> list[str]:
    return ["a prepared directory appeared in spite of the error"] if data.exists() else []


def _content(data: Path) -> dict[str, Any]:
    """The files, by name."""
    return {path.name: path.read_bytes().hex() for path in sorted(data.iterdir())}


class Disk:
    """The shim, from Python."""

    def __init__(self, library: str):
        self.library = ctypes.CDLL(library)
        self.library.failing_what.restype = self.library.failing_path.restype = ctypes.c_char_p

    def arm(self, below: str, at: int, error: int, lasting: bool) -> None:
        self.library.failing_arm(below.encode(), ctypes.c_long(at), error, int(lasting))

    def disarm(self) -> tuple[int, str]:
        """How many calls were counted, and which one failed, if one did."""
        count, failed = self.library.failing_count(), self.library.failing_failed()
        what = f"{self.library.failing_what().decode()} {Path(self.library.failing_path().decode()).name}"
        self.arm("", 0, 0, False)
        return count, what if failed else ""


def work(
    folder: Path, library: str, *, every: int, saves: int, errors: list[str], lasting: list[bool], number: int, of: int
) -> list[Any]:
    """This worker's share of all cases: it is `number` of so many."""
    place, disk, results = Scene(folder), Disk(library), []
    for kind in kinds(place):
        count, end = _counted(place, disk, kind)
        each = saves if kind.name == "save" else every
        cases = [(at, error, last) for error in errors for last in lasting for at in range(1, count + 1, each)]
        results += [_case(place, disk, kind, end, *case) for case in cases[number::of]]
    return results


def _counted(place: Scene, disk: Disk, kind: Kind) -> tuple[int, dict[str, Any]]:
    """How many calls there are, and what an undisturbed command ends with."""
    child, calls, _, out = _disturbed(place, disk, kind, 0, 0, False)
    assert child.status == 0, child.says()
    return calls, kind.end(out)


def _disturbed(
    place: Scene, disk: Disk, kind: Kind, at: int, error: int, lasting: bool
) -> tuple[Child, int, str, Path]:
    case = place.folder / "case"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir()
    out = case / "out"
    if kind.base:
        shutil.copytree(kind.base, out)
    disk.arm(f"{case}/", at, error, lasting)
    child = place.run(lambda: kind.act(out))
    return child, *disk.disarm(), out


def _case(
    place: Scene, disk: Disk, kind: Kind, end: dict[str, Any], at: int, error: str, lasting: bool
) -> dict[str, Any]:
    child, _, what, out = _disturbed(place, disk, kind, at, getattr(errno, error), lasting)
    says, broken = child.says(), []
    came = {0: "continued", 2: "refused"}.get(child.status or 0, "broken") if what else "not reached"
    if child.status == 2 and (says.count("\n") != 1 or not says.startswith("error: ")):
        broken.append(f"not one sentence: {says[-2000:]}")
    elif child.status not in (0, 2):
        broken.append(f"exit code {child.status}: {says[-2000:]}")
    if child.status != 0:
        broken += kind.broken(out)
        again = place.run(lambda: kind.act(out))
        if again.status != 0:
            broken.append(f"not mended when the disk is: {again.says()[-2000:]}")
    differs = scene.unlike(end, kind.end(out)) if out.exists() else ["all"]
    if differs:
        broken.append(f"the end differs in {', '.join(differs)}")
    stays = child.status == 0 and (lasting or what.startswith("unlink"))  # what cannot be deleted
    if not stays and (left := scene.left(out) + scene.left(out.parent)):
        broken.append(f"leftovers {left}")
    label = f"{kind.name}, call {at} ({what}), {error}{' from then on' if lasting else ''}"
    return {"kind": kind.name, "came": came, "broken": [f"{label}: {sentence}" for sentence in broken]}


if __name__ == "__main__":
    here = Path(sys.argv[1])
    (here / "results.json").write_text(json.dumps(work(here, **json.loads(sys.argv[2]))))
