"""Freed memory is kept for the next step instead of going back to the system.

The C library hands large blocks back as soon as they are freed, and every tensor of the next operation is then new
memory, whose pages the system must find and clear one by one: a tenth of a training step on CPU, half of a GELU. A
training process needs the same memory again a moment later, so it keeps it; what it holds at most stays the same.
"""

import ctypes
import os
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # names of mallopt(3)
_PAD = 64 << 20  # bytes asked of the system at once


def keep_freed() -> bool:
    """For this process from now on; False where the C library is another one, or the user has set it up already."""
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # not glibc
        return False
    return all(mallopt(name, value) for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, _PAD)))
