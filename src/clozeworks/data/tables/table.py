"""Labelled rows as they were read: columns by name, and where each row stands in its file."""

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
PLACES = "places"  # of a row whose tokens were cut from a text: the characters [begin, end) of each


@dataclass(slots=True)
class Table:
    """Rows of a file, or of what a caller gave, under the names that tasks know.

    text, text_a, text_b and text_c, label (a string, or a list of them), score, tokens and tags (lists), question,
    context, answers, choices, answer, source, target: which of them there are is for the task to say. Where tokens were
    cut from a text, it and their `places` in it are there, too.
    """

    name: str  # of the file
    rows: list[Row]
    lines: list[int] = field(default_factory=list)  # of each row, from 1; nothing: rows are counted
    unit: str = "line"  # what `lines` counts
    given: list[Row] = field(default_factory=list)  # each row as it stood in the file, where that was asked for

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, row: int) -> str:
        """How a message names a row."""
        return f"{self.name}, {self.unit} {self.lines[row]}" if self.lines else f"{self.name}, row {row + 1}"

    def some(self, rows: list[int]) -> "Table":
        """The table of these rows alone."""
        lines = [self.lines[at] for at in rows] if self.lines else []
        given = [self.given[at] for at in rows] if self.given else []
        return Table(self.name, [self.rows[at] for at in rows], lines, self.unit, given)
