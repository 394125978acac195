"""Unicode normalisation that stays linear, and where a character goes when text changes.

`unicodedata.normalize` sorts the combining marks behind a letter by insertion: a run of 80,000 takes five seconds, one
of five million would take hours. No language puts more than thirty on a letter (the limit of the Stream-Safe Text
Format, UAX #15), so longer runs are normalised in pieces of thirty. Nothing is inserted.
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable

from clozeworks.data.text.documents import Unicode

RUN = 30  # combining marks normalised together
_STRIDE = 15  # of two characters this far apart, both lie in any run longer than RUN
_SAFE = re.compile("[\x01-\x09\x0b-\x7f一-鿿]")  # no character before it changes with it


def normalise(text: str, form: Unicode) -> str:
    """The text in the form NFC or NFKC, or as it is."""
    if form == "none" or text.isascii():
        return text
    name = "NFC" if form == "nfc" else "NFKC"
    if not _two_marks().search(text[::_STRIDE]):
        return unicodedata.normalize(name, text)
    pieces: list[str] = []
    begin = 0
    for run in _long_run().finditer(text):
        pieces.append(unicodedata.normalize(name, text[begin : run.end()]))
        begin = run.end()
    pieces.append(unicodedata.normalize(name, text[begin:]))
    return "".join(pieces)


def moved(text: str, offsets: Iterable[int], change: Callable[[str], str]) -> dict[int, int]:
    """Where each offset of the text lies after the change: behind what the text before it becomes.

    Only the stretch since the last character that changes with nothing before it is looked at again.
    """
    places: dict[int, int] = {}
    begin = done = 0
    for offset in sorted(set(offsets)):
        for back in range(offset - 1, begin, -1):
            if _SAFE.match(text, back):
                done += len(change(text[begin:back]))
                begin = back
                break
        places[offset] = done + len(change(text[begin:offset]))
    return places


@functools.cache
def _marks() -> str:
    """A regular expression's class of every character that decomposes into combining marks, or is one."""
    ranges: list[list[int]] = []
    for code in (*range(0x300, 0xD800), *range(0xE000, sys.maxunicode + 1)):
        if unicodedata.combining(unicodedata.normalize("NFKD", chr(code))[0]):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@functools.cache
def _two_marks() -> re.Pattern[str]:
    return re.compile(f"[{_marks()}]{{2}}")


@functools.cache
def _long_run() -> re.Pattern[str]:
    return re.compile(f"[{_marks()}]{{{RUN}}}(?=[{_marks()}])")
