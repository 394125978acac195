"""The one way to labelled rows: a file, standard input or Python objects as a table under the names that tasks know."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.data.records.source import Source
from clozeworks.data.records.wording import describe, pluralize
from clozeworks.data.tables import values
from clozeworks.data.tables.answers import answers_of
from clozeworks.data.tables.columns import columns_for, is_joined
from clozeworks.data.tables.entities import is_marked, marked, spread
from clozeworks.data.tables.files import read_file
from clozeworks.data.tables.nested import unfold
from clozeworks.data.tables.objects import read_object
from clozeworks.data.tables.table import PLACES, Row, Table
from clozeworks.data.tokens.cut import CUTS

EMPTY = 0.05  # share of the rows that may lack a text or a label, and are left out
ROWS = 256  # of a table that is streamed
TEXTS = ("text", "text_a", "text_b", "text_c")  # of which a model says something even where they are empty
_NOTES = (  # what is counted, what it is called, what is said of it
    ("moved", "answer", "did not begin where the file says: the place where it stands was taken"),
    ("nearest", "answer", "could be at several places: the nearest to what the file says was taken"),
    ("unasked", "question", "without a word"),
    ("inside", "entity", "did not end where a word does: the whole word was taken"),
    ("nested", "entity", "inside or across a longer one: a word has one tag, and they were left out"),
    ("twice", "id", "stood there before: figures by id may count one question twice"),
)


@dataclass(slots=True)
class Read:
    """A table, the column of the file that each of its columns is, and what a user should hear, in sentences."""

    table: Table
    columns: dict[str, str]
    notes: list[str]


def read_table(
    given: Any,
    columns: Sequence[str],
    truth: Sequence[str] = (),
    named: Mapping[str, str] | None = None,
    kind: str | None = None,
    maybe: Sequence[str] = (),
) -> Read:
    """All rows of a path (`-`: standard input), a list of dicts, a dict of columns, a frame, a dataset or a Table.

    `columns` and `truth` are what a task asks for: what a row must have to be answered, and to be learned from; none of
    the latter: it is not looked at. `maybe` are columns that there may be. `label|score` is whichever there is. `named`
    says which column is which where the usual names do not. `kind` is the ending that says the format, where that of
    the file does not.
    """
    source = _source(given, columns, kind, named)
    shape = _shape(source, columns, truth, named, maybe)
    table, empty = Table(source.name, [], [], source.unit), list[values.EmptyCellError]()
    for number, row in source.records:
        try:
            table.rows.append(shape.row(row, source.place(number), len(table) + len(empty)))
        except values.EmptyCellError as error:
            empty.append(error)
        else:
            table.lines.append(number)
    notes = _left_out(source.name, empty, len(table))
    if not table.rows:
        raise InputError(source.name, "no row in it", "at least one row is needed", "is it the right file?")
    return Read(table, shape.columns, notes + shape.notes(table))


def _left_out(name: str, empty: list[values.EmptyCellError], kept: int) -> list[str]:
    """What to say of rows without a text or a label; if they are many, something else is wrong."""
    if not empty:
        return []
    first, share = empty[0], len(empty) / (len(empty) + kept)
    if kept == 0 or (len(empty) == 1 and share > EMPTY):
        raise first
    if share > EMPTY:
        given = f"{first.given}, the first of {len(empty):,} rows ({share:.0%}) with an empty cell"
        raise InputError(first.where, given, f"{first.needed}, but for {EMPTY:.0%} of the rows", first.todo)
    rows = pluralize(len(empty), "row")
    return [f"{name}: {rows} with an empty cell left out, the first is {first.where}: {first.given}"]


def stream(
    given: Any,
    columns: Sequence[str],
    named: Mapping[str, str] | None = None,
    kind: str | None = None,
    rows: int = ROWS,
    cut: str | None = None,
) -> Iterator[Table]:
    """Tables of so many rows each, to be answered: a file of any size in bounded memory, but for a .json, which is one
    piece. `Table.given` has the rows as they stood there. An empty text is answered like any other: answers stand
    beside the rows. `cut` is how a text becomes tokens where those are asked for
    (`data.tokens.cut.CUTS`)."""
    source = _source(given, columns, kind, named)
    shape = _shape(source, columns, (), named)
    shape.cut, shape.answers = cut, True
    table, before = Table(source.name, [], [], source.unit), 0
    for number, row in source.records:
        table.rows.append(shape.row(row, source.place(number), before + len(table)))
        table.lines.append(number)
        table.given.append(dict(row) if isinstance(row, Mapping) else {"text" if cut else columns[0]: row})
        if len(table) == rows:
            yield table
            table, before = Table(source.name, [], [], source.unit), before + rows
    if table.rows:
        yield table


def _source(given: Any, columns: Sequence[str], kind: str | None, named: Mapping[str, str] | None) -> Source:
    parts = [part for column in (named or {}).values() for part in column.split(",")]
    is_path = isinstance(given, str | os.PathLike)
    source = read_file(given, columns, kind, parts) if is_path else read_object(given)
    source.records = unfold(source.records)
    return source


@dataclass(slots=True)
class _Shape:
    """How the rows of a source become rows of a task."""

    asked: tuple[str, ...]
    truth: bool
    columns: dict[str, str]
    classes: Mapping[str, Sequence[str]]
    counts: Counter[str]
    seen: set[str]
    cut: str | None = None
    answers: bool = False  # each row gets one, also where its text is empty

    def row(self, given: Any, where: str, number: int) -> Row:
        """A record as a row of the task; refused where it lacks something."""
        bare = isinstance(given, str)
        if isinstance(given, str) and len(self.asked) == 1:
            given = {self.columns[self.asked[0]]: given}
        if not isinstance(given, Mapping):
            needed = f"an object with {', '.join(self.columns.values())} is needed"
            raise InputError(where, describe(given), needed, "mend the row")
        made: Row = {}
        if "id" in self.columns or "id" in self.asked:
            own = values.plain(given.get(self.columns.get("id")))
            made["id"] = str(number if values.is_missing(own) else own)
            where = f"{where}, question {made['id']}" if "id" in self.columns else where
            if self.truth:
                self.counts["twice"] += made["id"] in self.seen
                self.seen.add(made["id"])
        for name, column in self.columns.items():
            if name not in ("id", "answers", "answer", "tokens", "tags"):
                made[name] = self._value(name, column, given, where)
        if "tokens" in self.columns:
            made |= self._tokens(given, where, bare)
        self._check(made, where)
        if "answers" in self.columns:
            made["answers"] = answers_of(given, self.columns["answers"], made["context"], where, self.counts)
        if "choices" in self.columns:
            made["choices"], called = made["choices"]
            if "answer" in self.columns:
                column = self.columns["answer"]
                made["answer"] = values.answer_of(given.get(column), where, column, made["choices"], called)
        return made

    def _value(self, name: str, column: str, given: Mapping[str, Any], where: str) -> Any:
        if name == "choices" and column not in given and "," in column:
            parts = [values.plain(given.get(part)) for part in column.split(",")]
            kept = [part for part in parts if not values.is_missing(part) and part != ""]
            return values.choices_of(kept, where, column)
        if name == "label" and column not in given and "," in column:
            parts = column.split(",")
            return [part for part in parts if values.is_one(given.get(part), where, part)]
        value = given.get(column)
        if name == "scores":
            return values.scores_of(value, where, column)
        if name == "label":
            self.counts["fractions"] += isinstance(value, float) and not value.is_integer()
            return values.label_of(value, where, column, self.classes.get(column))
        if name in ("score", "choices"):
            return (values.score_of if name == "score" else values.choices_of)(value, where, column)
        if name == "question" and isinstance(value, str) and not value.strip():
            self.counts["unasked"] += "choices" not in self.asked
            return value  # published sets have some, and are compared by all of their rows
        empty = "choices" in self.asked or (self.answers and name in TEXTS and column in given)
        return values.text_of(value, where, column, empty)

    def _tokens(self, given: Mapping[str, Any], where: str, bare: bool) -> Row:
        """Tokens and tags: lists, strings with spaces, or a text with its tags or entities by characters."""
        column, tagged = self.columns["tokens"], self.columns.get("tags")
        text = given.get(column)
        if tagged is not None and isinstance(text, str) and is_marked(given.get(tagged)):
            return marked(values.text_of(text, where, column), given[tagged], where, self.counts)
        tokens = values.words_of(text, where, column, self.classes.get(column))
        if tagged is not None:
            tags = values.words_of(given.get(tagged), where, tagged, self.classes.get(tagged))
            by_characters = spread(text, tags) if isinstance(text, str) and len(tags) != len(tokens) else None
            return by_characters or {"tokens": tokens, "tags": tags}
        if self.cut is None or not isinstance(text, str) or values.is_listed(text):
            return {"tokens": tokens}
        places = CUTS[self.cut if bare or not is_joined(column) else "spaces"](text)
        return {"tokens": [text[begin:end] for begin, end in places], "text": text, PLACES: places}

    def _check(self, row: Row, where: str) -> None:
        if "choices" in self.asked:
            row.setdefault("context", "")
            row.setdefault("question", "")
            if not (row["context"].strip() or row["question"].strip()):
                raise InputError(where, "neither a context nor a question", "one of them is needed", "remove the row")
        if "tags" in row and len(row["tags"]) != len(row["tokens"]):
            given = f"{pluralize(len(row['tags']), 'tag')} for {pluralize(len(row['tokens']), 'token')}"
            raise InputError(where, given, "one tag a token is needed", "mend or remove the row")

    def notes(self, table: Table) -> list[str]:
        counts = self.counts
        notes = [f"{table.name}: {pluralize(counts[key], what)} {how}" for key, what, how in _NOTES if counts[key]]
        if self.counts["fractions"]:
            score = f"is it a score? (columns score={self.columns['label']})"
            notes.append(f"{table.name}: labels such as {table.rows[0]['label']}: {score}")
        return notes


def _shape(
    source: Source,
    columns: Sequence[str],
    truth: Sequence[str],
    named: Mapping[str, str] | None,
    maybe: Sequence[str] = (),
) -> _Shape:
    names = source.columns()
    optional = {*maybe, "id", *(("context", "question") if "choices" in columns else ())}
    if not names and len(columns) == 1 and not truth:
        chosen = {columns[0]: columns[0]}  # bare texts
    else:
        own = ("id",) if "question" in columns and "id" not in columns else ()
        chosen = columns_for(names, (*columns, *truth, *maybe, *own), named, source.name, optional)
    return _Shape(tuple(columns), bool(truth), chosen, source.classes, Counter(), set())
