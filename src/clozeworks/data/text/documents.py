"""What the readers of text hand on, and how text is to be read."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from clozeworks.core.errors import InputError, suggest
from clozeworks.data.records.counts import Errors
from clozeworks.data.records.encodings import check_encoding

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


@dataclass(frozen=True, slots=True)
class Reading:
    """How text is to be read.

    `field` is the column or key that holds the text; `pairs` are two of them, whose rows become two-sided documents.
    `encoding` is a Python codec, or `auto`: detected for each file. `errors` is for bytes that do not decode and, as
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
