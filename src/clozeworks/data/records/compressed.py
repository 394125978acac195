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


def packing_of_name(file: Path) -> str:
    """How a file is compressed by its name: an ending, or nothing."""
    ending = file.suffix.lower()
    return ending if ending in NAMES else ""


@contextmanager
def open_bytes(file: Path, packing: str | None = None) -> Iterator[tuple[IO[bytes], Callable[[], int]]]:
    """The unpacked bytes of a file, and a function that says how many of its stored bytes were read.

    `packing` is the ending of the compression where the name of the file does not say it.
    """
    packing = packing_of_name(file) if packing is None else packing
    name = NAMES.get(packing, "")
    with file.open("rb") as raw:
        try:
            yield io.BufferedReader(_UNPACK[packing](raw), CHUNK) if name else raw, raw.tell
        except EOFError:
            needed, todo = "a whole file is needed", "copy or download it again"
            raise InputError(file, "the compressed data ends too early", needed, todo) from None
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and (error.errno or not name):  # bz2 speaks of its content by a bare OSError
                raise
            raw.seek(0)
            begun = "Not a gzipped" in str(error) and packing_of(raw.read(8)) == packing  # and something else follows
            if begun or isinstance(error, _TrailingError):
                given, needed = "data behind its end that is not compressed", f"nothing but {name} is needed"
                raise InputError(file, given, needed, "copy or compress it again") from None
            needed = f"a whole {name} file is needed"
            raise InputError(file, f"not {name} ({error})", needed, "compress it again") from None


class _TrailingError(OSError):
    """Behind the end of the compressed data stands something else."""


class ChunkedStream(io.RawIOBase):
    """Bytes that are made a chunk at a time."""

    _ready = memoryview(b"")

    def next_chunk(self) -> bytes | None:
        """More bytes, perhaps none yet; None at the end."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            chunk = self.next_chunk()
            if chunk is None:
                return 0
            self._ready = memoryview(chunk)
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


class _Zstd(ChunkedStream):
    """All frames of a zstd file. The library's own reader takes a truncated frame for the end of the file."""

    def __init__(self, raw: IO[bytes]):
        try:
            import zstandard
        except ImportError:
            needed = "the package zstandard is needed to read it"
            raise InputError(raw.name, "a zstd file", needed, "pip install zstandard") from None
        self._zstd: Any = zstandard
        self._raw = raw
        self._frame: Any = None
        self._seen = False  # a whole frame

    def next_chunk(self) -> bytes | None:
        data = self._frame.unused_data if self._frame is not None and self._frame.eof else b""
        data = data or self._raw.read(CHUNK)
        if not data:
            if self._frame is not None and not self._frame.eof:
                raise EOFError
            return None
        if self._frame is None or self._frame.eof:
            self._seen = self._frame is not None
            self._frame = self._zstd.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        try:
            return self._frame.decompress(data)
        except self._zstd.ZstdError as error:
            raise (_TrailingError if self._seen else OSError)(str(error)) from None


_UNPACK: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".zst": _Zstd,
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}
