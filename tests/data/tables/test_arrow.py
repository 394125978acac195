"""Rows of parquet and arrow files."""

from pathlib import Path

import datasets
import pandas
import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table, stream


@pytest.fixture
def dataset() -> datasets.Dataset:
    label = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": label, "tokens": [datasets.Value("string")], "ner_tags": [label]}
    )
    rows = {"text": ["a", "b"], "label": [1, 0], "tokens": [["x", "y"]] * 2, "ner_tags": [[1, 0]] * 2}
    return datasets.Dataset.from_dict(rows, features)


def test_what_datasets_writes_has_its_names(dataset: datasets.Dataset, tmp_path: Path):
    file = tmp_path / "a.parquet"
    dataset.to_parquet(file)
    table = read_table(file, ("text",), ("label",)).table
    assert table.rows == [{"text": "a", "label": "good"}, {"text": "b", "label": "bad"}]
    assert table.where(1) == f"{file}, row 2"
    assert read_table(file, ("tokens",), ("tags",)).table.rows[0] == {"tokens": ["x", "y"], "tags": ["good", "bad"]}
    dataset.save_to_disk(tmp_path / "saved")
    [stored] = (tmp_path / "saved").glob("*.arrow")
    assert read_table(stored, ("text",), ("label",)).table.rows == table.rows
    assert [len(part) for part in stream(file, ("text",), rows=1)] == [1, 1]


def test_what_others_write(tmp_path: Path):
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [1, 0]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_feather(tmp_path / "a.feather")
    for name in ("a.parquet", "a.feather"):
        assert read_table(tmp_path / name, ("text",), ("label",)).table.rows[0] == {"text": "a", "label": "1"}


def test_damaged_files(tmp_path: Path):
    for name in ("a.parquet", "a.arrow"):
        (tmp_path / name).write_bytes(b"PAR1 and no more")
        with pytest.raises(InputError, match=f"not {name[2:]}"):
            read_table(tmp_path / name, ("text",))
