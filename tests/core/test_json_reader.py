"""JSON from anywhere: whatever is wrong with it is a ValueError, soon and without much memory."""

from pathlib import Path

import pytest

from clozeworks.core import json_reader
from clozeworks.core.json_reader import DEEPEST, parse_json, read_json


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [DEEPEST + 1, 5_000, 100_000])
def test_brackets_in_brackets_are_refused(opening: str, depth: int):
    closing = {"[": "]", '{"a":': "}"}[opening]
    text = opening * depth + "1" + closing * depth
    with pytest.raises(ValueError, match=f"more than {DEEPEST} levels"):
        parse_json(text)
    with pytest.raises(ValueError, match=r"levels|Expecting"):
        parse_json(opening * depth)


def test_what_is_deep_enough_is_read():
    text = "[" * DEEPEST + "]" * DEEPEST
    assert parse_json(text) == parse_json(text.encode())
    assert parse_json('{"a": [1, {"b": null}]}', dict) == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    ("text", "message"), [("[1]", "a list where an object"), ("1", "a single value where an object")]
)
def test_another_shape_is_refused(text: str, message: str):
    with pytest.raises(ValueError, match=message):
        parse_json(text, dict)


def test_files_have_a_size_and_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "a.json"
    file.write_text('{"a": 1}')
    assert read_json(file, dict) == {"a": 1}
    monkeypatch.setattr(json_reader, "LARGEST", 7)
    with pytest.raises(ValueError, match="8 bytes, of which 7 are read at most"):
        read_json(file)
    with pytest.raises(ValueError, match="no regular file"):
        read_json(Path("/dev/zero"))
    file.write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match=r"utf|decode|Expecting"):
        read_json(file)
