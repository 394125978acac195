"""Files in two encodings: text that was gathered from several sources, end to end."""

from pathlib import Path

from clozeworks.data.records.compressed import open_bytes
from clozeworks.data.records.encodings import AUTO, HEAD, detect, detect_file

LINE = 1 << 16  # bytes of a line that are looked at together
CERTAIN = 2  # lines; one alone may be in two encodings by chance
DIVIDE = "divide or convert it; --encoding auto --errors skip leaves out what is not UTF-8"  # what to do about two
MEND = "mend the line, or use --errors replace or skip"  # about bytes that belong to no encoding
LOSES = "; --errors replace or skip would lose what is written in it"
SHORT = 8  # bytes; one Chinese character of five in GB18030 is valid UTF-8, but not four in a row


def find_mixture(file: Path, packing: str) -> str | None:
    """What the two encodings are and where they meet; None if there is one only.

    Text in another encoding is hardly ever valid UTF-8, so lines outside ASCII are of two kinds: those that are, and
    those that are not. Damaged UTF-8 is distinguished from the second kind by detecting their encoding.
    """
    first = {True: 0, False: 0}
    count = {True: 0, False: 0}
    other: list[bytes] = []
    size = number = 0
    with open_bytes(file, packing) as (stream, _):
        while line := stream.readline(LINE):
            number += 1
            whole = line.endswith(b"\n")
            while not whole and (more := stream.readline(LINE)):  # the rest of a long line
                whole = more.endswith(b"\n")
            if line.isascii():
                continue
            valid = _is_utf8(line)
            if valid and len(line) < SHORT:
                continue
            first[valid] = first[valid] or number
            count[valid] += 1
            if not valid and size < HEAD:
                other.append(line)
                size += len(line)
    if min(count.values()) < CERTAIN or 50 * count[True] < count[False]:
        return None
    name = detect(b"".join(other))
    if name in (None, "utf-8"):
        return None
    before, after = ("UTF-8", name) if first[True] < first[False] else (name, "UTF-8")
    return f"two encodings in one file ({before} up to line {max(first.values()) - 1:,}, then it looks like {after})"


def advice(file: Path, packing: str, encoding: str) -> str:
    """What to do about a file that does not decode in the encoding asked for."""
    if mixture := find_mixture(file, packing):
        return f"{mixture}: {DIVIDE}"
    likely = None if encoding == AUTO else detect_file(file, packing)
    if likely is not None and likely != encoding.lower():
        return f"it looks like {likely.upper()}: use --encoding {likely} (or auto){LOSES}"
    return (
        MEND if likely or encoding == AUTO else "name its encoding by --encoding NAME, or use --errors replace or skip"
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return len(line) >= LINE and error.start > len(line) - 4  # a character that the end of the piece cuts
    return True
