"""How the lines of a .txt file are arranged: one document a line, lines broken at a column, or paragraphs."""

import re
from dataclasses import dataclass, field

from clozeworks.core.characters import is_han

LOOKED_AT = 500_000  # characters of a file
FEW = 20  # lines that are too few to decide
NARROWEST, WIDEST = 20, 120  # characters in a line that was broken at a column; lines of lists are shorter
_END = re.compile(r"[.!?。！？；…:：][\"'”’»)\]」』）】]*$")


@dataclass(slots=True)
class Layout:
    """The lines of one .txt file; all but its number of documents and lines are those of its beginning."""

    name: str
    documents: int = 0
    characters: int = 0
    lines: int = 0
    looked: int = 0
    short: list[int] = field(default_factory=lambda: [0] * (WIDEST + 2))  # lines by their width
    ended: int = 0  # lines that end as a sentence does
    inner: int = 0  # lines that another one of their document follows
    continued: int = 0  # of these, those that break off before a small letter, or between two Chinese characters

    def add(self, text: str, first: bool) -> None:
        """Count the lines of a document, or of a part of one."""
        self.documents += first
        self.characters += len(text)
        self.lines += text.count("\n") + 1
        if self.looked >= LOOKED_AT:
            return
        piece = text[: LOOKED_AT - self.looked]
        self.looked += len(piece)
        lines = [line for line in map(str.strip, piece.split("\n")) if line]
        for number, line in enumerate(lines):
            ends = _END.search(line[-8:]) is not None
            self.ended += ends
            self.short[min(len(line), WIDEST + 1)] += 1
            if number + 1 < len(lines):
                self.inner += 1
                self.continued += not ends and _breaks_off(line, lines[number + 1])

    @property
    def seen(self) -> int:
        """The lines that were looked at."""
        return sum(self.short)

    @property
    def width(self) -> int:
        """What 95 of 100 lines are no wider than."""
        rest = 0.95 * self.seen
        for width, count in enumerate(self.short):
            rest -= count
            if rest <= 0:
                return width
        return WIDEST + 1

    @property
    def wrapped(self) -> bool:
        """Are the lines broken at a column, inside sentences?"""
        if self.inner < FEW or not NARROWEST <= self.width <= WIDEST:
            return False
        return self.continued > 0.3 * self.inner

    @property
    def one_a_line(self) -> bool:
        """Does every line look like a whole text of its own, with nothing between one document and the next?"""
        many = self.lines >= 1000 and self.lines >= 500 * self.documents
        return many and not self.wrapped and self.ended > 0.5 * self.seen

    @property
    def fused(self) -> bool:
        """Is it one long document, for want of blank lines?"""
        return self.documents == 1 and self.characters > 20_000


def _breaks_off(line: str, following: str) -> bool:
    """Whether a line that ends no sentence continues in the next."""
    if is_han(following[0]) and (is_han(line[-1]) or line[-1] in "，、"):
        return len(line) + 1 >= len(following)
    return following[0].islower()
