"""Records, whatever they come from, into documents.

A record brings one text; or, where that field is absent, its `sentences` or its `words`; or, with `pairs`, two sides.
Beside a text it may bring its `words`, and `phrases` and `entities`: lists of [begin, end) in characters.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clozeworks.core.characters import HALF_A_PAIR, is_unicode
from clozeworks.core.errors import InputError, suggest
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.source import Select, Source, refuse_doubles
from clozeworks.data.records.wording import describe
from clozeworks.data.text.documents import Document, Reading, Span
from clozeworks.data.text.normal import moved, normalise
from clozeworks.data.text.parts import in_parts
from clozeworks.data.text.segmented import in_sentences, words_of
from clozeworks.data.text.sentences import LONGEST

SPANS = ("phrases", "entities")
BESIDE = ("words", *SPANS)  # what is read beside a text

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LEAVE_OUT = "mend them, or use --errors replace or skip to leave them out"
_BREAK = re.compile(r"\s*[\r\n]+\s*")


class UnreadableError(Exception):
    """Text that `--errors skip` leaves out."""


def convert_records(source: Source, reading: Reading, counts: Counts) -> Iterator[Document]:
    """The documents of records. With `skip` a record of the wrong shape is left out, once one of the right shape was
    seen: a misspelt field must not make an empty corpus.
    """
    converter = _Converter(source, reading, counts)
    good = False
    for number, record in source.records:
        converter.number = number
        try:
            document = converter.convert(record)
        except (UnreadableError, InputError) as error:
            if isinstance(error, InputError) and (reading.errors != "skip" or not good):
                raise
            counts.skipped += 1
            continue
        good = True
        if document is None:
            counts.empty_rows += 1
        else:
            yield from in_parts(document, counts)


def select_fields(names: Collection[str], where: object, reading: Reading, what: str = "field") -> tuple[str, ...]:
    """Those of a record's fields that make its document; refused when the one that is asked for is missing."""
    wanted = reading.pairs or (reading.field,)
    missing = [name for name in wanted if name not in names]
    read = ()
    if not missing:
        read = (*wanted, *(name for name in BESIDE if name in names and reading.pairs is None and name not in wanted))
    elif reading.pairs is None and reading.field == "text":
        read = tuple(name for name in ("sentences", "words") if name in names)[:1]
    if read:
        refuse_doubles(read, [*names], where, what)
        return read
    option = "--field NAME" if reading.pairs is None else "--pairs A,B"
    todo = f"{suggest(missing[0], names)} ({option})" if names else "there is none at all"
    if what == "column" and reading.pairs is not None and len(names) > 1:
        todo += "; a table without a header has columns by number: --pairs 1,2"
    needed = f"the {what}s are {', '.join(names) or 'none'}"
    raise InputError(where, f"no {what} {missing[0]!r}", needed, todo)


def select_columns(reading: Reading, without: Collection[str] = ()) -> Select:
    """What selects the columns of a table that make documents."""

    def select(names: Sequence[str], where: str) -> list[str]:
        return [name for name in select_fields(names, where, reading, "column") if name not in without]

    return select


def has_fields(names: Collection[str], reading: Reading) -> bool:
    """Whether records with these fields make documents."""
    try:
        return bool(select_fields(names, "", reading))
    except InputError:
        return False


@dataclass(slots=True)
class _Converter:
    """Makes documents of records, one after the other; `number` is that of the one at hand."""

    source: Source
    reading: Reading
    counts: Counts
    number: int = 0

    def where(self) -> str:
        """How a message names the record."""
        return self.source.place(self.number)

    def convert(self, record: Any) -> Document | None:
        """The document of a record; None when it is blank."""
        if isinstance(record, Document):
            return self._given(record)
        reading, name = self.reading, self.reading.field
        if not isinstance(record, Mapping):
            needed = f"an object with a field {name!r} is needed"
            raise InputError(self.where(), describe(record), needed, 'write {"text": "..."}')
        if reading.pairs is not None or name not in record:
            name = select_fields(list(map(str, record)), self.where(), reading)[0]
        if reading.pairs is not None:
            return self._pair(record)
        value = record[name]
        if value is None:
            return None
        if name == "words" or (name == "sentences" and not (isinstance(value, str) and name == reading.field)):
            return self._segmented(value, name)
        spans = {kind: record[kind] for kind in SPANS if kind in record and kind != name}
        document = self._text(self._string(record, name), spans, Document(source=self.source.name))
        words = record.get("words")
        if document is None or not words or not (isinstance(words, list | tuple) or _is_words(words)):
            return document
        return self._with_words(document, words)

    def _with_words(self, document: Document, value: Any) -> Document:
        """The document with the words of its sentences; without them where they are not those of its text."""
        reading = self.reading

        def tidy(word: str) -> str:
            return normalise(self._clean(word, Counts()), reading.unicode).strip()

        try:
            flat = [word for words in in_sentences(value, "words", self.where, tidy) for word in words]
            divided = words_of(document.text, flat)
            if divided is None:
                given = "field 'words' does not join to the text"
                needed = "the words of the whole text, in order, are needed"
                raise InputError(self.where(), given, needed, _LEAVE_OUT)
        except (InputError, UnreadableError):
            if reading.errors == "strict":
                raise
            self.counts.bad_words += 1
            return document
        words, cut = divided
        self.counts.cut_words += cut
        return replace(document, text=document.text.rstrip("\n"), words=words)

    def _text(self, text: str, spans: Mapping[str, Any], model: Document) -> Document | None:
        """`model` with this text and its spans; None when the text is blank."""
        tidy = self._clean(text, self.counts)
        if not tidy.strip():
            return None
        normal = normalise(tidy, self.reading.unicode)
        self.counts.normalised += normal != tidy
        size = len(normal.rstrip("\n"))
        kept = {kind: self._spans(given, kind, text, size) for kind, given in spans.items()}
        return replace(model, text=normal, **kept)

    def _given(self, document: Document) -> Document | None:
        """A Document that was handed in: its sentences and words stay as they are but for the Unicode form."""
        words, sentences, form = document.words, document.sentences, self.reading.unicode
        if words is None and sentences is None:
            return self._text(document.text, {kind: getattr(document, kind) for kind in SPANS}, document)
        if not (words or sentences):
            return None
        if form == "none":
            return document
        normal = replace(
            document,
            text=normalise(document.text, form),
            words=None if words is None else [[normalise(word, form) for word in sentence] for sentence in words],
            sentences=None if sentences is None else [normalise(sentence, form) for sentence in sentences],
        )
        self.counts.normalised += normal != document
        return normal

    def _clean(self, text: str, counts: Counts) -> str:
        """Text without halves of surrogate pairs, NULs and the carriage returns of Windows lines."""
        if not is_unicode(text):
            if self.reading.errors == "strict":
                given, todo = f"{HALF_A_PAIR} in a string", "use --errors replace or skip"
                raise InputError(self.where(), given, "Unicode text is needed", todo)
            if self.reading.errors == "skip":
                raise UnreadableError
            text, replaced = _LONE_SURROGATE.subn("\ufffd", text)
            counts.replaced += replaced
        counts.nul += text.count("\0")
        return _tidy(text)

    def _string(self, record: Mapping[str, Any], name: str) -> str:
        value = record[name]
        if not isinstance(value, str):
            others = [str(other) for other, held in record.items() if isinstance(held, str) and other != name]
            todo = f"is {' or '.join(others[:5])} meant?" if others else "is another field meant?"
            if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
                todo = 'join paragraphs by newline, or call the field "sentences"'
            raise InputError(self.where(), f"field {name!r} holds {describe(value)}", "a string is needed", todo)
        return value

    def _pair(self, record: Mapping[str, Any]) -> Document | None:
        sides: list[str] = []
        changed = False
        for name in self.reading.pairs or ():
            if record[name] is None:
                return None
            side = self._clean(self._string(record, name), self.counts)
            normal = normalise(side, self.reading.unicode)
            changed |= normal != side
            sides.append(_BREAK.sub(" ", normal.strip()))
        if not all(sides):
            return None
        longest = max(map(len, sides))
        if longest > LONGEST:
            given, needed = f"a side of {longest:,} characters", f"at most {LONGEST:,} are needed"
            raise InputError(self.where(), given, f"{needed}, for a side is never divided", "split it or leave it out")
        self.counts.normalised += changed
        return Document(source=self.source.name, sentences=sides)

    def _segmented(self, value: Any, name: str) -> Document | None:
        form, changed = self.reading.unicode, False

        def tidy(piece: str) -> str:
            nonlocal changed
            if piece.isprintable() and form == "none":  # nothing to clean
                return piece.strip()
            piece = self._clean(piece, self.counts)
            normal = normalise(piece, form)
            changed |= normal != piece
            return _BREAK.sub(" ", normal.strip())

        units = in_sentences(value, name, self.where, tidy)
        if not units:
            return None
        self.counts.normalised += changed
        if name == "words":
            return Document(source=self.source.name, words=units)
        return Document(source=self.source.name, sentences=["".join(unit) for unit in units])

    def _spans(self, given: Any, kind: str, original: str, size: int) -> list[Span]:
        """The valid spans among those given, in order, moved with what tidying did to the text, now `size` long."""
        if given is None:
            return []
        if not isinstance(given, list | tuple):
            self._count_bad(f"{kind} that are {describe(given)}")
            return []
        spans: list[Span] = []
        for span in given:
            if _is_span(span, len(original)):
                spans.append((span[0], span[1]))
            else:
                self._count_bad(f"{kind} with {str(span)[:60]} in a text of {len(original)} characters")
        offsets = [place for span in spans for place in span]
        places = moved(original, offsets, lambda text: normalise(_tidy(text), self.reading.unicode))
        kept: list[Span] = []
        for first, last in sorted(spans):
            begin, end = places[first], places[last]
            if kept and begin < kept[-1][1]:
                self._count_bad(f"{kind} that overlap at character {first}")
            elif begin < end <= size:
                kept.append((begin, end))
            else:  # nothing is left of it: a mark that melted into its letter, newlines at the end
                self.counts.bad_spans += 1
        return kept

    def _count_bad(self, given: str) -> None:
        if self.reading.errors == "strict":
            needed = "pairs [begin, end) of characters inside the text, none over another, are needed"
            raise InputError(self.where(), given, needed, _LEAVE_OUT)
        self.counts.bad_spans += 1


def _is_words(value: Any) -> bool:
    """A string of words with spaces; a table's column of that name may hold their number instead."""
    return isinstance(value, str) and any(map(str.isalpha, value))


def _is_span(span: Any, size: int) -> bool:
    if not isinstance(span, list | tuple) or len(span) != 2:
        return False
    whole = all(isinstance(place, int) and not isinstance(place, bool) for place in span)
    return whole and 0 <= span[0] < span[1] <= size


def _tidy(text: str) -> str:
    return text.replace("\0", "").replace("\r\n", "\n")
