"""Files of vectors: safetensors of our own, and the text and binary formats of the published C programs.

The ending chooses the format on the way out: `.safetensors`; `.bin`, rows of bytes; `.txt` or `.vec`, lines of text. On
the way in the content does, so a file may have any name, and be compressed.

A safetensors file has the tensors `table` [n, D], `words` (UTF-8 bytes, a line break between two) and, where they are
known, `counts` [n] and `output`; what is known of them is JSON in its metadata under `about`.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import parse_json
from clozeworks.data.records.compressed import open_bytes, packing_of
from clozeworks.vectors.formats.rows import header_of, is_binary, read_bytes, read_text, write_rows
from clozeworks.vectors.formats.stored import BREAKS, MEND, Errors, Stored

StrPath = str | os.PathLike[str]

TENSORS, BINARY, TEXT = ".safetensors", ".bin", (".txt", ".vec")
OWN = ("table", "words", "counts", "output")
TIMED = ("seconds", "words_per_second")  # which no file holds: the same vectors are the same bytes
FIRST, SAMPLE = 1 << 20, 1 << 12  # bytes of a first line at most, and of what follows that are looked at
_SUBWORD_MODEL = (793712314).to_bytes(4, "little")  # how the binary models of another program begin


def check_writable(path: StrPath, header: bool = True) -> str:
    """The ending of a file to write, which is its format, if vectors can be written so at all."""
    ending = Path(path).suffix.lower()
    if ending not in (TENSORS, BINARY, *TEXT):
        needed = f"{TENSORS}, {BINARY} or {TEXT[0]} is needed"
        raise InputError(path, f"the ending {ending or '(none)'}", needed, f"for example: {Path(path).stem}{TENSORS}")
    if not header and ending not in TEXT:
        needed, todo = "only text can do without its first line", f"write {TEXT[0]}"
        raise InputError(path, f"{ending} without a header", needed, todo)
    return ending


def write(path: StrPath, stored: Stored, header: bool = True) -> None:
    """The whole file or none; text without `header` has no first line that says n and D."""
    ending = check_writable(path, header)
    breaks = frozenset("\n") if ending == TENSORS else BREAKS
    for word in stored.words:
        if not isinstance(word, str):
            raise InputError(path, f"the word {word!r}", "words are strings", "write them as str(word)")
        if not word or breaks.intersection(word):
            needed = f"words have letters and no {'line breaks' if ending == TENSORS else 'spaces in this format'}"
            todo = f"rename it, or write {TENSORS}" if word and ending != TENSORS else "rename it"
            raise InputError(path, f"the word {word!r}", needed, todo)
    with atomic_io.file(path) as new:
        if ending == TENSORS:
            about = {name: value for name, value in stored.about.items() if name not in TIMED}
            save_file(_tensors(stored), new, {"about": json.dumps(about, ensure_ascii=False)})
        else:
            write_rows(new, stored, ending == BINARY, header)


def read(path: StrPath, limit: int | None = None, mapped: bool = False, errors: Errors = "strict") -> Stored:
    """Any of the formats; the first `limit` words; `mapped` leaves the table of a safetensors file on the disk.

    Rows that cannot be used are refused, or with `errors` = skip left out and counted in `about`.
    """
    file = Path(path)
    if not file.is_file():
        given = "a directory" if file.is_dir() else "no such file"
        raise InputError(path, given, "a file of vectors is needed", "check the path")
    if limit is not None and limit < 1:
        raise InputError("limit", limit, "1 or more words are needed", "use None for all of them")
    if file.suffix.lower() == TENSORS:
        return _read_tensors(file, limit, mapped, errors)
    if mapped:
        raise InputError(path, "not a safetensors file", "only such a file can stay on the disk", "convert it first")
    with file.open("rb") as raw:
        packing = packing_of(raw.read(8))
    with open_bytes(file, packing) as (stream, _):
        reader = _reader_of(file, stream.readline(FIRST), stream.read(SAMPLE))
    size = None if packing else file.stat().st_size
    with open_bytes(file, packing) as (stream, _):
        return reader(stream, file, stream.readline(FIRST), limit, errors, size)


def _reader_of(file: Path, first: bytes, sample: bytes) -> Callable[..., Stored]:
    """Text or bytes, by the first line and what follows it."""
    if not first:
        raise InputError(file, "an empty file", "vectors are needed", "check the path")
    if first.startswith(_SUBWORD_MODEL):
        needed = "its vectors alone are needed"
        raise InputError(file, "a fastText model", needed, "use the .vec file beside it")
    if len(first) == FIRST:
        raise InputError(file, f"a first line of more than {FIRST:,} bytes", "a file of vectors", "check the path")
    return read_bytes if is_binary(first + sample) or (header_of(first) and not sample) else read_text


def _tensors(stored: Stored) -> dict[str, np.ndarray]:
    words = np.frombuffer("\n".join(stored.words).encode(), np.uint8)
    tensors = {"table": stored.table, "words": words, "counts": stored.counts, "output": stored.output, **stored.more}
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items() if tensor is not None}


def _read_tensors(file: Path, limit: int | None, mapped: bool, errors: Errors) -> Stored:
    try:
        with safe_open(file, "np") as opened:
            names = set(opened.keys())
            if not {"table", "words"} <= names:
                needed = "tensors called table and words are needed"
                given = f"tensors called {', '.join(sorted(names)[:5]) or '(none)'}"
                raise InputError(file, given, needed, "write it with clozeworks vectors")
            tensors = {name: opened.get_tensor(name) for name in names if name != "table" or not mapped}
            about = parse_json((opened.metadata() or {}).get("about", "{}"), dict)
            words = tensors.pop("words").tobytes().decode().split("\n")
    except (SafetensorError, OSError) as error:
        raise InputError(file, f"unreadable ({error})", "a whole safetensors file is needed", "copy it again") from None
    except (TypeError, ValueError) as error:  # numbers, letters or JSON of another kind than ours
        needed = "float32 rows and words in UTF-8 are needed"
        raise InputError(file, f"unreadable ({error})", needed, "write it with clozeworks vectors") from None
    if mapped:
        tensors["table"] = _mapped(file)
    stored = Stored(
        words, tensors.pop("table"), tensors.pop("counts", None), tensors.pop("output", None), about, tensors
    )
    if stored.table.ndim != 2 or len(words) != len(stored.table):
        given = f"{len(words):,} words and a table of shape {stored.table.shape}"
        raise InputError(file, given, "a row for each word is needed", "write it again")
    stored = stored if limit is None else stored.select(slice(limit))
    return stored if mapped else _finite(stored, file, errors)


def _mapped(file: Path) -> np.ndarray:
    """The table where it lies. Only called on a file whose header the library has read and checked."""
    with file.open("rb") as raw:
        length = int.from_bytes(raw.read(8), "little")
        header: dict[str, Any] = parse_json(raw.read(length), dict)["table"]
    if header["dtype"] != "F32":
        raise InputError(file, f"a table of {header['dtype']}", "float32 is needed to stay on the disk", "convert it")
    return np.memmap(file, np.float32, "r", 8 + length + header["data_offsets"][0], tuple(header["shape"]))


def _finite(stored: Stored, file: Path, errors: Errors) -> Stored:
    sound = np.asarray(np.isfinite(stored.table).all(1))
    if sound.all():
        return stored
    row = int(np.argmin(sound))
    if errors == "strict":
        needed, todo = "NaN and infinity are no vectors", f"train again, or {MEND}"
        raise InputError(f"{file} row {row + 1:,}", f"a number of {stored.words[row]} is not finite", needed, todo)
    kept = stored.select(sound)
    kept.about["skipped"] = len(stored.words) - len(kept.words)
    return kept
