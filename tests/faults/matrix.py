"""Every kind of fault, at its full and at its small scale."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from clozeworks.machine import doctor
from clozeworks.train import run_dir
from tests.faults import bombs, damage, devices, disk, escapes, imports, kills, poison, ranks, scene, stops
from tests.faults.scene import Figures

MACHINE = ("system", "processor", "cores", "memory_gb")
# By name: what breaks things, how much of it in full, and how much in the fast tests.
KINDS: dict[str, tuple[Callable[..., Figures], dict[str, Any], dict[str, Any]]] = {
    "kills": (kills.run, {}, {"runs": 1, "kills": 3, "steps": 40}),
    "ranks": (ranks.run, {}, {"kills": 1, "whom": ("rank",), "steps": 40}),
    "stops": (stops.run, {}, {"stops": 2, "steps": 40}),
    "disk": (disk.run, {}, {"every": 250, "saves": 3, "errors": ("ENOSPC", "EIO"), "lasting": (True,), "at_once": 1}),
    "damage": (damage.run, {}, {"cases": 60, "commands": 4}),
    "poison": (poison.run, {}, {"cases": 1, "kinds": ("spike", "back"), "steps": 40}),
    "imports": (imports.run, {}, {"names": ("torch",), "together": False}),
    "devices": (devices.run, {}, {"commands": 4}),
    "bombs": (bombs.run, {}, {"every": 9}),
    "escapes": (escapes.run, {}, {"only": 2}),
}


def run(only: Sequence[str], quick: bool) -> dict[str, Any]:
    """The figures of these kinds, with the machine and versions they were seen on."""
    kinds: dict[str, Any] = {}
    for name in only:
        act, full, small = KINDS[name]
        begin = time.monotonic()
        with scene.scene() as place:
            figures = act(place, **(small if quick else full))
        kinds[name] = {**asdict(figures), "seconds": round(time.monotonic() - begin, 1)}
    about = {name: value for name, value in doctor.machine().items() if name in MACHINE}
    return {"machine": about, "versions": run_dir.versions(), "quick": quick, "kinds": kinds}
