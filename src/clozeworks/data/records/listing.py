"""Which files are meant: paths, directories and glob patterns into a list of files that can be read."""

import difflib
import errno
import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from clozeworks.core.errors import InputError
from clozeworks.data.records.compressed import NAMES

TEXT = (".txt", ".text", ".md")
ROWS = (".jsonl", ".ndjson")
TABLES = (".csv", ".tsv")
ARROW = (".parquet", ".arrow", ".feather")
ENDINGS = (*(kind + packed for kind in TEXT + ROWS + TABLES for packed in ("", *NAMES)), *ARROW)
NEEDED = f"a name that ends in {', '.join(TEXT + ROWS + TABLES)} (alone or with {', '.join(NAMES)}), {', '.join(ARROW)}"

_ABOUT = re.compile(r"\.|(readme|license|licence|changelog)\b", re.IGNORECASE)  # hidden, or about the text beside it

_PROSE = re.compile(r"\s|[^\x00-\x7f]")  # seldom in a path, often in a text

StrPath = str | os.PathLike[str]


def kind_of(file: Path) -> str:
    """The ending that says the format, in small letters and without that of the compression."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in NAMES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@dataclass(slots=True)
class Passed:
    """What was passed over in directories and by patterns."""

    dangling: set[Path] = field(default_factory=set)  # links that lead nowhere
    others: set[Path] = field(default_factory=set)  # files of another kind, or about the text; hidden ones do not count


def list_files(paths: Iterable[StrPath], passed: Passed | None = None) -> list[Path]:
    """The files behind the paths, each once: directories give every file with a known ending, recursively, sorted by
    name; so do patterns. What is passed over there is added to `passed`.
    """
    files: dict[Path, Path] = {}
    for given in paths:
        if not os.fspath(given):
            raise InputError("text", "an empty path", "a file or directory is needed", "is a variable not set?")
        if "\0" in os.fspath(given):
            raise InputError(repr(given)[:60], "no such file", "a path that exists is needed", "check the spelling")
        try:
            for file in _files_of(Path(given), Passed() if passed is None else passed):
                files.setdefault(file.resolve(), file)
        except OSError as error:
            raise _refused(given, error) from error
    if not files:
        raise InputError("text", "no path", "at least one file or directory is needed", "name one")
    return list(files.values())


def _refused(given: StrPath, error: OSError) -> InputError:
    shown = os.fspath(given)
    if error.errno == errno.ENAMETOOLONG:
        shown = shown if len(shown) < 80 else f"{shown[:60]}..."
        todo = 'give texts as rows, {"text": ...}, if this is no path'
        return InputError(shown, f"a name of {len(os.fspath(given))} characters", "a path that exists is needed", todo)
    where = error.filename if isinstance(error.filename, str) else shown
    return InputError(where, error.strerror or error, "a readable path is needed", "check it")


def _files_of(path: Path, passed: Passed) -> list[Path]:
    if path.is_dir():
        return _files_below(path, passed)
    if not path.exists() and glob.has_magic(str(path)):
        return _files_matching(path, passed)
    if not path.exists():
        if path.is_symlink():
            given = f"a link to {os.readlink(path)}, which does not exist"
            raise InputError(path, given, "a path that exists is needed", "mend the link")
        raise InputError(path, "no such file or directory", "a path that exists is needed", _near(path))
    if not path.is_file():
        given = "not a regular file"
        raise InputError(path, given, "text is read twice, so a pipe will not do", "write it to a file, or use -")
    if not path.name.lower().endswith(ENDINGS):
        given = f"unknown ending {path.suffix!r}"
        raise InputError(path, given, f"{NEEDED} is needed", "rename or convert the file")
    return [path]


def _files_below(directory: Path, passed: Passed) -> list[Path]:
    def stop(error: OSError) -> None:
        raise error

    readable: list[Path] = []
    for folder, folders, names in os.walk(directory, onerror=stop):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if name.lower().endswith(ENDINGS) and not _ABOUT.match(name):
                readable.append(Path(folder, name))
            elif not name.startswith("."):
                passed.others.add(Path(folder, name))
    files = _regular(sorted(readable), passed)
    if not files:
        given = "no readable file in this directory"
        raise InputError(directory, given, f"{NEEDED} is needed", "rename the files or name another")
    return files


def _files_matching(pattern: Path, passed: Passed) -> list[Path]:
    matches = [Path(name) for name in sorted(glob.glob(str(pattern), recursive=True))]
    files: list[Path] = []
    for path in matches:
        if path.is_dir():
            if "**" not in pattern.parts:  # ** gives the directories and what is below them
                files += _files_below(path, passed)
        elif path.name.lower().endswith(ENDINGS):
            files += _regular([path], passed)
        else:
            passed.others.add(path)
    if not files:
        given = "a pattern that no file fits" if not matches else f"a pattern that fits {matches[0]} only"
        todo = "check the pattern" if not matches else "change the pattern"
        raise InputError(pattern, given, f"{NEEDED} is needed", todo)
    return files


def _regular(paths: list[Path], passed: Passed) -> list[Path]:
    passed.dangling.update(path for path in paths if path.is_symlink() and not path.exists())
    return [path for path in paths if path.is_file()]


def _near(path: Path) -> str:
    parent = path.parent
    close = difflib.get_close_matches(path.name, os.listdir(parent), n=1) if parent.is_dir() else []
    if close:
        return f"did you mean {parent / close[0]}?"
    if not path.name.lower().endswith(ENDINGS) and _PROSE.search(str(path)):
        return 'if these are texts, pass iter(texts) or rows {"text": ...}; if it is a path, check the spelling'
    return "check the spelling" if parent.is_dir() else f"{parent} does not exist either: check the spelling"
