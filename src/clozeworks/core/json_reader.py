"""The one reader of JSON that comes from anywhere: bounded in size and depth, and of the shape that is asked for."""

import json
import stat
from pathlib import Path
from typing import Any

LARGEST = 256 << 20  # bytes; the largest tokenizers are a tenth of it
DEEPEST = 100  # levels; recipes have ten


def parse_json(text: str | bytes, shape: type = object) -> Any:
    """The value of a text; whatever is wrong with it is a ValueError."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} levels of brackets") from None
    brackets = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    many = brackets > DEEPEST  # fewer are never as deep
    level: list[Any] = [value] if many and isinstance(value, (dict, list)) else []
    for _ in range(DEEPEST + 1):
        if not level:
            break
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
        level = [item for item in level if isinstance(item, (dict, list))]
    else:
        raise ValueError(f"more than {DEEPEST} levels of brackets")
    if not isinstance(value, shape):
        raise ValueError(f"{_NAMES.get(type(value), 'a single value')} where {_NAMES[shape]} is needed")
    return value


def read_json(file: Path, shape: type = object) -> Any:
    """The value in a file. A file that cannot be read is an OSError, anything else that is wrong a ValueError."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no regular file")
    if status.st_size > LARGEST:
        raise ValueError(f"{status.st_size:,} bytes, of which {LARGEST:,} are read at most")
    return parse_json(file.read_bytes(), shape)


_NAMES = {dict: "an object", list: "a list"}
