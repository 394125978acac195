"""The place where a corpus is being made: what is done survives a kill, and the same command resumes it.

    .NAME.work/  work.json  tokenizer.json  unit-000000.safetensors ...

It stands beside the directory that will be NAME, and vanishes when that one is whole.
"""

import contextlib
import os
import shutil
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import read_json
from clozeworks.data.shards import units
from clozeworks.data.shards.engines import Engine
from clozeworks.data.shards.units import TokenizeTask, Unit
from clozeworks.data.tokens.tokenizer import FILE, Tokenizer

RECORD = "work.json"
RESUMABLE = (OSError, BrokenExecutor)  # a full disk, a dead worker: mended, the same command resumes


class WorkDirectory:
    """Units on disk, made in any number of sittings."""

    def __init__(self, path: Path):
        self.path = path
        self.claimed = self.resumable = False

    @property
    def spool(self) -> Path:
        """For text that can be read only once."""
        return self.path / "documents"

    def claim(self, identity: dict[str, Any] | None) -> None:
        """Resume what an earlier sitting left if it did the same; otherwise clear it away."""
        record = self.path / RECORD
        if identity is None or _read_record(record) != identity:
            for path in self.path.iterdir():
                if path.name not in (atomic_io.LOCK, self.spool.name):
                    path.unlink()
            atomic_io.write_json(record, identity)
        self.claimed, self.resumable = True, identity is not None

    def load_tokenizer(self) -> Tokenizer | None:
        """The one that an earlier sitting trained."""
        return Tokenizer.load(self.path / FILE) if (self.path / FILE).is_file() else None

    def save_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Keep it for a later sitting."""
        tokenizer.save(self.path)

    def tokenize(self, task: TokenizeTask, text: Iterator[Unit], engine: Engine) -> list[Path]:
        """Have every unit tokenized that is not there yet; the files of all of them, in order.

        The engine takes units as it can and gives results in their order, so what it was given waits in `missing`.
        """
        files: list[Path] = []
        missing: deque[Path] = deque()

        def take_missing() -> Iterator[Unit]:
            for unit in text:
                file = self._file(unit.number)
                files.append(file)
                if units.read(file, ("begins",)) is None:
                    missing.append(file)
                    yield unit

        for tokenized in engine(task, take_missing()):
            units.write(missing.popleft(), tokenized)
        return files

    def _file(self, number: int) -> Path:
        return self.path / f"unit-{number:06}.safetensors"


@contextlib.contextmanager
def open_work(out: Path) -> Iterator[WorkDirectory]:
    """The place of work for `out`, one process at a time.

    Bad input leaves nothing behind; a kill, an interrupt, a full disk or a dead worker leave what is done.
    """
    path = place_of_work(out)
    with atomic_io.explain_os_errors(path), atomic_io.hold_lock(path, "is preparing text there"):
        work = WorkDirectory(path)
        try:
            yield work
        except BaseException as error:
            mended = not isinstance(error, InputError) or isinstance(error.__cause__, RESUMABLE)
            kept = work.resumable and mended and any(path.glob("unit-*"))
            if not kept and (work.claimed or not (path / RECORD).exists()):
                shutil.rmtree(path, ignore_errors=True)
            raise
        shutil.rmtree(path, ignore_errors=True)


def place_of_work(out: Path) -> Path:
    """Where what will be `out` is made."""
    target = Path(os.path.realpath(out))
    return target.with_name(f".{target.name}.work")


def remove_finished(out: Path) -> None:
    """Remove the work of a directory that is whole: a kill between its last rename and the clean-up left it."""
    path = place_of_work(out)
    if path.is_dir():
        with contextlib.suppress(InputError), atomic_io.hold_lock(path, "is preparing text there"):
            shutil.rmtree(path, ignore_errors=True)


def _read_record(record: Path) -> Any:
    try:
        return read_json(record)
    except (OSError, ValueError):
        return None
