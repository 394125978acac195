"""Compilation of the kernels, once for a machine: what was compiled is kept on disk and loaded by the next start.

numba keeps it beside the source file, or where that cannot be written in the user's cache directory; the variable
NUMBA_CACHE_DIR names another. Where neither can be written, each start compiles for itself. Kernels call kernels of
other files, and numba looks at the file of a kernel alone; so here what is kept is stale when any of them has changed.
"""

import contextlib
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from clozeworks.core.errors import InputError

try:
    import numba
    from numba.core.caching import FunctionCache, IndexDataCacheFile
except ImportError:
    _needed, _todo = "the package numba compiles the kernels", "pip install 'clozeworks[vectors]'"
    raise InputError("vectors", "numba is not installed", _needed, _todo) from None

Function = TypeVar("Function", bound=Callable[..., Any])

# Sums in any order, so that they are vectors; but what is not finite stays visible.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function: Function) -> Function:
    """Compile a function for the types it is called with; it runs beside other threads of Python."""
    made: Any = numba.njit(nogil=True, fastmath=_FAST, error_model="numpy")(function)
    with contextlib.suppress(RuntimeError):  # no place for a cache can be written
        made._cache = _PackageCache(function)
    return cast(Function, made)


def inlined(function: Function) -> Function:
    """Compile a function as a part of each kernel that calls it.

    As a function of its own it would be compiled twice, by itself and within the kernel, and the two may sum in another
    order; which of them a process runs hangs on whether it compiled the kernel or found it on the disk.
    """
    return cast(Function, numba.njit(nogil=True, fastmath=_FAST, error_model="numpy", inline="always")(function))


class _PackageCache(FunctionCache):
    def __init__(self, function: Callable[..., Any]):
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base, _stamp(_room(function)))


def _room(function: Callable[..., Any]) -> str:
    """The package of the library that a kernel is in."""
    return (*function.__module__.split("."), "core")[1]


@functools.cache
def _stamp(room: str) -> str:
    """Of the files of a package that have kernels."""
    sources = (file.read_bytes() for file in sorted((Path(__file__).parents[2] / room).rglob("*.py")))
    return hashlib.sha256(b"".join(source for source in sources if b"\n@compiled\n" in source)).hexdigest()
