"""Files and directories that appear whole or not at all: the one place of the library that writes to disk.

The bytes go to a hidden sibling first, are flushed to the disk, and only then take their name by a rename, so a reader
sees the old content or the new, never a part. A process that is killed leaves its sibling behind; the next writer in
the same directory removes it once its owner is gone.
"""

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from clozeworks.core.errors import InputError

StrPath = str | os.PathLike[str]
STANDARD_OUTPUT = "-", "/dev/stdout"
LOCK = "lock"  # a file in a directory that one process at a time may hold

# Host and pid say whose a sibling is; a process id means nothing to another host that shares the disk.
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_SIBLING = re.compile(r"\.(?P<name>.+)\.cw-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.(?P<kind>new|old)")
_mine: set[Path] = set()  # siblings this process is writing now; after a fork or a reused pid the set tells the truth

_ROOM = "room is needed", "free some space or write elsewhere, then run it again"
_RIGHT = "the right to write here is needed", "choose another directory or change its owner"
_UNUSED = "it exists already", "an unused path is needed", "choose another one or move it away"
_LIMIT = "a higher limit is needed", "see `ulimit -f` or write elsewhere"
_REASONS = {  # errno: (given, needed, what to do)
    errno.ENOSPC: ("the disk is full", *_ROOM),
    errno.EDQUOT: ("the disk quota is used up", *_ROOM),
    errno.EFBIG: ("the file is too large for this system", *_LIMIT),
    errno.EIO: ("the disk reports an error", "a sound disk is needed", "see the system's log or write elsewhere"),
    errno.EROFS: ("a read-only file system", "a place that can be written is needed", "choose another directory"),
    errno.EACCES: ("permission denied", *_RIGHT),
    errno.EPERM: ("not permitted", *_RIGHT),
    errno.ENOTDIR: ("a file stands in the way", "a directory is needed", "move the file away or choose another path"),
    errno.EISDIR: ("a directory stands in the way", "a file is needed", "move it away or choose another path"),
    errno.ENOTEMPTY: _UNUSED,
    errno.EEXIST: _UNUSED,
    errno.ENAMETOOLONG: ("the name is too long", "a shorter one is needed", "choose another path"),
}


def write_bytes(path: StrPath, data: bytes | bytearray | memoryview) -> None:
    """Write one file; directories above it are made, a file already there is replaced."""
    with file(path) as new:
        new.write_bytes(data)


def write_text(path: StrPath, text: str) -> None:
    """Write one file as UTF-8, line endings as given."""
    write_bytes(path, text.encode())


def write_json(path: StrPath, value: object) -> None:
    """Write one value as indented JSON that people can read and compare; NaN and infinity, which JSON lacks, raise."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextlib.contextmanager
def file(path: StrPath) -> Iterator[Path]:
    """Fill the empty file this yields; it becomes `path` when the block ends well, and vanishes when it does not."""
    refuse_special(path)
    target = Path(os.path.realpath(path))  # through a symbolic link: what it points at is replaced, not the link
    with explain_os_errors(path), _sibling(target) as new:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        with _making(path):
            new.touch(exist_ok=False)
        mode = new.stat().st_mode & 0o666  # the user's umask; safetensors makes its files private
        yield new
        new.chmod(mode)
        _sync(new)
        os.replace(new, target)
        _sync(target.parent)


def refuse_special(path: StrPath) -> None:
    """Raise `InputError` for a device, a pipe or a socket: a file or directory would take its place."""
    if os.fspath(path) == STANDARD_OUTPUT[0]:
        raise InputError(path, "standard output", "a file or directory is needed", "choose a path")
    with contextlib.suppress(OSError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise InputError(
                path, "a device, a pipe or a socket", "a file or directory is needed", "choose another path"
            )


def is_stream(path: StrPath) -> bool:
    """Whether what is written to a path flows on: standard output, a pipe, a terminal."""
    if os.fspath(path) in STANDARD_OUTPUT:
        return True
    with contextlib.suppress(OSError):
        mode = os.stat(path).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
    return False


@contextlib.contextmanager
def text_stream(path: StrPath) -> Iterator[TextIO]:
    """A stream of lines: a file that is there once it is whole, or a pipe or standard output, which stay what they are.

    Only for output of which each line has its own worth; whoever needs all or nothing uses `file`.
    """
    if os.fspath(path) in STANDARD_OUTPUT:
        yield sys.stdout
        sys.stdout.flush()
    elif is_stream(path):
        with explain_os_errors(path), open(path, "w", encoding="utf-8") as stream:
            yield stream
    else:
        with file(path) as new, new.open("w", encoding="utf-8") as stream:
            yield stream


@contextlib.contextmanager
def directory(path: StrPath, overwrite: bool = False) -> Iterator[Path]:
    """Fill the directory this yields; it becomes `path` when the block ends well, and vanishes when it does not.

    An empty directory at `path` is taken over. One with content is refused before the block starts, unless
    `overwrite`: then it is moved aside, and deleted only after the new one has its name.
    """
    refuse_special(path)
    target = Path(os.path.realpath(path))
    with explain_os_errors(path), _sibling(target) as new:
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target))
        if not overwrite and target.is_dir() and any(target.iterdir()):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        with _making(path):
            new.mkdir()
        yield new
        mode = new.stat().st_mode & 0o666  # the user's umask; safetensors makes its files private
        for folder, _, names in os.walk(new):
            for file in (Path(folder, name) for name in names):
                file.chmod(mode)
                _sync(file)
            _sync(Path(folder))
        old = new.with_suffix(".old")
        if overwrite and target.exists():
            os.rename(target, old)
        os.rename(new, target)
        _sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def hold_lock(place: Path, doing: str) -> Iterator[None]:
    """Hold a directory, made if need be. The lock is the kernel's, so it falls with its process, however that dies."""
    refuse_special(place)
    with explain_os_errors(place):
        try:
            with _making(place):
                place.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise InputError(place, "a file", "a directory is needed", "choose another path") from None
        file = (place / LOCK).open("a+", encoding="utf-8")
    try:
        if not _lock(file.fileno()):
            file.seek(0)
            given = f"process {file.read().strip() or '(unknown)'} {doing}"
            raise InputError(place, given, "one process at a time", "wait for it, stop it, or choose another directory")
        with explain_os_errors(place):
            file.truncate(0)
            file.write(f"{os.getpid()} on {platform.node()}\n")
            file.flush()
        yield
    finally:
        with contextlib.suppress(OSError):  # closed it is, and what it says is a courtesy
            file.close()


def holder(place: Path) -> str | None:
    """Who holds a directory now, as `PID on HOST`, or None.

    A free lock must not be taken by asking, or who wants to hold it just then is refused: where the last holder is
    gone from this host, it is not touched; elsewhere it is tried, shared and for an instant.
    """
    try:
        import fcntl

        with (place / LOCK).open(encoding="utf-8", errors="replace") as file:
            name = file.read(200).strip()
            pid, _, host = name.partition(" on ")
            if host == platform.node() and pid.isdecimal() and not _runs(int(pid)):
                return None
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return name or "unknown"
    except (ImportError, OSError):  # Windows has no such lock; a lock that cannot be read says nothing
        pass
    return None


def _lock(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has no such lock; there the user takes care
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sweep(parent: StrPath) -> None:
    """Remove what dead processes left in a directory; a content that one had moved aside gets its name back."""
    with contextlib.suppress(OSError):  # a courtesy: others may be sweeping too, or the directory hides its names
        for path in list(Path(parent).iterdir()):
            if (match := _SIBLING.fullmatch(path.name)) and not _alive(path, match):
                target = path.with_name(match["name"])
                if match["kind"] == "old" and not target.exists():
                    os.rename(path, target)
                else:
                    _remove(path)


@contextlib.contextmanager
def explain_os_errors(path: StrPath) -> Iterator[None]:
    """Turn a full disk, a missing right and the like into a sentence about `path`; let other errors through.

    Libraries written in Rust (safetensors, tokenizers) raise errors of their own that name the errno only in the text.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        match = re.search(r"\(os error (\d+)\)", str(error))
        number = error.errno if isinstance(error, OSError) else match and int(match[1])
        if number not in _REASONS or not _concerns(error, Path(os.path.realpath(path))):
            raise
        raise InputError(path, *_REASONS[number]) from error


@contextlib.contextmanager
def _making(path: StrPath) -> Iterator[None]:
    """Explain how file systems that hold no files of ours, such as /proc, refuse them."""
    try:
        yield
    except FileNotFoundError as error:
        needed = "a place that can be written is needed"
        raise InputError(path, "it cannot be made here", needed, "choose another directory") from error


def _concerns(error: Exception, target: Path) -> bool:
    """Whether a failure is about writing `target`, not about some other file that was read meanwhile."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str):
        return True
    related = target.is_relative_to(name) or Path(name).is_relative_to(target)
    return related or any(_SIBLING.fullmatch(part) for part in Path(name).parts)


@contextlib.contextmanager
def _sibling(target: Path) -> Iterator[Path]:
    """A fresh hidden path beside `target`, on the same file system, gone when the block ends."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target.parent)) from error
    sweep(target.parent)
    new = target.with_name(f".{target.name}.cw-{_HOST}-{os.getpid()}-{secrets.token_hex(4)}.new")
    _mine.add(new)
    try:
        yield new
    finally:
        with contextlib.suppress(OSError):  # what stays is swept by the next writer; the failure to report came before
            old = new.with_suffix(".old")
            if old.exists() and not target.exists():
                os.rename(old, target)
            _remove(new)
        _mine.discard(new)


def _alive(path: Path, match: re.Match[str]) -> bool:
    if match["host"] != _HOST or os.name != "posix":  # cannot be known, so it is left alone
        return True
    if int(match["pid"]) == os.getpid():
        return path.with_suffix(".new") in _mine
    return _runs(int(match["pid"]))


def _runs(pid: int) -> bool:
    """Whether this host has such a process; only where signals are POSIX."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)


def _sync(path: Path) -> None:
    if os.name != "posix" and path.is_dir():  # Windows cannot open a directory
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
