"""Which encoding text is in, and bytes of any encoding as a stream of UTF-8.

A file is classified by samples from all over it: a byte order mark, the pattern of NUL bytes, valid UTF-8, and then the
candidate under which its characters are most probable. `charset_normalizer` was tried: it knows GB18030 and Big5 as
well as this does, but took 94 of 100 English pages in Windows-1252 for another encoding (here: 3).
"""

import codecs
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from clozeworks.core.errors import InputError, suggest
from clozeworks.data.records.compressed import ChunkedStream, open_bytes
from clozeworks.data.records.encoding_tables import ALPHABETS, FREQUENT, LATIN, WIDE

AUTO = "auto"
HEAD, SAMPLE, SAMPLES = 1 << 18, 1 << 14, 48  # bytes at the beginning, bytes and number of samples further on
CHUNK = 1 << 16  # bytes transcoded at once
# Log-probabilities of a character: one of the common ones, one of the others.
AS_LETTERS = math.log(0.9 / 40), math.log(0.1 / 100)  # in an alphabet
AS_SIGNS = math.log(0.6 / 400), math.log(0.4 / 8000)  # in Chinese and its kin, two bytes
AS_WIDE = math.log(0.6 / 1000), math.log(0.4 / 20_000)  # in UTF-16, two bytes
AS_ASCII, AS_IMPOSSIBLE = -3.5, -13.0
AS_NOISE = -math.log(128)  # per byte: a candidate that explains the text no better than this is none

_MARKS = {  # the longer first: UTF-32 begins like UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_OUTSIDE = re.compile(r"[^\x00-\x7f]")
_LONG_RUN = re.compile(r"[^\x00-\x7f]{3,}")  # accented letters stand among plain ones, two in a row at the most
# Other alphabets do not mix with ASCII. A run is looked at once, from its beginning: the scan is linear.
_MIXED = re.compile(r"(?<=[A-Za-z])[^\x00-\x7f]++|(?<![^\x00-\x7f])[^\x00-\x7f]++(?=[A-Za-z])")
_MARKED = "\udcff"  # what stands for bytes that do not decode, until it becomes the byte 0xff, invalid in UTF-8 too
_MARKING = "clozeworks.marked"
_NOTATIONS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")  # of names and program text

codecs.register_error(_MARKING, lambda error: (_MARKED, error.end))  # type: ignore[attr-defined]


def check_encoding(name: str) -> None:
    """Refuse what is neither `auto` nor a codec of text."""
    if name == AUTO:
        return
    try:
        known = codecs.lookup(name)
        "".encode(name)  # codecs that do not make text of bytes (base64, zip) are refused by this, with the same error
        if known.name in _NOTATIONS:
            raise LookupError
    except (LookupError, ValueError):
        todo = suggest(name, (AUTO, "utf-8", "utf-16", "latin-1", *FREQUENT))
        raise InputError("encoding", repr(name), "auto or the name of an encoding is needed", todo) from None
    try:
        codecs.getincrementaldecoder(known.name)("strict").decode(b"", True)
    except (LookupError, UnicodeError):
        todo = "convert the file first"
        raise InputError("encoding", name, "an encoding that can be read in pieces is needed", todo) from None


def is_utf8(name: str) -> bool:
    return codecs.lookup(name).name in ("utf-8", "utf-8-sig", "ascii")


def detect_file(file: Path, packing: str = "") -> str | None:
    """The encoding of a file, by samples from all over it (of a compressed one: from its beginning); None: unknown."""
    with open_bytes(file, packing) as (stream, _):
        samples = [stream.read(HEAD)]
        if not packing:
            size = file.stat().st_size
            step = max(SAMPLE, (size - HEAD) // SAMPLES)
            for begin in range(HEAD, size, step):
                stream.seek(begin)
                samples.append(stream.read(SAMPLE))
            if all(map(bytes.isascii, samples)):
                stream.seek(0)
                samples += _first_outside_ascii(stream)
    return detect(samples[0], samples[1:])


def _first_outside_ascii(stream: IO[bytes]) -> list[bytes]:
    """The first bytes of the file that are not ASCII, and some behind them."""
    before = b""
    while chunk := stream.read(1 << 20):
        if not chunk.isascii():
            return [before + chunk]
        before = chunk[-64:]
    return []


def detect(head: bytes, others: Sequence[bytes] = ()) -> str | None:
    """The encoding of text that begins with `head`; `others` are pieces from further on. None when none is likely."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    wide = _wide(head)
    if wide:
        return wide
    pieces = [head, *map(_aligned, others)]
    if all(map(bytes.isascii, pieces)):
        return "utf-8"
    outside, wrong = 0, 0
    for piece in pieces:
        text = _decoded(piece, "utf-8")
        outside += len(_OUTSIDE.findall(text))
        wrong += text.count("\ufffd") - piece.count("\ufffd".encode())
    if wrong * 20 <= outside:  # a few damaged bytes do not make it another encoding
        return "utf-8"
    raw = b"\n".join(line for piece in pieces for line in piece.splitlines() if not line.isascii())[:HEAD]
    scores = {name: _likelihood(raw, name) for name in FREQUENT}
    even = head[: len(head) // 2 * 2]
    if even:
        scores |= {name: _likelihood(even, name) for name in ("utf-16-le", "utf-16-be")}
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] > AS_NOISE else None


def _wide(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark, recognised by where its NUL bytes stand."""
    size = len(head) // 4
    if size < 2 or head.count(0) * 8 < len(head):
        return None
    zeros = [head[place : 4 * size : 4].count(0) / size for place in range(4)]
    if zeros[3] > 0.9 and zeros[2] > 0.9:
        return "utf-32-le"
    if zeros[0] > 0.9 and zeros[1] > 0.9:
        return "utf-32-be"
    even, odd = (zeros[0] + zeros[2]) / 2, (zeros[1] + zeros[3]) / 2
    if max(even, odd) > 0.1 and min(even, odd) < 0.1 * max(even, odd):
        return "utf-16-le" if odd > even else "utf-16-be"
    return None


def _aligned(piece: bytes) -> bytes:
    """From the first byte that no encoding here uses inside a character (below 0x30), so that none is cut in two."""
    border = re.search(rb"[\x00-\x2f]", piece)
    return piece[border.start() :] if border else b""


def _decoded(raw: bytes, encoding: str) -> str:
    """As text; a character cut at the end is left out."""
    return codecs.getincrementaldecoder(encoding)("replace").decode(raw)


def _likelihood(raw: bytes, encoding: str) -> float:
    """The mean log-probability of a byte if the text were in this encoding: characters are common ones of the language
    (all alike), other ones (all alike), or impossible.
    """
    text, common = _decoded(raw, encoding), FREQUENT.get(encoding, WIDE)
    as_common, as_other = AS_LETTERS if encoding in LATIN | ALPHABETS else AS_SIGNS if encoding in FREQUENT else AS_WIDE
    strange = _LONG_RUN if encoding in LATIN else _MIXED if encoding in ALPHABETS else None
    total = 0.0
    if strange:
        total += as_other * sum(map(len, strange.findall(text)))
        text = strange.sub("", text)
    for character, count in Counter(text).items():
        if character in common:
            total += as_common * count
        elif character.isascii():
            total += (AS_ASCII if character.isprintable() or character in "\t\r\n" else AS_IMPOSSIBLE) * count
        elif character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cn", "Co", "Cs"):
            total += AS_IMPOSSIBLE * count
        else:
            total += as_other * count
    return total / len(raw)


class Transcoded(ChunkedStream):
    """The bytes of a stream in some encoding as UTF-8; what does not decode is refused, or becomes the byte 0xff.

    So whoever reads lines of UTF-8 reads every encoding, those too in which a newline is two or four bytes long.
    """

    def __init__(self, raw: IO[bytes], encoding: str, name: str, strict: bool, advice: Callable[[], str] | None = None):
        self._raw, self._encoding, self._name, self._advice = raw, encoding, name, advice
        self._decoder = codecs.getincrementaldecoder(encoding)("strict" if strict else _MARKING)
        self._read, self._lines, self._ended = 0, 0, False

    def next_chunk(self) -> bytes | None:
        if self._ended:
            return None
        chunk = self._raw.read(CHUNK)
        self._ended = not chunk
        try:
            text = self._decoder.decode(chunk, final=self._ended)
        except UnicodeError as error:
            raise self._refused(error, chunk) from None
        self._read += len(chunk)
        self._lines += text.count("\n")
        return text.encode("utf-8", "surrogateescape")

    def _refused(self, error: UnicodeError, chunk: bytes) -> InputError:
        line, place, given = self._lines + 1, self._read, "bytes that do not decode"
        if isinstance(error, UnicodeDecodeError):
            before = error.object[: error.start]
            line += before.decode(self._encoding, "ignore").count("\n")
            place += len(chunk) - len(error.object) + error.start  # the decoder keeps bytes of the chunk before
            given = f"0x{error.object[error.start]:02x} is not {self._encoding}"
        where = f"{self._name}, line {line}, byte {place}"
        todo = self._advice() if self._advice else "use --errors replace or skip"
        return InputError(where, given, f"{self._encoding} text is needed", todo)
