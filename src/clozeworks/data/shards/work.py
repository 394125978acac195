"""The place where a corpus is being made: what is done survives a kill, and the same command goes on from there.

    .NAME.work/  work.json  tokenizer.json  unit-000000.safetensors ...

It stands beside the directory that will be NAME, and vanishes when that one is whole.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.shards import units
from clozeworks.data.shards.engines import Engine
from clozeworks.data.shards.units import Method, Unit
from clozeworks.data.tokens.tokenizer import FILE, Tokenizer

RECORD = "work.json"
GOES_ON = (OSError, BrokenExecutor)  # a full disk, a dead worker: mended, the same command goes on


class Work:
    """Units on disk, made in any number of sittings."""

    def __init__(self, place: Path):
        self.place = place
        self.claimed = self.resumable = False
        self.found = 0  # units that an earlier sitting had made

    @property
    def spool(self) -> Path:
        """For text that can be read only once."""
        return self.place / "documents"

    def claim(self, identity: dict[str, Any] | None) -> None:
        """Go on with what an earlier sitting left if it did the same; otherwise clear it away."""
        record = self.place / RECORD
        if identity is None or _content(record) != identity:
            for path in self.place.iterdir():
                if path.name not in (atomic_io.LOCK, self.spool.name):
                    path.unlink()
            atomic_io.write_json(record, identity)
        self.claimed, self.resumable = True, identity is not None

    def tokenizer(self) -> Tokenizer | None:
        """The one that an earlier sitting trained."""
        return Tokenizer.load(self.place / FILE) if (self.place / FILE).is_file() else None

    def keep(self, tokenizer: Tokenizer) -> None:
        tokenizer.save(self.place)

    def make(self, method: Method, several: Iterator[Unit], engine: Engine) -> Iterator[Path]:
        """Have every unit made that is not there yet; yields the files, in order."""
        # The engine takes units as it can, so which ones are missing is decided as they pass; the ones that are there
        # are told apart by their place in the sequence.
        there: dict[int, Path] = {}

        def missing() -> Iterator[Unit]:
            for unit in several:
                file = self._file(unit.number)
                if units.read(file, ("begins",)) is None:
                    yield unit
                else:
                    there[unit.number] = file
                    self.found += 1

        number = 0
        for made in engine(method, missing()):
            while number in there:
                yield there.pop(number)
                number += 1
            file = self._file(number)
            units.write(file, made)
            yield file
            number += 1
        while number in there:
            yield there.pop(number)
            number += 1

    def _file(self, number: int) -> Path:
        return self.place / f"unit-{number:06}.safetensors"


@contextlib.contextmanager
def work(out: Path) -> Iterator[Work]:
    """The place of work for `out`, one process at a time.

    Bad input leaves nothing behind; a kill, an interrupt, a full disk or a dead worker leave what is done.
    """
    target = Path(os.path.realpath(out))
    place = target.with_name(f".{target.name}.work")
    with atomic_io.explain_os_errors(place), atomic_io.hold_lock(place, "is preparing text there"):
        here = Work(place)
        try:
            yield here
        except BaseException as error:
            mended = not isinstance(error, InputError) or isinstance(error.__cause__, GOES_ON)
            kept = here.resumable and mended and any(place.glob("unit-*"))
            if not kept and (here.claimed or not (place / RECORD).exists()):
                shutil.rmtree(place, ignore_errors=True)
            raise
        shutil.rmtree(place, ignore_errors=True)


def _content(record: Path) -> Any:
    try:
        return json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
