"""What the readers of text hand on: documents, and the counts of what was met on the way."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from clozeworks.core.errors import InputError, suggest
from clozeworks.data.text.encodings import check_encoding
from clozeworks.data.text.listing import list_files

__all__ = ["Counts", "Document", "Errors", "Reading", "Span", "Unicode", "list_files"]

Errors = Literal["strict", "replace", "skip"]
Unicode = Literal["none", "nfc", "nfkc"]
Span = tuple[int, int]


@dataclass(slots=True)
class Document:
    """One document: `text` with a newline between paragraphs, or `sentences` already split.

    `words` are gold words, one list a sentence, that join to the sentence: a word carries the space before it, where
    there is one. With a `text` they are the words of its sentences. `phrases` and `entities` are spans [begin, end) of
    characters in `text`. `label` is for classification.
    `part` counts the pieces of a document too long to hold at once: part 1 continues the document before it.
    """

    text: str = ""
    source: str = ""
    sentences: list[str] | None = None
    words: list[list[str]] | None = None
    label: str | None = None
    part: int = 0
    phrases: list[Span] = field(default_factory=list)
    entities: list[Span] = field(default_factory=list)


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
    encodings: dict[str, int] = field(default_factory=dict)  # files read in each

    def as_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Reading:
    """How text is to be read.

    `field` is the column or key that holds the text; `pairs` are two of them, whose rows become two-sided documents.
    `encoding` is a Python codec, or `auto`: told from each file. `errors` is for bytes that do not decode and, as
    `skip`, for rows that do not parse. `unicode` is the normalisation of the text. `unwrap` joins the lines of a
    paragraph of .txt: lines broken at a column end no sentence then.
    """

    field: str = "text"
    pairs: tuple[str, str] | None = None
    encoding: str = "utf-8"
    errors: Errors = "strict"
    unicode: Unicode = "none"
    unwrap: bool = False

    def __post_init__(self) -> None:
        for name, known in (("errors", get_args(Errors)), ("unicode", get_args(Unicode))):
            given = getattr(self, name)
            if given not in known:
                raise InputError(name, given, f"one of {', '.join(known)} is needed", suggest(str(given), known))
        if self.pairs is not None and (len(self.pairs) != 2 or not all(self.pairs) or self.pairs[0] == self.pairs[1]):
            raise InputError("pairs", ",".join(self.pairs), "two different fields are needed", "write it as en,de")
        if not self.field:
            raise InputError("field", "an empty name", "the name of a field is needed", "try text")
        check_encoding(self.encoding)
