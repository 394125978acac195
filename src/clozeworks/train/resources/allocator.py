"""Freed memory is kept for the next step instead of going back to the system.

The C library hands large blocks back as soon as they are freed, and every tensor of the next operation is then new
memory, whose pages the system must find and clear one by one: a tenth of a training step on CPU, half of a GELU. A
training process needs the same memory again a moment later, so it keeps it; what it holds at most stays the same.

Unless it is torn. Where rows are packed, shapes change from step to step, and oneDNN keeps half a megabyte for each of
the last thousand that it has compiled, in the midst of what a step has freed. The next large tensor does not fit
between two of these and takes new memory, some megabytes a step. So what has grown is given back.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # names of mallopt(3)
_PAD = 64 << 20  # bytes asked of the system at once
_SLACK = 256 << 20  # bytes of growth, at least, that are worth a step's page faults
_FIRST = 4  # steps after which a new process holds what it needs


def keep_freed() -> bool:
    """For this process from now on; False where the C library is another one, or the user has set it up already."""
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = _glibc("mallopt")
    return mallopt is not None and all(
        mallopt(name, value) for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, _PAD))
    )


def give_back() -> None:
    """All that is free, at the end of a run: the next one in this process needs other sizes."""
    if (trim := _glibc("malloc_trim")) is not None:
        trim(0)


@contextlib.contextmanager
def giving_back() -> Iterator[None]:
    """While a run trains; at its end `give_back`."""
    try:
        yield
    finally:
        give_back()


class Heap:
    """Free pages between the blocks in use, given back when a process holds a quarter more than a step has needed, and
    256 MB more."""

    def __init__(self, held: Callable[[], int], trim: Callable[[int], object] | None = None):
        self.held, self.trim = held, trim or _glibc("malloc_trim")
        self._steps, self._need = -_FIRST, 0

    def settle(self) -> bool:
        """After each step; whether pages were given back. Those that are needed come again in the next one."""
        self._steps += 1
        if self._steps < 0 or self.trim is None:
            return False
        now = self.held()
        if self._steps == 0:
            self._need = now
        if now <= self._need + max(_SLACK, self._need // 4):
            return False
        self.trim(0)
        self._steps = -1
        return True


def _glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library; None where that is another one."""
    try:
        return getattr(ctypes.CDLL(None), name) if sys.platform == "linux" else None
    except (AttributeError, OSError):
        return None
