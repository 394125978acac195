"""Train in child processes that are killed: `killing.py RECIPE DATA RUN KILLS`; prints how many kills hit a save.

This process imports everything and computes nothing, so each child is a fork that starts at once.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # which every optimizer loads; here once, not in each child

from clozeworks import spec
from clozeworks.recipes import named
from clozeworks.train.run import pretrain


def start(recipe: spec.Spec, data: str, run: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        torch.set_num_threads(1)
        pretrain(recipe, [(data, 1.0)], run, progress=False)  # pyright: ignore[reportArgumentType]
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def ended(child: int) -> bool:
    found, status = os.waitpid(child, os.WNOHANG)
    if found and status:
        sys.exit(f"a child died by itself: {status}")
    return bool(found)


def saving(run: Path, child: int) -> bool:
    """Whether this child has a checkpoint half written; once it is dead, whether it died doing so."""
    names = os.listdir(run) if run.exists() else []
    return any(name.startswith(".step-") and f"-{child}-" in name for name in names)


def saved(run: Path) -> str:
    """The newest checkpoint."""
    return max((name for name in os.listdir(run) if name.startswith("step-")), default="") if run.exists() else ""


def wait(child: int, run: Path, kill: int, draw: random.Random) -> None:
    """Every second kill hits a save; of the others half come after some progress, half at any moment from the start."""

    def until(done: Callable[[], bool]) -> None:
        while not done():
            if ended(child):
                sys.exit("the run was over before it was killed often enough")

    for _ in range((1, 1, draw.randint(0, 1), 0)[kill % 4]):
        before = saved(run)
        until(lambda: saved(run) > before)  # noqa: B023
    if kill % 2 == 0:
        until(lambda: saving(run, child))
        time.sleep(draw.random() * 0.002)
    else:
        moment = time.monotonic() + draw.random() * 0.25
        until(lambda: time.monotonic() > moment)


def main(recipe_file: str, data: str, out: str, wanted: str) -> None:
    assert named()
    recipe, run, draw = spec.from_dict(json.loads(Path(recipe_file).read_text())), Path(out), random.Random(7)
    during = kills = 0
    reached = set()
    while kills < int(wanted) or 2 * during < int(wanted):
        child = start(recipe, data, run)
        wait(child, run, kills, draw)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        during, kills = during + saving(run, child), kills + 1
        reached.add(saved(run))
    child = start(recipe, data, run)
    _, status = os.waitpid(child, 0)
    print(json.dumps({"kills": kills, "during_save": during, "reached": len(reached), "status": status}))


if __name__ == "__main__":
    main(*sys.argv[1:])
