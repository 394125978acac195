"""What every benchmark tells: medians with their spread, the machine, the versions, the command."""

import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from clozeworks.machine import doctor


def spread(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), digits),
        "lowest": round(min(values), digits),
        "highest": round(max(values), digits),
    }


def told(ratio: dict[str, float]) -> str:
    """A ratio with its spread, for a table."""
    digits = 2 if ratio["median"] < 10 else 1
    return f"{ratio['median']:.{digits}f}  ({ratio['lowest']:.{digits}f} to {ratio['highest']:.{digits}f})"


def setting_of(threads: int, packages: Sequence[str], begin: float) -> dict[str, Any]:
    """Where and how the figures were taken; `begin` is when, by the monotonic clock."""
    return {
        "machine": {**doctor.machine(), "threads": threads, "load_average": os.getloadavg()},
        "versions": versions(packages),
        "command": shlex.join(["clozeworks", *sys.argv[1:]]),
        "seconds": round(time.monotonic() - begin, 1),
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def footer(figures: dict[str, Any]) -> str:
    machine = figures["machine"]
    named = ", ".join(f"{name} {value}" for name, value in figures["versions"].items())
    return f"{machine['processor']}, {machine['cores']} cores, load {machine['load_average'][0]:.1f}; {named}"
