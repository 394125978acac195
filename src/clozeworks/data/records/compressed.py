"""Plain, gzip, zstd, xz and bzip2 files as one kind of byte stream that notices when it was cut short."""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from clozeworks.core.errors import InputError

CHUNK = 1 << 14  # of compressed bytes: a small step bounds what a highly compressible file unpacks to at once
NAMES = {".gz": "gzip", ".zst": "zstd", ".xz": "xz", ".bz2": "bzip2"}
_MAGIC = {rb"\x1f\x8b": ".gz", rb"\x28\xb5\x2f\xfd": ".zst", rb"\xfd7zXZ\x00": ".xz", rb"BZh\d(1AY&|\x17rE8)": ".bz2"}


def packing_of(head: bytes) -> str:
    """How bytes that begin so (eight are enough) are compressed: an ending, or nothing."""
    return next((ending for magic, ending in _MAGIC.items() if re.match(magic, head)), "")


@contextmanager
def open_bytes(file: Path, packing: str | None = None) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """The unpacked bytes of a file, and a function that tells how many of its stored bytes were read.

    `packing` is the ending of the compression where the name of the file does not tell it.
    """
    packing = file.suffix.lower() if packing is None else packing
    name = NAMES.get(packing, "")
    with file.open("rb") as raw:
        try:
            yield io.BufferedReader(_unpacked(raw, packing, file), CHUNK) if name else raw, raw.tell
        except EOFError:
            raise _truncated(file) from None
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and (error.errno or not name):  # bz2 speaks of its content by a bare OSError
                raise
            raise _refused(file, raw, packing, error) from None


def _unpacked(raw: IO[bytes], packing: str, file: Path) -> Any:
    if packing == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if packing == ".xz":
        return lzma.LZMAFile(raw)
    if packing == ".bz2":
        return bz2.BZ2File(raw)
    return _Zstd(raw, file)


def _refused(file: Path, raw: IO[bytes], packing: str, error: Exception) -> InputError:
    name = NAMES[packing]
    raw.seek(0)
    if isinstance(error, gzip.BadGzipFile) and "Not a gzipped" in str(error) and packing_of(raw.read(8)) == packing:
        return _trailing(file, name)  # it began as gzip, so this speaks of what follows the first end
    return InputError(file, f"not {name} ({error})", f"a whole {name} file is needed", "compress it again")


def _trailing(file: Path, name: str) -> InputError:
    needed = f"nothing but {name} is needed"
    return InputError(file, "data behind its end that is not compressed", needed, "copy or compress it again")


def _truncated(file: Path) -> InputError:
    return InputError(file, "the compressed data ends too early", "a whole file is needed", "copy or download it again")


class _Zstd(io.RawIOBase):
    """All frames of a zstd file. The library's own reader takes a truncated frame for the end of the file."""

    def __init__(self, raw: IO[bytes], file: Path):
        try:
            import zstandard
        except ImportError:
            todo = "pip install zstandard"
            raise InputError(file, "a zstd file", "the package zstandard is needed to read it", todo) from None
        self._zstd: Any = zstandard
        self._raw, self._file = raw, file
        self._frame: Any = None
        self._seen = False  # a whole frame
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._fill():
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _fill(self) -> bool:
        """Unpack one more chunk; False at the end of the file."""
        data = self._frame.unused_data if self._frame is not None and self._frame.eof else b""
        data = data or self._raw.read(CHUNK)
        if not data:
            if self._frame is not None and not self._frame.eof:
                raise _truncated(self._file)
            return False
        if self._frame is None or self._frame.eof:
            self._seen = self._frame is not None
            self._frame = self._zstd.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        try:
            self._ready = memoryview(self._frame.decompress(data))
        except self._zstd.ZstdError as error:
            if self._seen:
                raise _trailing(self._file, "zstd") from None
            given = f"not zstd ({error})"
            raise InputError(self._file, given, "a whole zstd file is needed", "compress it again") from None
        return True
