"""What readers count on their way."""

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Errors = Literal["strict", "replace", "skip"]


@dataclass(slots=True)
class Counts:
    """What reading has met so far. `bytes` are those of the files on disk (compressed ones count as stored)."""

    bytes: int = 0
    documents: int = 0
    characters: int = 0
    replaced: int = 0  # sequences of bytes that do not decode, turned into U+FFFD
    skipped: int = 0  # lines or rows left out because they could not be read
    nul: int = 0  # NUL characters removed
    empty_rows: int = 0  # rows whose text, or one of whose sides, is blank
    empty_files: int = 0
    long_documents: int = 0  # read in parts
    normalised: int = 0  # documents that Unicode normalisation changed
    bad_spans: int = 0  # phrases and entities left out
    bad_words: int = 0  # rows whose words do not join to their text: the text is read without them
    cut_words: int = 0  # words across the border of two sentences, divided there
    dangling_links: int = 0  # in directories, passed over
    other_files: int = 0  # in directories and patterns, of kinds that are not read, passed over
    encodings: Counter[str] = field(default_factory=Counter)  # files read in each

    def as_dict(self) -> dict[str, Any]:
        """Every count by its name, for the manifest."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
