"""The corpus as one line of text, a [SEP] after each document, whose end is joined to its beginning."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.core.examples import BORDER, END, ragged_arange
from clozeworks.objectives.objective import Text


class Pieces(NamedTuple):
    """Stretches of the line as stretches of the corpus, a document at a time."""

    starts: np.ndarray
    ends: np.ndarray
    closed: np.ndarray  # the [SEP] behind the document belongs to it
    counts: np.ndarray  # [stretches]: how many pieces each is


@dataclass(frozen=True, slots=True)
class Line:
    """The corpus as one line of text, with a special between documents, and places on it."""

    borders: np.ndarray  # [D + 1] token offsets of the documents that are not empty
    begins: np.ndarray  # [D + 1] where they stand in the line

    @classmethod
    def of(cls, text: Text) -> "Line":
        borders = np.unique(text.sentences[text.documents])
        return cls(borders, borders + np.arange(len(borders)))  # each document is one token longer in the line

    @property
    def total(self) -> int:
        return int(self.begins[-1])

    def place(self, tokens: np.ndarray) -> np.ndarray:
        """Where tokens of the corpus stand in the line."""
        return tokens + np.searchsorted(self.borders, tokens, side="right") - 1

    def pieces(self, starts: np.ndarray, ends: np.ndarray) -> Pieces:
        """Of the stretches starts : ends, 0 <= start < total; what is beyond the end is at the beginning."""
        low, high = self._document(starts), self._document(ends - 1)
        counts = np.where(ends > starts, high - low + 1, 0)
        lap, document = np.divmod(ragged_arange(low, counts), len(self.begins) - 1)
        begins, sizes = self.begins[document] + lap * self.total, np.diff(self.borders)[document]
        head, tail = np.repeat(starts, counts) - begins, np.repeat(ends, counts) - begins
        at = self.borders[document]
        return Pieces(at + np.maximum(head, 0), at + np.minimum(tail, sizes), tail > sizes, counts)

    def _document(self, at: np.ndarray) -> np.ndarray:
        """Of a place its document's number, counted on beyond the end."""
        lap, rest = np.divmod(at, self.total)
        return lap * (len(self.begins) - 1) + np.searchsorted(self.begins, rest, side="right") - 1

    def follows(self, ends: np.ndarray) -> np.ndarray:
        """The token of the corpus that stands at each of these places: BORDER for a [SEP], END behind the last."""
        document = np.minimum(np.searchsorted(self.begins, ends, side="right"), len(self.begins) - 1) - 1
        inside, sizes = ends - self.begins[document], np.diff(self.borders)[document]
        return np.where(inside < sizes, self.borders[document] + inside, np.where(ends < self.total, BORDER, END))

    def chunks(self, streams: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Begin and end of each chunk of `length` tokens in equal streams: all first ones, then all second ones."""
        total = self.total
        if total < streams:
            needed = f"a stream in {streams} streams needs a token for each"
            todo = "prepare more text or set objective.segments.streams lower"
            raise InputError("data", f"{total} tokens", needed, todo)
        borders = np.arange(streams + 1) * total // streams
        longest = -(-total // streams)
        count = -(-longest // length)
        # Streams differ by a token; the shorter one keeps a token for its last chunk where it would have none.
        chunk, left = np.arange(count + 1)[:, None], np.diff(borders)
        at = borders[:-1] + np.minimum(chunk * length, left - (count - chunk))
        return at[:-1].ravel(), at[1:].ravel()
