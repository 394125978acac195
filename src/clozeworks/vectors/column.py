"""A column of numbers that grows: in memory while it is small, then in a file that vanishes with it."""

import os
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from clozeworks.core import atomic_io

IN_MEMORY = 1 << 25  # bytes
Folder = str | os.PathLike[str] | None  # for large columns; None: where temporary files are
PIECE = 1 << 20  # numbers looked at together


class Column:
    """Append arrays, then take `array()`: one array of all of them, mapped from disk where it is large.

    The file has no name once it is open (where the system allows that), so nothing stays behind whatever happens.
    """

    def __init__(self, dtype: Any, folder: Folder = None, in_memory: int = IN_MEMORY):
        self._dtype = np.dtype(dtype)
        self._folder, self._in_memory = folder, in_memory
        self._held: list[np.ndarray] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self.size = 0

    def append(self, numbers: np.ndarray) -> None:
        numbers = np.ascontiguousarray(numbers, self._dtype)
        self._held.append(numbers)
        self._bytes += numbers.nbytes
        self.size += len(numbers)
        if self._bytes > self._in_memory:
            self._spill()

    def array(self) -> np.ndarray:
        """All of it; nothing is appended afterwards."""
        if self._file is None:
            whole = np.concatenate(self._held) if self._held else np.zeros(0, self._dtype)
            self._held = [whole]
            return whole
        self._spill()
        whole = np.memmap(self._file, self._dtype, "r+", shape=(self.size,))
        self._file.close()  # the map holds it open
        return whole

    def _spill(self) -> None:
        with atomic_io.explain_os_errors(self._folder or tempfile.gettempdir()):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - it grows until it is taken
                weakref.finalize(self, self._file.close)
            for numbers in self._held:
                self._file.write(numbers.data)
            self._file.flush()
        self._held, self._bytes = [], 0


def pieces(size: int) -> Iterator[slice]:
    """[0, size) in slices that are small beside a large column."""
    for begin in range(0, size, PIECE):
        yield slice(begin, min(begin + PIECE, size))
