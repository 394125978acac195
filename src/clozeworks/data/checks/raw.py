"""A look over the bytes of a file: does it decode, where not, and what else could it be?"""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from clozeworks.data.records.compressed import open_bytes
from clozeworks.data.records.encoding_tables import FREQUENT
from clozeworks.data.records.encodings import AUTO, Transcoded, detect_file, is_utf8
from clozeworks.data.records.mixture import find_mixture

CHUNK = 1 << 20
PLACES = 3  # lines named


@dataclass(slots=True)
class Raw:
    """The encoding a file is read in, the one it seems to have (None: unknown, or never asked), and what is wrong."""

    encoding: str = "utf-8"
    likely: str | None = None
    invalid: int = 0  # sequences of bytes that do not decode
    lines: list[int] = field(default_factory=list)  # the first that hold some
    nul: int = 0
    ascii: bool = True
    mixed: str | None = None  # two encodings in it, and where they meet

    @property
    def better(self) -> str | None:
        """Another encoding that the file should be read in."""
        return self.likely if self.likely is not None and self.likely != self.encoding else None


def look(file: Path, packing: str, encoding: str, progress: Callable[[int], None]) -> Raw:
    """Decode the whole file, in pieces. `progress` hears how many of the stored bytes were read."""
    asked = encoding == AUTO
    likely = detect_file(file, packing) if asked else None
    raw = Raw((likely or "utf-8") if asked else "utf-8" if is_utf8(encoding) else encoding, likely)
    size = line = 0
    with open_bytes(file, packing) as (stream, position):
        reader = io.BufferedReader(Transcoded(stream, raw.encoding, str(file), strict=False), CHUNK)
        while chunk := reader.read(CHUNK):
            size += len(chunk)
            raw.nul += chunk.count(b"\0")
            raw.ascii = raw.ascii and chunk.isascii()
            if not raw.ascii and (invalid := chunk.count(b"\xff")):  # no byte of UTF-8: `Transcoded` marks with it
                raw.invalid += invalid
                _note_lines(raw, chunk, line)
            line += chunk.count(b"\n")
            progress(position())
    if raw.invalid or (raw.encoding in FREQUENT and not raw.ascii):
        raw.mixed = find_mixture(file, packing)
    doubtful = raw.invalid or raw.nul * 8 > size or (raw.encoding != "utf-8" and not raw.ascii)
    if doubtful and not asked:
        raw.likely = detect_file(file, packing)
        if not raw.invalid and raw.encoding != "utf-8" and raw.likely != "utf-8":
            raw.likely = None  # what decodes as its owner says is believed, unless it is plainly UTF-8
    return raw


def _note_lines(raw: Raw, chunk: bytes, line: int) -> None:
    place = chunk.find(b"\xff")
    while place >= 0 and len(raw.lines) < PLACES:
        number = line + chunk.count(b"\n", 0, place) + 1
        if number not in raw.lines:
            raw.lines.append(number)
        end = chunk.find(b"\n", place)
        place = chunk.find(b"\xff", end) if end >= 0 else -1
