"""Questions below passages."""

import json
from pathlib import Path

import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table, stream

QUESTION = ("question", "context", "id")
PASSAGE = {
    "context": "Paris is in France.",
    "qas": [
        {"id": "a", "question": "Where?", "answers": [{"text": "France", "answer_start": 12}], "is_impossible": False},
        {
            "id": "b",
            "question": "When?",
            "answers": [],
            "is_impossible": True,
            "plausible_answers": [{"text": "Paris"}],
        },
    ],
}


def written(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_the_layout_of_squad(tmp_path: Path):
    file = written(tmp_path / "a.json", {"version": "v2.0", "data": [{"title": "t", "paragraphs": [PASSAGE, PASSAGE]}]})
    table = read_table(file, QUESTION, ("answers",)).table
    assert table.rows[0] == {
        "id": "a", "question": "Where?", "context": "Paris is in France.", "answers": [{"text": "France", "start": 12}]
    }  # fmt: skip
    assert table.rows[1]["answers"] == []
    assert table.where(2) == f"{file}, passage 2"
    [streamed] = stream(file, QUESTION)
    assert streamed.given[0]["title"] == "t"


def test_a_list_of_objects_and_json_lines_under_another_name(tmp_path: Path):
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 0}]
    expected = [{"text": "a", "label": "1"}, {"text": "b", "label": "0"}]
    assert read_table(written(tmp_path / "a.json", rows), ("text",), ("label",)).table.rows == expected
    assert read_table(written(tmp_path / "a.json", {"data": rows}), ("text",), ("label",)).table.rows == expected
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, rows)))
    table = read_table(tmp_path / "a.json", ("text",), ("label",)).table
    assert table.rows == expected
    assert table.where(1).endswith("line 2")
    assert read_table(written(tmp_path / "a.json", rows[0]), ("text",), ("label",)).table.rows == expected[:1]


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("3", "one int"), ('{\n"a": 1}', "one dict")])
def test_another_layout_is_refused(tmp_path: Path, text: str, message: str):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "a.json", ("text",))


def test_wrong_passages_are_refused_and_no_traceback(tmp_path: Path):
    for broken in (
        {"paragraphs": [3]},
        {"paragraphs": [{"context": "c", "qas": [3]}]},
        {"paragraphs": [{"qas": [{}]}]},
    ):
        with pytest.raises(InputError):
            read_table(written(tmp_path / "a.json", {"data": [broken]}), QUESTION, ("answers",))


def test_lists_of_questions_options_and_answers():
    lists = {"questions": ["What?", "Who?"], "options": [["a", "b"], ["c", "d"]], "answers": ["B", "A"]}
    row = {"article": "It was red.", "id": "x", **lists}
    rows = read_table([row], ("context", "question", "choices", "id"), ("answer",)).table.rows
    assert [(each["id"], each["question"], each["choices"], each["answer"]) for each in rows] == [
        ("x-0", "What?", ["a", "b"], 1),
        ("x-1", "Who?", ["c", "d"], 0),
    ]


def test_a_question_with_its_choices_in_one_column():
    choices = [{"label": "1", "text": "a"}, {"label": "2", "text": "b"}]
    row = {"id": "x", "answerKey": "2", "question": {"stem": "Where?", "choices": choices}}
    made = read_table([row], ("context", "question", "choices"), ("answer",)).table.rows[0]
    assert (made["question"], made["choices"], made["answer"]) == ("Where?", ["a", "b"], 1)


def test_texts_in_several_languages():
    rows = [{"translation": {"en": "red", "de": "rot"}}]
    table = read_table(rows, ("source",), ("target",), {"source": "en", "target": "de"}).table.rows
    assert table == [{"source": "red", "target": "rot"}]
