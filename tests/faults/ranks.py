"""Two processes that train together: one is killed, their launcher is, all are; and the number of processes changes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from clozeworks.cli.main import parser_of
from clozeworks.exchange import checkpoint
from tests.faults import scene
from tests.faults.scene import Figures, Scene

STEPS, SAVE_EVERY = 240, 4
TOLERANCE = 1e-5
GONE = 30  # seconds after which nothing of a killed group may run


def run(
    place: Scene, kills: int = 10, whom: tuple[str, ...] = ("rank", "launcher", "all"), steps: int = STEPS
) -> Figures:
    """Each of `whom` killed `kills` times in a run of its own; then one process, two, and one again."""
    figures = Figures()
    if "--processes" not in parser_of("pretrain").format_help():
        figures.skipped = "`pretrain` has no --processes"
        return figures
    settings = {"steps": steps, "save_every": SAVE_EVERY, "evaluate_every": steps}
    alone, both = place.folder / "alone", place.folder / "both"
    assert place.run(place.pretrain(alone, **settings)).status == 0
    assert Group(place, place.pretrain(both, "--processes", "2", **settings)).wait() == 0
    whole = scene.end_of(both)
    distance = _distance(alone, both)
    figures.figures = {"unresumable": 0, "identical": 0, "runs": 0, "orphans": 0, "from_one_process": distance}
    figures.expect(distance <= TOLERANCE, f"two processes end {distance} away from one")
    for one in whom:
        out = place.folder / f"killed-{one}"
        _killed(place, out, place.pretrain(out, "--processes", "2", **settings), one, kills, figures)
        differs = scene.unlike(whole, scene.end_of(out))
        figures.figures["runs"] += 1
        figures.figures["identical"] += not differs
        figures.expect(not differs, f"{one} killed: {', '.join(differs)} differ from the uninterrupted run's")
    _resized(place, alone, settings, figures)
    return figures


class Group:
    """A command that starts processes."""

    def __init__(self, place: Scene, words: Sequence[str]):
        self.log = place.folder / f"group-{time.monotonic_ns()}.log"
        with self.log.open("wb") as out:
            command = [sys.executable, "-m", "clozeworks", *words]
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def gave_up(self) -> bool:
        """Whether a process was lost more often than the launcher starts them again."""
        return self.process.returncode == 128 + signal.SIGKILL

    def wait(self) -> int:
        return self.process.wait(5 * scene.SECONDS)

    def says(self) -> str:
        return self.log.read_text(errors="replace")[-500:]

    def ranks(self) -> list[int]:
        """The processes that train."""
        return [pid for pid in _below(self.process.pid) if b"\0LOCAL_RANK=" in b"\0" + _read(pid, "environ")]


def _killed(place: Scene, out: Path, words: list[str], whom: str, kills: int, figures: Figures) -> None:
    draw, group = random.Random(whom), Group(place, words)
    for number in range(kills):
        while not _progress(group, out, draw) and group.gave_up():
            group = Group(place, words)
        if group.ended():
            figures.expect(False, f"{whom} killed: over after {number} kills ({group.says()})")
            break
        family = [group.process.pid, *_below(group.process.pid)]
        ranks = group.ranks()
        victims = {"rank": ranks[-1:], "launcher": [group.process.pid], "all": family}[whom]
        if not victims:
            figures.expect(False, f"{whom} killed: no such process")
            break
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        figures.cases += 1
        if whom == "rank":  # the launcher begins anew by itself, for some times
            continue
        group.process.wait()
        if not _all_gone(family):
            figures.figures["orphans"] += 1
            figures.expect(False, f"{whom} killed: {GONE} seconds later some of its processes still run")
            for pid in filter(_runs, family):
                os.kill(pid, signal.SIGKILL)
        group = Group(place, words)
    status = group.wait()
    if group.gave_up():
        group = Group(place, words)
        status = group.wait()
    figures.figures["unresumable"] += status != 0
    figures.expect(status == 0, f"{whom} killed: exit code {status}: {group.says()}")


def _progress(group: Group, out: Path, draw: random.Random) -> bool:
    """Until some checkpoint more is there and a moment has passed; False if the command ended before."""
    for _ in range(draw.randint(1, 2)):
        before = scene.saved(out)
        scene.until(lambda before=before: group.ended() or scene.saved(out) > before)
    time.sleep(draw.random() * 0.1)
    return not group.ended()


def _resized(place: Scene, alone: Path, settings: dict[str, Any], figures: Figures) -> None:
    """One process, then two, then one: the same examples and masks, so the same losses."""
    out = place.folder / "resized"
    words = place.pretrain(out, **settings)
    for more in ([], ["--processes", "2"]):
        group = Group(place, words + more)
        scene.until(lambda: group.ended() or len(scene.names(out)) > 0)  # noqa: B023
        before = scene.saved(out)
        scene.until(lambda: group.ended() or scene.saved(out) > before)  # noqa: B023
        group.process.send_signal(signal.SIGTERM)
        status = group.wait()
        figures.expect(status in (143, 130), f"resized: exit code {status}: {group.says()}")
    assert place.run(words).status == 0
    distance = _distance(alone, out)
    rows = [scene.end_of(path)["metrics"] for path in (alone, out)]
    same = [row["step"] for row in rows[0]] == [row["step"] for row in rows[1]]
    tokens = same and all(one.get("tokens") == other.get("tokens") for one, other in zip(*rows, strict=True))
    figures.cases += 1
    figures.figures |= {"resized_distance": distance, "resized_same_tokens": tokens}
    figures.expect(distance <= TOLERANCE and tokens, f"1 to 2 to 1 processes: {distance} away, same tokens: {tokens}")


def _distance(one: Path, other: Path) -> float:
    """The largest difference of a weight, by the largest weight of its tensor."""
    ends = [newest.tensors() for path in (one, other) if (newest := checkpoint.newest(path))]
    parts = [
        float((ends[0][name] - ends[1][name]).abs().max() / ends[0][name].abs().max().clamp(min=1)) for name in ends[0]
    ]
    return max(parts) if all(map(torch.isfinite, map(torch.tensor, parts))) else float("inf")


def _below(pid: int) -> list[int]:
    """Every process that descends from this one."""
    children = [int(word) for task in Path(f"/proc/{pid}/task").glob("*/children") for word in task.read_text().split()]
    return children + [one for child in children for one in _below(child)]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _runs(pid: int) -> bool:
    state = _read(pid, "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] != b"Z"


def _all_gone(pids: list[int]) -> bool:
    end = time.monotonic() + GONE
    while any(map(_runs, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
