"""Paths that users name on the command line. Imports nothing heavy: `prepare` does without torch."""

import difflib
import os
from pathlib import Path

from clozeworks.core.errors import InputError
from clozeworks.data.records.lines import ROW_BYTES, open_input, refuse_device


def existing(path: str | os.PathLike[str], what: str, hint: str | None = None) -> Path:
    """The path, or a sentence with the name that was probably meant, or else the hint."""
    given = Path(path)
    if given.exists():
        refuse_device(given, what)
        return given
    if not given.parent.is_dir():
        raise InputError(path, "no such path", f"{what} is needed", hint or f"{given.parent} does not exist either")
    close = difflib.get_close_matches(given.name, os.listdir(given.parent), n=1)
    todo = f"did you mean {given.with_name(close[0])}?" if close else hint or "check the spelling"
    raise InputError(path, "no such path", f"{what} is needed", todo)


def read_lines(path: str, what: str, empty: str) -> list[str]:
    """The lines of a UTF-8 file, or of standard input; a file without any is refused, with what to do then."""
    file = path if path == "-" else existing(path, f"a file with one {what} a line")
    try:
        with open_input("lines.txt") if path == "-" else open(file, "rb") as stream:
            content = stream.read(ROW_BYTES + 1)
        if len(content) > ROW_BYTES:
            given = f"more than {ROW_BYTES >> 20} MB"
            raise InputError(file, given, f"all lines, one {what} each, are read at once", "divide it")
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise InputError(file, f"not UTF-8 ({error.reason})", f"one {what} a line is needed", "convert it") from None
    except OSError as error:
        raise InputError(file, error.strerror, f"a file with one {what} a line is needed", "name one") from None
    if not any(map(str.strip, lines)):
        raise InputError(file, "an empty file", f"one {what} a line is needed", empty)
    return lines
