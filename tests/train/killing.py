"""Train in child processes that are killed: `killing.py RECIPE DATA RUN KILLS`; prints how many kills hit a save.

This process imports everything and computes nothing, so each child is a fork that starts at once.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from clozeworks import recipes, spec
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


def wait(child: int, run: Path, for_a_save: bool, draw: random.Random) -> None:
    """Until a random moment, or one inside a save."""
    until = time.monotonic() + draw.random() * 0.25
    while not saving(run, child) if for_a_save else time.monotonic() < until:
        if ended(child):
            sys.exit("the run was over before it was killed often enough")
    time.sleep(draw.random() * 0.002 * for_a_save)


def main(recipe_file: str, data: str, out: str, wanted: str) -> None:
    assert recipes.named()
    recipe, run, draw = spec.from_dict(json.loads(Path(recipe_file).read_text())), Path(out), random.Random(7)
    during = kills = 0
    while kills < int(wanted) or 2 * during < int(wanted):
        child = start(recipe, data, run)
        wait(child, run, kills % 2 == 0, draw)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        during, kills = during + saving(run, child), kills + 1
    child = start(recipe, data, run)
    _, status = os.waitpid(child, 0)
    print(json.dumps({"kills": kills, "during_save": during, "status": status}))


if __name__ == "__main__":
    main(*sys.argv[1:])
