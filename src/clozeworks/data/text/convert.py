"""Records, whatever they come from, into documents.

A record brings one text; or, where that field is absent, its `sentences` or its `words`; or, with `pairs`, two sides.
Beside a text it may bring its `words`, and `phrases` and `entities`: lists of [begin, end) in characters.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

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
Place = Callable[[], str]  # tells where a record stands; asked only for a message

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_BREAK = re.compile(r"\s*[\r\n]+\s*")


class UnreadableError(Exception):
    """Text that `--errors skip` leaves out."""


def convert_records(source: Source, reading: Reading, counts: Counts) -> Iterator[Document]:
    """The documents of records. With `skip` a record of the wrong shape is left out, once one of the right shape was
    seen: a misspelt field must not make an empty corpus.
    """
    good = False
    for number, record in source.records:
        where = partial(source.place, number)
        try:
            document = convert_record(record, source.name, where, reading, counts)
        except UnreadableError:
            counts.skipped += 1
            continue
        except InputError:
            if reading.errors != "skip" or not good:
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


def convert_record(
    record: Mapping[str, Any] | Document, source: str, where: Place, reading: Reading, counts: Counts
) -> Document | None:
    """The document of a record; None when it is blank."""
    if isinstance(record, Document):
        return _given(record, where, reading, counts)
    if not isinstance(record, Mapping):
        given = describe(record)
        raise InputError(where(), given, f"an object with a field {reading.field!r} is needed", 'write {"text": "..."}')
    name = reading.field
    if reading.pairs is not None or name not in record:
        name = select_fields(list(map(str, record)), where(), reading)[0]
    if reading.pairs is not None:
        return _pair(record, source, where, reading, counts)
    value = record[name]
    if value is None:
        return None
    if name == "words" or (name == "sentences" and not (isinstance(value, str) and name == reading.field)):
        return _segmented(value, name, source, where, reading, counts)
    spans = {kind: record[kind] for kind in SPANS if kind in record and kind != name}
    document = _text(_string(record, name, where), spans, Document(source=source), where, reading, counts)
    words = record.get("words")
    if document is None or not words or not (isinstance(words, list | tuple) or _is_words(words)):
        return document
    return _with_words(document, words, where, reading, counts)


def _is_words(value: Any) -> bool:
    """A string of words with spaces; a table's column of that name may hold their number instead."""
    return isinstance(value, str) and any(map(str.isalpha, value))


def _with_words(document: Document, value: Any, where: Place, reading: Reading, counts: Counts) -> Document:
    """The document with the words of its sentences; without them where they are not those of its text."""

    def tidy(word: str) -> str:
        return normalise(clean(word, where, reading, Counts()), reading.unicode).strip()

    try:
        flat = [word for words in in_sentences(value, "words", where, tidy) for word in words]
        found = words_of(document.text, flat)
        if found is None:
            given = "field 'words' does not join to the text"
            needed = "the words of the whole text, in order, are needed"
            raise InputError(where(), given, needed, "mend them, or use --errors replace or skip to leave them out")
    except (InputError, UnreadableError):
        if reading.errors == "strict":
            raise
        counts.bad_words += 1
        return document
    words, cut = found
    counts.cut_words += cut
    return replace(document, text=document.text.rstrip("\n"), words=words)


def _text(
    text: str, spans: Mapping[str, Any], model: Document, where: Place, reading: Reading, counts: Counts
) -> Document | None:
    """`model` with this text and its spans; None when the text is blank."""
    tidy = clean(text, where, reading, counts)
    if not tidy.strip():
        return None
    normal = normalise(tidy, reading.unicode)
    counts.normalised += normal != tidy
    size = len(normal.rstrip("\n"))
    kept = {kind: _spans(given, kind, text, size, where, reading, counts) for kind, given in spans.items()}
    return replace(model, text=normal, **kept)


def _given(document: Document, where: Place, reading: Reading, counts: Counts) -> Document | None:
    """A Document that was handed in: its sentences and words stay as they are but for the Unicode form."""
    if document.words is None and document.sentences is None:
        spans = {"phrases": document.phrases, "entities": document.entities}
        return _text(document.text, spans, document, where, reading, counts)
    if not (document.words or document.sentences):
        return None
    form = reading.unicode
    if form == "none":
        return document
    words, sentences = document.words, document.sentences
    normal = replace(
        document,
        text=normalise(document.text, form),
        words=None if words is None else [[normalise(word, form) for word in sentence] for sentence in words],
        sentences=None if sentences is None else [normalise(sentence, form) for sentence in sentences],
    )
    counts.normalised += normal != document
    return normal


def clean(text: str, where: Place, reading: Reading, counts: Counts) -> str:
    """Text without halves of surrogate pairs, NULs and the carriage returns of Windows lines."""
    try:
        text.encode()
    except UnicodeEncodeError:
        if reading.errors == "strict":
            given = "half a surrogate pair (\\ud800 to \\udfff) in a string"
            raise InputError(where(), given, "Unicode text is needed", "use --errors replace or skip") from None
        if reading.errors == "skip":
            raise UnreadableError from None
        text, found = _LONE_SURROGATE.subn("\ufffd", text)
        counts.replaced += found
    counts.nul += text.count("\0")
    return _tidy(text)


def _tidy(text: str) -> str:
    return text.replace("\0", "").replace("\r\n", "\n")


def _string(record: Mapping[str, Any], name: str, where: Place) -> str:
    value = record[name]
    if not isinstance(value, str):
        others = [str(other) for other, held in record.items() if isinstance(held, str) and other != name]
        todo = f"is {' or '.join(others[:5])} meant?" if others else "is another field meant?"
        if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
            todo = 'join paragraphs by newline, or call the field "sentences"'
        raise InputError(where(), f"field {name!r} holds {describe(value)}", "a string is needed", todo)
    return value


def _pair(record: Mapping[str, Any], source: str, where: Place, reading: Reading, counts: Counts) -> Document | None:
    sides: list[str] = []
    changed = False
    for name in reading.pairs or ():
        if record[name] is None:
            return None
        side = clean(_string(record, name, where), where, reading, counts)
        normal = normalise(side, reading.unicode)
        changed |= normal != side
        sides.append(_BREAK.sub(" ", normal.strip()))
    if not all(sides):
        return None
    longest = max(map(len, sides))
    if longest > LONGEST:
        needed = f"at most {LONGEST:,} are needed, for a side is never divided"
        raise InputError(where(), f"a side of {longest:,} characters", needed, "split it or leave it out")
    counts.normalised += changed
    return Document(source=source, sentences=sides)


def _segmented(value: Any, name: str, source: str, where: Place, reading: Reading, counts: Counts) -> Document | None:
    changed = False

    def tidy(piece: str) -> str:
        nonlocal changed
        if piece.isprintable() and reading.unicode == "none":  # nothing to clean
            return piece.strip()
        piece = clean(piece, where, reading, counts)
        normal = normalise(piece, reading.unicode)
        changed |= normal != piece
        return _BREAK.sub(" ", normal.strip())

    units = in_sentences(value, name, where, tidy)
    if not units:
        return None
    counts.normalised += changed
    if name == "words":
        return Document(source=source, words=units)
    return Document(source=source, sentences=["".join(unit) for unit in units])


def _spans(
    given: Any, kind: str, original: str, size: int, where: Place, reading: Reading, counts: Counts
) -> list[Span]:
    """The valid spans among those given, in order, moved along with what tidying did to the text, now `size` long."""
    if given is None:
        return []
    spans: list[Span] = []
    if not isinstance(given, list | tuple):
        _bad(f"{kind} that are {describe(given)}", where, reading, counts)
        return []
    for span in given:
        if _is_span(span, len(original)):
            spans.append((span[0], span[1]))
        else:
            _bad(f"{kind} with {str(span)[:60]} in a text of {len(original)} characters", where, reading, counts)
    if not spans:
        return []
    places = moved(
        original, [place for span in spans for place in span], lambda t: normalise(_tidy(t), reading.unicode)
    )
    kept: list[Span] = []
    for first, last in sorted(spans):
        begin, end = places[first], places[last]
        if kept and begin < kept[-1][1]:
            _bad(f"{kind} that overlap at character {first}", where, reading, counts)
        elif begin < end <= size:
            kept.append((begin, end))
        else:  # nothing is left of it: a mark that melted into its letter, newlines at the end
            counts.bad_spans += 1
    return kept


def _is_span(span: Any, size: int) -> bool:
    return (
        isinstance(span, list | tuple)
        and len(span) == 2
        and all(isinstance(place, int) and not isinstance(place, bool) for place in span)
        and 0 <= span[0] < span[1] <= size
    )


def _bad(given: str, where: Place, reading: Reading, counts: Counts) -> None:
    if reading.errors == "strict":
        needed = "pairs [begin, end) of characters inside the text, none over another, are needed"
        raise InputError(where(), given, needed, "mend them, or use --errors replace or skip to leave them out")
    counts.bad_spans += 1
