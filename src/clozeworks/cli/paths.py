"""Paths that users name on the command line. Imports nothing heavy: `prepare` does without torch."""

import difflib
import os
from pathlib import Path

from clozeworks.core.errors import InputError


def existing(path: str | os.PathLike[str], what: str) -> Path:
    """The path, or a sentence with the name that was probably meant."""
    given = Path(path)
    if given.exists():
        return given
    if not given.parent.is_dir():
        raise InputError(path, "no such path", f"{what} is needed", f"{given.parent} does not exist either")
    close = difflib.get_close_matches(given.name, os.listdir(given.parent), n=1)
    todo = f"did you mean {given.with_name(close[0])}?" if close else "check the spelling"
    raise InputError(path, "no such path", f"{what} is needed", todo)
