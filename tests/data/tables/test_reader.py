"""Rows of every task, from files to tables."""

import io
import json
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table, stream
from tests.conftest import SHARED

QUESTION = ("question", "context", "id")
CHOICE = ("context", "question", "choices")
TAGS, CLASS, PAIR = ("tokens",), ("text",), ("text_a", "text_b")


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def refusal(given, columns, truth=(), **more) -> str:
    with pytest.raises(InputError) as caught:
        read_table(given, columns, truth, **more)
    return str(caught.value)


def test_rows_have_the_names_that_tasks_know_and_the_lines_of_the_file(tmp_path: Path):
    file = lines(tmp_path / "a.jsonl", {"review": "好", "stars": 5}, {"stars": 1.0, "review": " bad "})
    file.write_text("\ufeff" + file.read_text("utf-8").replace("}\n{", "}\n\n{"), encoding="utf-8")
    table = read_table(file, ("text",), ("label",), {"label": "stars"})
    assert table.table.rows == [{"text": "好", "label": "5"}, {"text": " bad ", "label": "1"}]
    assert table.columns == {"text": "review", "label": "stars"}
    assert table.table.where(1) == f"{file}, line 3"
    assert table.notes == []


def test_what_is_not_asked_for_is_not_looked_at(tmp_path: Path):
    file = lines(tmp_path / "a.jsonl", {"text": "a", "label": None}, {"text": "b"})
    assert read_table(file, ("text",)).table.rows == [{"text": "a"}, {"text": "b"}]
    assert refusal(file, ("text",), ("label",)) == (
        f"{file}, line 1: nothing in column 'label'; a label is needed; fill it in or remove the row"
    )


def test_label_or_score_is_whichever_there_is():
    pair = {"sentence1": "a", "sentence2": "b"}
    either = ("label|score",)
    assert read_table([{**pair, "label": 1}], ("text_a", "text_b"), either).table.rows[0]["label"] == "1"
    assert read_table([{**pair, "similarity": "4.5"}], ("text_a", "text_b"), either).table.rows[0]["score"] == 4.5
    labelled = [{**pair, "label": 3.8}]
    assert read_table(labelled, ("text_a", "text_b"), either, {"score": "label"}).table.rows[0]["score"] == 3.8
    [note] = read_table(labelled, ("text_a", "text_b"), either).notes
    assert note == "rows: labels such as 3.8: is it a score? (columns score=label)"


@pytest.mark.parametrize(
    ("row", "columns", "truth", "message"),
    [
        ({"text": " \n"}, ("text",), (), "an empty text in column 'text'"),
        ({"text": float("nan")}, ("text",), (), "nothing in column 'text'"),
        ({"text": 5}, ("text",), (), "column 'text' holds an int"),
        ({"text": "a\ud800"}, ("text",), (), "half a surrogate pair"),
        ({"text": "a", "label": " "}, ("text",), ("label",), "nothing in column 'label'"),
        ({"text": "a", "label": {}}, ("text",), ("label",), "column 'label' holds a dict"),
        ({"text_a": "a", "text_b": "b", "score": "high"}, PAIR, ("score",), "'high' in column 'score'"),
        ({"text_a": "a", "text_b": "b", "score": "nan"}, PAIR, ("score",), "a number is needed"),
        ({"text_a": "a", "text_b": "b", "score": True}, PAIR, ("score",), "a number is needed"),
        ({"text_a": "a", "text_b": "", "label": 1}, PAIR, ("label",), "an empty text in column 'text_b'"),
        ({"tokens": "a b", "tags": "O"}, ("tokens",), ("tags",), "1 tag for 2 tokens"),
        ({"tokens": [], "tags": []}, ("tokens",), ("tags",), "an empty list in column 'tokens'"),
        ({"tokens": ["a", ""], "tags": "O O"}, ("tokens",), ("tags",), "an empty string at 2 in column 'tokens'"),
        ({"tokens": ["a"], "tags": [None]}, ("tokens",), ("tags",), "nothing at 1 in column 'tags'"),
        ({"question": "q", "context": "c", "choices": ["a"]}, CHOICE, (), "1 choice; two at least"),
        ({"question": "q", "context": "c", "choices": ["a", " "]}, CHOICE, (), "an empty text in column 'choices'"),
        ({"question": "", "context": "", "choices": ["a", "b"]}, CHOICE, (), "neither a context nor a question"),
        ({"question": "q", "choices": ["a", "b"], "answer": 2}, CHOICE, ("answer",), "are they counted from 1?"),
        ({"question": "q", "choices": ["a", "b"], "answer": -1}, CHOICE, ("answer",), "answer '-1' among 2 choices"),
        ({"question": "q", "context": "", "id": "x", "answers": []}, QUESTION, ("answers",), "question x: an empty"),
        ({"question": "q", "context": "c", "id": "x", "answers": ["d"]}, QUESTION, ("answers",), "question x: the"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_read_are_refused_with_their_line(tmp_path: Path, row, columns, truth, message):
    good = {
        "text": "a", "label": "x", "text_a": "a", "text_b": "b", "score": 1, "tokens": "a", "tags": "O", "id": "0",
        "question": "q", "context": "c", "choices": ["a", "b"], "answer": 0, "answers": [],
    }  # fmt: skip
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(good) + "\n" + json.dumps(row) + "\n")
    error = refusal(file, columns, truth)
    assert error.startswith(f"{file}, line 2")
    assert message in error


def test_questions_below_a_passage_are_rows(tmp_path: Path):
    below = [{"question": "q", "choices": ["a", "b"], "label": 0}, {"question": "r", "choices": ["c", "d"], "label": 1}]
    file = lines(
        tmp_path / "a.jsonl", {"id": "m1", "context": "x", "qas": below}, {"id": "m2", "context": "y", "qas": []}
    )
    table = read_table(file, (*CHOICE, "id"), ("answer",)).table
    assert [row["id"] for row in table.rows] == ["m1-0", "m1-1"]
    assert {row["context"] for row in table.rows} == {"x"}
    assert table.where(1) == f"{file}, line 1"


def test_bare_texts_are_rows_where_one_column_is_asked_for(tmp_path: Path):
    assert read_table(["a", "b"], ("text",)).table.rows == [{"text": "a"}, {"text": "b"}]
    assert "a str; an object with text_a, text_b" in refusal(
        [{"text_a": "a", "text_b": "b"}, "c"], ("text_a", "text_b")
    )
    (tmp_path / "a.txt").write_text("one\n\ntwo\r\n")
    assert [row["text"] for row in read_table(tmp_path / "a.txt", ("text",)).table.rows] == ["one", "two"]
    assert "plain text; rows with columns text_a, text_b" in refusal(tmp_path / "a.txt", ("text_a", "text_b"))
    assert "no column for text" in refusal(tmp_path / "a.txt", ("text",), ("label",))


def test_an_empty_file_is_refused(tmp_path: Path):
    for name, text in (
        ("a.jsonl", "\n"),
        ("a.csv", ""),
        ("b.csv", "text,label\n"),
        ("a.json", "[]"),
        ("a.conll", "\n\n"),
    ):
        (tmp_path / name).write_text(text)
        assert "no row in it" in refusal(tmp_path / name, ("tokens",) if "conll" in name else ("text",), ())


def test_ids_that_stand_twice_are_counted():
    row = {"id": 1, "question": "q", "context": "c", "answers": []}
    table = read_table([row, row, {**row, "id": 2}], QUESTION, ("answers",))
    assert table.notes == ["rows: 1 id stood there before: figures by id may count one question twice"]
    assert [row["id"] for row in read_table([{"question": "q", "context": "c"}] * 2, QUESTION).table.rows] == ["0", "1"]
    assert read_table([row], QUESTION[:2]).table.rows == [
        {"question": "q", "context": "c", "id": "1"}
    ]  # asked for or not
    assert read_table([{"question": "q", "context": "c"}], QUESTION[:2]).table.rows == [
        {"question": "q", "context": "c"}
    ]


def test_a_stream_gives_every_row_once_in_order(tmp_path: Path):
    file = lines(tmp_path / "a.jsonl", *({"review": f"text {n}", "more": n} for n in range(10)))
    tables = list(stream(file, ("text",), rows=4))
    assert [len(table) for table in tables] == [4, 4, 2]
    assert [row for table in tables for row in table.rows] == read_table(file, ("text",)).table.rows
    assert tables[1].given[0] == {"review": "text 4", "more": 4}
    assert tables[1].where(1) == f"{file}, line 6"
    assert tables[1].some([1]).given == [{"review": "text 5", "more": 5}]
    (tmp_path / "a.csv").write_text("review,more\n" + "".join(f"text {n},{n}\n" for n in range(10)))
    assert [row for table in stream(tmp_path / "a.csv", ("text",), rows=3) for row in table.rows] == [
        row for table in tables for row in table.rows
    ]


def test_a_stream_stops_at_the_row_that_is_wrong(tmp_path: Path):
    file = lines(tmp_path / "a.jsonl", {"text": "a"}, {"text": "b"}, {"text": 3})
    tables = stream(file, ("text",), rows=2)
    assert len(next(tables)) == 2
    with pytest.raises(InputError, match="line 3"):
        next(tables)


def test_a_few_empty_cells_are_left_out_and_counted(tmp_path: Path):
    """A text or a label; the lines of the others are theirs."""
    given = [{"text": f"text {n}", "label": "x"} for n in range(60)]
    given[3]["text"], given[7]["label"], given[9]["text"] = " ", None, None
    reading = read_table(lines(tmp_path / "a.jsonl", *given), ("text",), ("label",))
    assert len(reading.table) == 57
    assert reading.table.where(3).endswith("line 5")
    [note] = reading.notes
    assert "3 rows with an empty cell left out, the first is " in note
    assert note.endswith("line 4: an empty text in column 'text'")
    given[11]["label"] = ""
    error = refusal(lines(tmp_path / "a.jsonl", *given), ("text",), ("label",))
    assert "line 4: an empty text in column 'text', the first of 4 rows (7%) with an empty cell" in error
    assert "but for 5% of the rows" in error
    all_empty = lines(tmp_path / "a.jsonl", *({"text": "a", "label": ""} for _ in range(3)))
    assert "line 1: nothing in column 'label'; a label is needed" in refusal(all_empty, ("text",), ("label",))


def test_what_is_to_be_answered_keeps_its_rows(tmp_path: Path):
    file = lines(tmp_path / "a.jsonl", {"text": "a"}, {"text": ""}, {"text": None}, {"text": "b"})
    assert [row["text"] for table in stream(file, ("text",)) for row in table.rows] == ["a", "", "", "b"]


def test_standard_input_is_json_lines(monkeypatch: pytest.MonkeyPatch):
    def given(text: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))

    given('{"text": "好"}\n"bare"\n'.encode())
    [table] = stream("-", ("text",))
    assert table.rows == [{"text": "好"}, {"text": "bare"}]
    assert table.where(1) == "standard input, line 2"
    given(b"one line\nmore\n")
    assert [row["text"] for table in stream("-", ("text",), kind=".txt") for row in table.rows] == ["one line", "more"]
    given(b"")
    assert list(stream("-", ("text",))) == []
    given(b"no json\n")
    with pytest.raises(InputError, match="standard input, line 1: not JSON"):
        list(stream("-", ("text",)))
    given("是".encode("gb18030"))
    with pytest.raises(InputError, match="iconv"):
        list(stream("-", ("text",)))


VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["[", "[1]", "{}", "['a' ]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "start", "label", "a"]), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = ("text", "label", "score", "tokens", "tags", "question", "context", "answers", "choices", "answer", "id", "qas",
        "text_a", "text_b", "is_impossible")  # fmt: skip


@given(
    st.lists(st.dictionaries(st.sampled_from(KEYS), VALUE) | VALUE, max_size=3),
    st.sampled_from(
        [(CLASS, "label"), (PAIR, "label|score"), (TAGS, "tags"), (QUESTION, "answers"), (CHOICE, "answer")]
    ),
)
def test_any_row_is_read_or_refused(rows, task):
    columns, truth = task
    for wanted in ((truth,), ()):
        try:
            table = read_table(rows, columns, wanted).table
        except InputError:
            continue
        assert all(set(columns) <= set(row) for row in table.rows)


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv"])
def test_a_stream_holds_some_rows_only(tmp_path: Path, ending: str):
    file, count, word = tmp_path / f"a{ending}", 3000, "word " * 200
    row = {".jsonl": json.dumps({"text": word, "n": 1}), ".csv": f'"{word}",1', ".tsv": f"{word}\t1"}[ending]
    header = {".jsonl": "", ".csv": "text,n\n", ".tsv": "text\tn\n"}[ending]
    file.write_text(header + f"{row}\n" * count)
    tracemalloc.start()
    assert sum(map(len, stream(file, ("text",), rows=64))) == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < file.stat().st_size / 4


@pytest.mark.parametrize(
    ("name", "columns", "truth", "count"),
    [
        ("sst2/dev.jsonl", CLASS, "label", 872),
        ("cola/dev.jsonl", CLASS, "label", 527),
        ("chnsenticorp/dev.jsonl", CLASS, "label", 1200),
        ("mrpc/dev.jsonl", PAIR, "label|score", 500),
        ("stsb_en/dev.jsonl", PAIR, "label|score", 1500),
        ("conll2003/dev.jsonl", TAGS, "tags", 3250),
        ("peopledaily_ner/dev.jsonl", TAGS, "tags", 3000),
        ("xquad_en/all.json", QUESTION, "answers", 1190),
        ("cmrc2018/trial.json", QUESTION, "answers", 997),
        ("mctest/dev.jsonl", CHOICE, "answer", 320),
        ("c3/dev.jsonl", CHOICE, "answer", 3816),
    ],
)
@pytest.mark.skipif(not SHARED.is_dir(), reason="no real rows beside the checkout")
def test_published_sets_are_read_as_they_are(name: str, columns, truth: str, count: int):
    table = read_table(SHARED / name, columns, (truth,))
    assert len(table.table) == count
    assert table.notes == ([f"{SHARED / name}: 2 questions without a word"] if "cmrc2018" in name else [])
    assert all(set(columns) <= set(row) and set(truth.split("|")) & set(row) for row in table.table.rows)


def test_a_table_without_a_header_has_numbered_columns(tmp_path: Path):
    (tmp_path / "a.tsv").write_text("gj04\t1\t\tThey walked.\ngj04\t0\t*\tThey walk ed.\n")
    table = read_table(tmp_path / "a.tsv", CLASS, ("label",), {"text": "4", "label": "2"}).table
    assert table.rows == [{"text": "They walked.", "label": "1"}, {"text": "They walk ed.", "label": "0"}]
    assert table.where(0).endswith("line 1")
    assert "no column '5'; the columns are 1, 2, 3, 4" in refusal(
        tmp_path / "a.tsv", CLASS, ("label",), named={"text": "5", "label": "2"}
    )
    (tmp_path / "b.csv").write_text("2,1\nyes,fine\n")
    named = {"text": "1", "label": "2"}
    assert read_table(tmp_path / "b.csv", CLASS, ("label",), named).table.rows == [{"text": "fine", "label": "yes"}]
    (tmp_path / "c.csv").write_text("3,fine\n")
    assert "then count them (columns text=1)" in refusal(tmp_path / "c.csv", CLASS, ("label",))


def test_a_column_for_each_label():
    values = [(1, 0.0), (False, "true"), (0, 0)]
    rows = [{"text": "a", "rude": rude, "loud": loud} for rude, loud in values]
    table = read_table(rows, CLASS, ("label",), {"label": "rude,loud"}).table.rows
    assert [row["label"] for row in table] == [["rude"], ["loud"], []]
    assert refusal([{"text": "a", "rude": 2, "loud": 0}], CLASS, ("label",), named={"label": "rude,loud"}) == (
        "rows, row 1: 2 in column 'rude'; 0 or 1 is needed; mend the row, or name another column"
    )


def test_labels_of_choices_are_one_a_choice():
    def read(choices: object, answer: str = "B") -> list[dict[str, object]]:
        row = {"context": "c", "question": "q", "choices": choices, "answer": answer}
        return read_table([row], CHOICE, ("answer",)).table.rows

    assert read({"text": ["x", "y"], "label": ["A", "B"]})[0]["answer"] == 1
    assert read({"text": ["x", "y"], "label": None})[0]["answer"] == 1
    assert read([{"text": "x", "label": "B"}, {"text": "y", "label": "A"}])[0]["answer"] == 0
    for wrong in ({"text": ["x", "y"], "label": ["A", "B", "C"]}, [{"text": "x"}, {"text": "y", "label": "B"}]):
        with pytest.raises(InputError, match=r"labels? for 2 choices in column 'choices'; one label"):
            read(wrong)
    with pytest.raises(InputError, match=r"choices\.label"):
        read({"text": ["x", "y"], "label": 3})
