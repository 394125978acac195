"""Answers that stand in a passage: where each begins, checked against the passage."""

import contextlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import parse_json
from clozeworks.data.records.wording import describe
from clozeworks.data.tables.table import Row
from clozeworks.data.tables.values import is_blank, plain

STARTS = ("answer_start", "start")
_WHOLE = re.compile(r"-?\d+(\.0*)?")


def answers_of(row: Mapping[str, Any], column: str, context: str, where: str, counts: Counter[str]) -> list[Row]:
    """[{"text", "start"}]; an empty list is a question that the passage does not answer.

    A list of answers, a dict of lists of texts and starts, or one text. One that is not where it should begin is looked
    for: `moved` counts those that stand elsewhere and once, `nearest` those that stand at several places.
    """
    given = _given(row, column, where)
    if _is_true(row.get("is_impossible")):
        if any(not is_blank(one.get("text")) for one in given):
            needed = "one of the two is needed"
            raise InputError(where, "an answer, and is_impossible is true", needed, "remove one of them")
        return []
    return [_placed(one, context, where, counts) for one in given]


def _given(row: Mapping[str, Any], column: str, where: str) -> list[Mapping[str, Any]]:
    value = plain(row.get(column))
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):  # an answer may begin so
            value = parse_json(value)
    if isinstance(value, str) and value.strip():
        return [{"text": value, "start": next((row[key] for key in STARTS if key in row), None)}]
    if isinstance(value, Mapping) and isinstance(texts := plain(value.get("text")), list | tuple):
        starts = plain(next((value[key] for key in STARTS if key in value), [None] * len(texts)))
        if not isinstance(starts, list | tuple) or len(starts) != len(texts):
            given = f"{len(texts)} answers and other starts"
            raise InputError(where, given, "one start each is needed", "mend the row")
        value = [{"text": text, "start": start} for text, start in zip(texts, starts, strict=True)]
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, list | tuple):
        answers = [{"text": one} if isinstance(one, str) else one for one in value]
        if all(isinstance(one, Mapping) and isinstance(one.get("text"), str) for one in answers):
            return answers
    if _is_true(row.get("is_impossible")):
        return []
    given = f"nothing in column {column!r}" if is_blank(value) else f"column {column!r} holds {describe(value)}"
    needed = "answers with text and start are needed"
    raise InputError(where, given, needed, 'write [{"text": "...", "start": 0}], and [] where there is none')


def _placed(one: Mapping[str, Any], context: str, where: str, counts: Counter[str]) -> Row:
    text = one["text"]
    start = plain(next((one[key] for key in STARTS if key in one), None))
    start = int(float(start)) if _WHOLE.fullmatch(str(start).strip()) else None  # frames make floats of them
    if not text.strip():
        raise InputError(where, "an empty answer", "a text of the passage is needed", "give [] where there is none")
    if start is not None and start >= 0 and context.startswith(text, start):
        return {"text": text, "start": start}
    places, at = [], context.find(text)
    while at >= 0:
        places.append(at)
        at = context.find(text, at + 1)
    if not places:
        given = f"the answer {text[:40]!r} is not in the passage"
        raise InputError(where, given, "its very characters are needed there", "mend or remove the question")
    counts["moved" if len(places) == 1 else "nearest"] += 1
    return {"text": text, "start": min(places, key=lambda place: abs(place - max(start or 0, 0)))}


def _is_true(value: Any) -> bool:
    return value is True or str(value).strip().lower() in ("true", "1")
