"""Values of single columns, as they stand in files, in the form that tasks know; what is none is refused."""

import ast
import io
import math
import re
import tokenize
from collections.abc import Mapping, Sequence
from typing import Any

from clozeworks.core.characters import HALF_A_PAIR, is_unicode
from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import parse_json
from clozeworks.data.records.wording import describe, pluralize

_LIST = re.compile(r"""\[(['"].*|\s*|[\d\s,-]+)\]""", re.DOTALL)  # of strings or of numbers, in a cell
_SPACES = re.compile("[ \t\r\n]+")  # an ideographic space may be a token


class EmptyCellError(InputError):
    """Nothing stands where a text or a label is needed: a row to leave out, if most others have something."""


def plain(value: Any) -> Any:
    """Arrays and their numbers as lists and numbers."""
    return value.tolist() if hasattr(value, "tolist") else value


def is_missing(value: Any) -> bool:
    """Nothing, by any of its names."""
    no_number = isinstance(value, float) and value != value
    return value is None or no_number or type(value).__name__ in ("NAType", "NaTType")


def is_blank(value: Any) -> bool:
    """Nothing, or a string of white space alone."""
    return is_missing(value) or (isinstance(value, str) and not value.strip())


def text_of(value: Any, where: str, name: str, empty: bool = False) -> str:
    """A string that is not blank, unless it may be `empty`."""
    if empty and is_missing(value):
        return ""
    if is_missing(value):
        raise _missing(where, name, "a text")
    if not isinstance(value, str):
        raise _of_type(value, where, name, "a string is needed", "write it in quotes, or name another column")
    if not empty and not value.strip():
        given = f"an empty text in column {name!r}"
        raise EmptyCellError(where, given, "a text is needed", "fill it in or remove the row")
    return _whole(value, where, name)


def _whole(value: str, where: str, name: str) -> str:
    if not is_unicode(value):
        given = f"{HALF_A_PAIR} in column {name!r}"
        raise InputError(where, given, "Unicode text is needed", "write the file again")
    return value


def _of_type(value: Any, where: str, name: str, needed: str, todo: str = "name another column") -> InputError:
    return InputError(where, f"column {name!r} holds {describe(value)}", needed, todo)


def _missing(where: str, name: str, what: str) -> InputError:
    return EmptyCellError(where, f"nothing in column {name!r}", f"{what} is needed", "fill it in or remove the row")


def label_of(value: Any, where: str, name: str, classes: Sequence[str] | None = None) -> str | list[str]:
    """A label, or a list of them."""
    value = _listed(plain(value), where, name)
    if isinstance(value, list | tuple):
        return [_label(each, where, name, classes) for each in value]
    return _label(value, where, name, classes)


def scores_of(value: Any, where: str, name: str) -> dict[str, float] | None:
    """How probable each label is, as `predict` writes it; None where the column holds something else."""
    if not isinstance(value, Mapping) or not value:
        return None
    scores = {str(label): plain(score) for label, score in value.items()}
    for label, score in scores.items():
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            given = f"score {score!r:.40} of label {label!r:.40} in column {name!r}"
            raise InputError(where, given, "a probability from 0 to 1 is needed", "mend the row, or rename the column")
    if not any(scores.values()):
        raise InputError(where, f"only zeros in column {name!r}", "one label is the most probable", "mend the row")
    return {label: float(score) for label, score in scores.items()}


def _label(value: Any, where: str, name: str, classes: Sequence[str] | None) -> str:
    if is_blank(value):
        raise _missing(where, name, "a label")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if classes is not None and isinstance(value, int):
        if not 0 <= value < len(classes):
            given, needed = f"class {value} in column {name!r}", f"a number below {len(classes)} is needed"
            raise InputError(where, given, needed, "is this a part without labels?" if value == -1 else "mend the row")
        return str(classes[value])
    if not isinstance(value, str | int | float):
        raise _of_type(value, where, name, "a label or a list of labels is needed")
    return _whole(str(value).strip(), where, name)


def score_of(value: Any, where: str, name: str) -> float:
    """A finite number, as such or as a string."""
    value = plain(value)
    if is_blank(value):
        raise _missing(where, name, "a number")
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        given = f"{value!r} in column {name!r}" if isinstance(value, str | int | float) else f"{describe(value)}"
        raise InputError(where, given, "a number is needed", "mend the row, or name another column")
    return score


def is_one(value: Any, where: str, name: str) -> bool:
    """Of a column that says whether a row has a label."""
    text = str(plain(value)).strip().lower()
    if text not in ("0", "1", "0.0", "1.0", "true", "false"):
        given = f"nothing in column {name!r}" if is_missing(value) else f"{value!r} in column {name!r}"
        raise InputError(where, given, "0 or 1 is needed", "mend the row, or name another column")
    return text in ("1", "1.0", "true")


def words_of(value: Any, where: str, name: str, classes: Sequence[str] | None = None) -> list[str]:
    """A list of strings: as such, as JSON in a cell, or joined by spaces. Numbers stand for `classes` where there are
    any."""
    value = _listed(plain(value), where, name)
    if is_missing(value):
        raise _missing(where, name, "a list of strings")
    if isinstance(value, str):
        value = [part for part in _SPACES.split(value) if part]
    if not isinstance(value, list | tuple):
        raise _of_type(value, where, name, "a list of strings, or one string with spaces, is needed")
    if not value:
        raise InputError(where, f"an empty list in column {name!r}", "a token is needed", "remove the row")
    words = []
    for at, each in enumerate(value, 1):
        if isinstance(each, list | tuple | dict) or is_missing(each) or each == "":
            what = "nothing" if is_missing(each) else "an empty string" if each == "" else describe(each)
            given = f"{what} at {at} in column {name!r}"
            raise InputError(where, given, "a list of strings is needed", "mend the row")
        words.append(_whole(each, where, name) if isinstance(each, str) else _label(each, where, name, classes))
    return words


def is_listed(value: str) -> bool:
    """Whether a cell of a table shows a list."""
    return _LIST.fullmatch(value) is not None


def _listed(value: Any, where: str, name: str) -> Any:
    """The list that a cell of a table shows, as JSON or as Python writes it; any other value as it is."""
    if not isinstance(value, str) or not is_listed(value):
        return value
    try:
        return parse_json(value)
    except ValueError:
        pass
    try:
        values = ast.literal_eval(value)
        kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(value).readline)]
        strings = kinds.count(tokenize.STRING)
        if isinstance(values, list) and strings in (0, len(values)):  # ['a' 'b'] would be one string
            return values
    except (ValueError, SyntaxError, tokenize.TokenError):
        pass
    given = f"{value[:40]!r} in column {name!r}"
    raise InputError(where, given, "a list is needed as JSON", 'write it as ["a", "b"], or join it by spaces')


def choices_of(value: Any, where: str, name: str) -> tuple[list[str], list[str]]:
    """The choices, and what they are called where the row says it."""
    value = _listed(plain(value), where, name)
    called: list[str] = []
    if isinstance(value, dict) and "text" in value:
        labels, value = plain(value.get("label")), plain(value["text"])
        if not is_missing(labels):
            called = words_of(labels, where, f"{name}.label")
    if isinstance(value, list | tuple) and all(isinstance(each, dict) and "text" in each for each in value):
        called, value = [str(each["label"]) for each in value if "label" in each], [each["text"] for each in value]
    if is_missing(value):
        raise _missing(where, name, "a list of choices")
    if not isinstance(value, list | tuple):
        raise _of_type(value, where, name, "a list of choices is needed", 'write it as ["...", "..."]')
    if len(value) < 2:
        given = pluralize(len(value), "choice")
        raise InputError(where, given, "two at least are needed to choose from", "mend or remove the row")
    if called and len(called) != len(value):
        given = f"{pluralize(len(called), 'label')} for {len(value)} choices in column {name!r}"
        raise InputError(where, given, "one label a choice is needed, or none", "mend the row")
    texts = [str(each) if isinstance(each, int | float) and not is_missing(each) else each for each in value]
    return [text_of(each, where, name) for each in texts], called


def answer_of(value: Any, where: str, name: str, choices: Sequence[str], called: Sequence[str] = ()) -> int:
    """Which choice it is: a number from 0, a letter, what the row calls it, or the choice itself."""
    value = plain(value)
    if is_blank(value):
        raise _missing(where, name, "the right choice")
    answer = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    if answer in called:
        return list(called).index(answer)
    if re.fullmatch(r"\d{1,9}", answer) and int(answer) < len(choices):
        return int(answer)
    if choices.count(answer) == 1:
        return list(choices).index(answer)
    if re.fullmatch("[A-Za-z]", answer) and ord(answer.upper()) - ord("A") < len(choices):
        return ord(answer.upper()) - ord("A")
    needed = f"a number from 0 to {len(choices) - 1}, a letter from A or one of the choices is needed"
    todo = "are they counted from 1?" if answer == str(len(choices)) else "mend the row"
    raise InputError(where, f"answer {answer[:40]!r} among {len(choices)} choices", needed, todo)
