"""Lines of bytes, in UTF-8, into numbered lines of text."""

import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts, Errors

MARK = b"\xef\xbb\xbf"
ROW_BYTES = 1 << 30  # a record of a file of lines has to be parsed whole, so it has a limit
NO_LIMIT = -1


@dataclass(slots=True)
class Lines:
    """One file of UTF-8: its bytes, what it is called, and how its lines become text.

    `advice` says what to do; it is asked when the file turns out not to be UTF-8. `remedy` is what else can be done
    about a line that does not parse, where there is an option for it.
    """

    stream: IO[bytes]
    name: str
    errors: Errors = "strict"
    counts: Counts = field(default_factory=Counts)
    advice: Callable[[], str] = field(default=lambda: "name its encoding, or use --errors replace or skip")
    remedy: str = ""

    def place(self, number: int) -> str:
        """How a message names a line."""
        return f"{self.name}, line {number}"

    def read(self, limit: int = NO_LIMIT, doubt: str = "") -> Iterator[tuple[int, bytes, str | None]]:
        """Number, bytes and text of each line; the text is None where it does not decode and is to be left out.

        A line of more bytes than the limit is refused, with a `doubt` about the reason.
        """
        offset = number = 0
        while raw := self.stream.readline(limit):
            number += 1
            if len(raw) == limit:
                given = f"a row of more than {limit >> 20} MB"
                raise InputError(self.place(number), given, "a row holds one document", doubt)
            yield number, raw, self.decode(raw, number, offset)
            offset += len(raw)

    def texts(self, limit: int = NO_LIMIT, doubt: str = "") -> Iterator[tuple[int, str]]:
        """Number and text of each line that decodes."""
        return ((number, text) for number, _, text in self.read(limit, doubt) if text is not None)

    def refuse(self, number: int, given: object, needed: str, todo: str) -> None:
        """Refuse what stands in a line; or count it, where such lines are skipped."""
        if self.errors != "skip":
            raise InputError(self.place(number), given, needed, todo) from None
        self.counts.skipped += 1

    def decode(self, raw: bytes, number: int, offset: int) -> str | None:
        """Text of a line without NULs and without the mark at the beginning; None when it is to be left out."""
        if offset == 0:
            raw = raw.removeprefix(MARK)
        if b"\0" in raw and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            nuls = raw.count(b"\0")
            if self.errors == "strict" and len(raw) > 15 and nuls * 3 > len(raw):
                given = f"{nuls} NUL bytes among {len(raw)}"
                raise InputError(self.place(number), given, "UTF-8 text is needed", self.advice())
            self.counts.nul += nuls
            raw = raw.replace(b"\0", b"")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if self.errors == "strict":
                where = f"{self.place(number)}, byte {offset + error.start}"
                given = f"0x{raw[error.start]:02x} is not UTF-8"
                raise InputError(where, given, "UTF-8 text is needed", self.advice()) from None
            if self.errors == "skip":
                self.counts.skipped += 1
                return None
            text = raw.decode("utf-8", "replace")
            self.counts.replaced += text.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
            return text


@contextmanager
def explain_read_errors(name: str) -> Iterator[None]:
    """Turn an error of the system into a sentence about the file of this name."""
    try:
        yield
    except OSError as error:
        given = error.strerror or str(error).splitlines()[0]
        raise InputError(name, given, "a readable file is needed", "check it") from error


def refuse_device(path: Path, what: str) -> None:
    """Refuse what may never end or answer, a device or a socket, where `what` is needed; a pipe is read like a file."""
    mode = path.stat().st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise InputError(path, "a device or a socket", f"{what} is needed", "name a file, or use - for standard input")


def open_input(example: str) -> IO[bytes]:
    """The bytes of standard input; `example` is a file that a message pipes into it."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        given = "nothing" if stream is None else "a terminal"
        todo = f"try: cat {example} | clozeworks ... -"
        raise InputError("standard input", given, "a pipe or a file is needed", todo)
    return stream
