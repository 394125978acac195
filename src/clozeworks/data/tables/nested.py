"""Records in records: questions below a passage, each of which becomes one of its own, and columns in a column."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import parse_json
from clozeworks.data.records.source import Record, Source

_BELOW = ("qas", "questions")  # under either name
_NEEDED = "a list of objects or SQuAD's layout is needed"
_PARALLEL = {"questions": "question", "options": "options", "answers": "answer"}  # lists, and what one of each is


def read_json_document(text: str, name: str) -> Source | None:
    """Rows of a whole JSON file: a list of objects, or questions in the layout of SQuAD; None: it has several values,
    one a line."""
    try:
        document = parse_json(text)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            return None
        raise InputError(name, f"not JSON ({error})", _NEEDED, "mend or write it again") from None
    if isinstance(document, Mapping) and isinstance(document.get("data"), list):
        document = document["data"]
    elif isinstance(document, Mapping) and "\n" not in text.strip():
        return None  # one line of JSON lines
    if not isinstance(document, list):
        raise InputError(name, f"one {type(document).__name__}", _NEEDED, "put the rows into a list")
    nested = any(isinstance(item, Mapping) and "paragraphs" in item for item in document)
    return Source(name, enumerate(_paragraphs(document), 1), "passage" if nested else "row")


def _paragraphs(items: Iterable[Any]) -> Iterator[Any]:
    """The passages of SQuAD's articles; anything else as it is."""
    for item in items:
        if isinstance(item, Mapping) and isinstance(item.get("paragraphs"), list):
            for passage in item["paragraphs"]:
                yield {"title": item.get("title"), **passage} if isinstance(passage, Mapping) else passage
        else:
            yield item


def unfold(rows: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Each question below a passage as a row, with what the passage has beside it; other rows as they are.

    A question without an id of its own has that of its passage and its number. Questions, options and answers may also
    be lists of one length (RACE).
    """
    for number, row in rows:
        row = flatten(row)
        below = next((key for key in _BELOW if isinstance(row, Mapping) and _is_rows(row.get(key))), None)
        if below is not None:
            around, questions = {key: value for key, value in row.items() if key != below}, row[below]
        elif isinstance(row, Mapping) and (parallel := _parallel(row)):
            around, questions = {key: value for key, value in row.items() if key not in _PARALLEL}, parallel
        else:
            yield number, row
            continue
        for at, question in enumerate(questions):
            made: Record = {**around, **flatten(question)}
            if "id" not in question and "id" in around:
                made["id"] = f"{around['id']}-{at}"
            yield number, made


def flatten(row: Any) -> Any:
    """With what stands in a column of its own: the stem and the choices of a question (CommonsenseQA, ARC), a text in
    several languages (as the package `datasets` has translations)."""
    if not isinstance(row, Mapping):
        return row
    if isinstance(asked := row.get("question"), Mapping) and isinstance(asked.get("stem"), str):
        row = {**row, **asked, "question": asked["stem"]}
    if isinstance(texts := row.get("translation"), Mapping):
        row = {**row, **texts}
        del row["translation"]
    return row


def _parallel(row: Mapping[str, Any]) -> list[Record]:
    """The questions of a row that has lists of them, of their options and of their answers; none: it has not."""
    lists = {name: row[key] for key, name in _PARALLEL.items() if isinstance(row.get(key), list)}
    whole = "options" in lists and len({len(values) for values in lists.values()}) == 1
    if not whole or not all(isinstance(question, str) for question in lists.get("question", [None])):
        return []
    return [dict(zip(lists, cells, strict=True)) for cells in zip(*lists.values(), strict=True)]


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
