"""Rows of Python objects."""

import datasets
import pandas
import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table, stream
from clozeworks.data.tables.table import Table

ROWS = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


def test_lists_columns_frames_and_generators():
    for given in (
        ROWS,
        iter(ROWS),
        {"text": ["a", "b"], "label": ["x", "y"]},
        pandas.DataFrame(ROWS),
        Table("t", ROWS),
    ):
        assert read_table(given, ("text",), ("label",)).table.rows == ROWS
    frame = pandas.DataFrame(ROWS, index=[7, 8])
    assert read_table(frame, ("text",)).table.where(1) == "frame, row 2"


def test_a_frame_has_holes():
    frame = pandas.DataFrame({"text": ["a", "b", None], "label": [1, 0, 1]})
    with pytest.raises(InputError, match="frame, row 3: nothing in column 'text'"):
        read_table(frame, ("text",), ("label",))
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [1, None]})  # the column is of floats now
    with pytest.raises(InputError, match="frame, row 2: nothing in column 'label'"):
        read_table(frame, ("text",), ("label",))
    assert read_table(frame[:1], ("text",), ("label",)).table.rows == [{"text": "a", "label": "1"}]
    for kind in ("Int64", "string"):
        with pytest.raises(InputError, match="frame, row 2: nothing in column 'label'"):
            read_table(frame.astype({"label": kind}), ("text",), ("label",))


def test_a_dataset_tells_the_names_of_its_classes():
    names = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"sentence": datasets.Value("string"), "label": names})
    dataset = datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [1, 0]}, features)
    table = read_table(dataset, ("text",), ("label",))
    assert table.table.rows == [{"text": "a", "label": "good"}, {"text": "b", "label": "bad"}]
    assert table.columns == {"text": "sentence", "label": "label"}
    assert (
        read_table(dataset.with_format("numpy", columns=["label"]), ("text",), ("label",)).table.rows
        == table.table.rows
    )
    assert read_table(dataset.to_iterable_dataset(), ("text",), ("label",)).table.rows == table.table.rows
    hidden = datasets.Dataset.from_dict({"sentence": ["a"], "label": [-1]}, features)
    with pytest.raises(InputError, match="is this a part without labels"):
        read_table(hidden, ("text",), ("label",))
    with pytest.raises(InputError, match=r"give dataset\['train'\]"):
        read_table(datasets.DatasetDict({"train": dataset}), ("text",), ("label",))


def test_tags_of_a_dataset_are_names():
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
    dataset = datasets.Dataset.from_dict({"tokens": [["Ann", "is"]], "ner_tags": [[1, 0]]}, features)
    assert read_table(dataset, ("tokens",), ("tags",)).table.rows == [{"tokens": ["Ann", "is"], "tags": ["B-PER", "O"]}]


def test_answers_of_a_dataset():
    rows = {"id": ["q"], "question": ["?"], "context": ["a b"], "answers": [{"text": ["b"], "answer_start": [2]}]}
    table = read_table(datasets.Dataset.from_dict(rows), ("question", "context", "id"), ("answers",)).table
    assert table.rows[0]["answers"] == [{"text": "b", "start": 2}]


def test_rows_are_counted_over_the_tables_of_a_stream():
    tables = list(stream([{"text": str(n), "n": n} for n in range(5)], ("text",), rows=2))
    assert tables[1].where(1) == "rows, row 4"
    assert tables[2].given == [{"text": "4", "n": 4}]


@pytest.mark.parametrize("given", [3, b"a", {"text": "a"}, {"text": ["a"], "label": []}, {}])
def test_what_has_no_rows_is_refused(given):
    with pytest.raises(InputError):
        read_table(given, ("text",), ("label",))
