"""Records of .jsonl files: one JSON value a line."""

from collections.abc import Iterable, Iterator
from typing import Any

from clozeworks.core.json_reader import parse_json
from clozeworks.data.records.lines import Lines


def read_json_lines(texts: Iterable[tuple[int, str]], lines: Lines) -> Iterator[tuple[int, Any]]:
    """The value of each line, with its number; blank lines are passed over. `texts` are those of the `lines`."""
    for number, text in texts:
        if not text.strip():
            continue
        try:
            record = parse_json(text)
        except ValueError as error:  # also a number of too many digits
            whole = number == 1 and text.strip() in ("[", "{")
            todo = "name it .json" if whole and not lines.remedy else f"mend the line{lines.remedy}"
            lines.refuse(number, f"not JSON ({error})", "one JSON object a line is needed", todo)
            continue
        yield number, record
