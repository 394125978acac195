"""What bytes are, by how they begin: a file whose name says something else is refused before it is taken for text."""

import re
from pathlib import Path

from clozeworks.core.errors import InputError
from clozeworks.data.records.compressed import NAMES, open_bytes, packing_of

HEAD = 512  # bytes looked at
_OTHERS = {  # how a file begins, what it is, what to do
    rb"PAR1[\x00-\x1f]": ("Parquet", "name it .parquet"),
    rb"ARROW1\0\0|\xff\xff\xff\xff[\x00-\xff]{3}\0": ("Arrow", "name it .arrow"),
    rb"%PDF-\d": ("a PDF", "extract its text first"),
    rb"PK\x03\x04": ("a zip archive", "unpack it first"),
    rb"[\x00-\xff]{257}ustar": ("a tar archive", "unpack it first"),
    rb"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it first"),
    rb"SQLite format 3\0": ("an SQLite database", "export its text first"),
}
_PLAIN = re.compile(rb"[^\x00-\x08\x0e-\x1a\x1c-\x1f]*")  # no control characters: text in nearly every encoding


def refuse_other(file: Path, name: str, packing: str) -> None:
    """Refuse what is no text (once unpacked), and a compression that the name does not show."""
    with file.open("rb") as stream:
        head = stream.read(HEAD)
    real, plain = packing_of(head), _PLAIN.fullmatch(head) is not None
    if real != packing and real:
        named = f"{Path(name).name.removesuffix(Path(name).suffix) if packing else Path(name).name}{real}"
        given = f"it is {NAMES[real]}"
        raise InputError(name, given, "the name must end in the compression", f"name it {named}")
    if packing and head and not real and plain:
        needed = f"a {NAMES[packing]} file is needed"
        raise InputError(name, "it is not compressed", needed, f"name it {Path(name).stem}, or compress it")
    if packing:
        with open_bytes(file, packing) as (stream, _):
            head = stream.read(HEAD)
    for begin, (what, todo) in _OTHERS.items():
        if re.match(begin, head):
            if name == "-":
                todo = f"write it to a file: {todo}" if todo.startswith("name") else todo
                raise InputError("standard input", f"it is {what}", "text or JSON lines are needed there", todo)
            raise InputError(name, f"it is {what}", "text is needed under this name", todo)
