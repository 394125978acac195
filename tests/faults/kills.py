"""SIGKILL, half of them in the middle of a save: the same command again ends with the uninterrupted run's bits."""

import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import scene
from tests.faults.scene import Child, Figures, Scene

STEPS, SAVE_EVERY = 160, 2
_UNFINISHED = re.compile(r"\.step-.+\.cw-[0-9a-f]+-(?P<pid>\d+)-.+\.new")


def run(place: Scene, runs: int = 20, kills: int = 10, steps: int = STEPS) -> Figures:
    """`runs` runs, each killed `kills` times and then finished."""
    words = place.pretrain(place.folder / "whole", steps=steps, save_every=SAVE_EVERY)
    assert place.run(words).status == 0
    whole = scene.end_of(place.folder / "whole")
    results = scene.each(lambda number: _killed(place, number, kills, steps), range(runs), place.folder)
    figures = Figures(cases=sum(one["kills"] for one in results))
    figures.figures = {
        "runs": runs,
        "kills": figures.cases,
        "during_a_save": sum(one["during"] for one in results),
        "unresumable": sum(one["status"] != 0 for one in results),
        "identical": 0,
    }
    for number, one in enumerate(results):
        differs = scene.unlike(whole, one["end"])
        figures.figures["identical"] += not differs
        figures.expect(one["status"] == 0, f"run {number}: it could not be resumed: {one['says']}")
        figures.expect(not differs, f"run {number}: {', '.join(differs)} differ from the uninterrupted run's")
        figures.expect(not one["left"], f"run {number}: leftovers {one['left']}")
        figures.expect(one["kills"] == kills, f"run {number}: over after {one['kills']} kills; give it more steps")
    figures.expect(2 * figures.figures["during_a_save"] >= figures.cases, "fewer than half of the kills hit a save")
    return figures


def _killed(place: Scene, number: int, kills: int, steps: int) -> dict[str, Any]:
    """One run: killed again and again, then resumed to its end."""
    draw, out = random.Random(number), place.folder / f"killed-{number}"
    words = place.pretrain(out, steps=steps, save_every=SAVE_EVERY)
    done = during = 0
    while done < kills:
        child = place.start(words)
        # One more kill aims at a save than does not, for a save may be over before the signal comes.
        hit = _wait(child, out, 2 * during < done + 2, draw)
        if not hit:
            break
        child.signal(signal.SIGKILL)
        child.wait()
        done, during = done + 1, during + saving(out, child.pid)
    last = place.run(words)
    return {
        "kills": done,
        "during": during,
        "status": last.status,
        "says": last.says()[-300:],
        "end": scene.end_of(out),
        "left": scene.left(out),
    }


def saving(run: Path, pid: int) -> bool:
    """Whether this process has a checkpoint half written; once it is dead, whether it died doing so."""
    return any((result := _UNFINISHED.fullmatch(name)) and int(result["pid"]) == pid for name in scene.names(run))


def _wait(child: Child, run: Path, save: bool, draw: random.Random) -> bool:
    """Until the moment of a kill; False if the process ended before."""
    for _ in range(draw.randint(0, 2)):
        before = scene.saved(run)
        if not _until(child, lambda before=before: scene.saved(run) > before):
            return False
    if save:
        if not _until(child, lambda: saving(run, child.pid)):
            return False
        time.sleep(draw.random() * 0.004)
        return not child.ended()
    moment, before = time.monotonic() + draw.random() * 0.4, scene.saved(run)
    return _until(child, lambda: time.monotonic() > moment or scene.saved(run) > before)


def _until(child: Child, holds: Callable[[], bool]) -> bool:
    scene.until(lambda: holds() or child.ended())
    return not child.ended()
