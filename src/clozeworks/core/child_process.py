"""Processes of our own. What they import is what is installed, never what lies in the working directory.

`python -c` and `python -m` put the working directory first on the path of modules: in a downloaded directory a file
named torch.py would run. `-P` keeps it out, and PYTHONSAFEPATH of the children's children.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

SAFE = "PYTHONSAFEPATH"


def python_command(*words: str) -> list[str]:
    """The command of a fresh interpreter."""
    return [sys.executable, "-P", *words]


def child_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which a child finds this library, whatever directory it is started in."""
    given = dict(os.environ if environment is None else environment)
    paths = [*given.get("PYTHONPATH", "").split(os.pathsep), str(Path(__file__).parents[2])]  # "" is where one stands
    return {**given, SAFE: "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
