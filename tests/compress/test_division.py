"""Which examples steps read, are chosen by, and are reported on."""

from pathlib import Path

import numpy as np
import pytest

from clozeworks.compress.division import TakenText, divide
from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.inference.text_encoder import load
from tests.labelled import rows, write


def texts_of(table) -> set[str]:
    return {row["text"] for row in table.rows}


def test_a_text_is_in_one_part_and_stays_there(tuned: Path, tmp_path: Path):
    encoder, given = load(tuned), rows(400)
    file = write(tmp_path / "rows.jsonl", given)
    parts = divide(encoder, file, choosing=True)
    tables = [parts.learn.table, parts.choose.table, parts.report.table]
    assert sum(map(len, tables)) == 400  # texts that are there twice, too
    assert not texts_of(tables[0]) & (texts_of(tables[1]) | texts_of(tables[2]))
    assert not texts_of(tables[1]) & texts_of(tables[2])
    fewer = divide(encoder, write(tmp_path / "fewer.jsonl", given[::-1][:300]), choosing=True)
    assert texts_of(fewer.report.table) <= texts_of(tables[2])
    two = divide(encoder, file)
    assert len(two.choose) == 0
    assert texts_of(two.report.table) == texts_of(tables[1]) | texts_of(tables[2])


def test_texts_for_a_model_without_a_task(road: Path, tmp_path: Path):
    (tmp_path / "lines.txt").write_text("\n".join(f"the fox sees stone {n}" for n in range(100)))
    parts = divide(load(road / "run"), tmp_path / "lines.txt")
    assert len(parts.learn.texts) + len(parts.report.texts) == 100
    assert "100 texts" in parts.notes[0]


def test_documents_of_a_prepared_directory(road: Path):
    parts = divide(load(road / "run"), road / "data", choosing=True)
    heldout = Corpus.open(road / "data", "heldout")
    taken = [part.prepared for part in (parts.choose, parts.report)]
    assert sum(len(each.documents) - 1 for each in taken) == len(heldout.documents) - 1
    assert sum(int(each.sentences[-1]) for each in taken) == len(heldout)
    assert parts.learn.corpus.split == "train"
    whole = TakenText(heldout, range(len(heldout.documents) - 1))
    asked = whole.sentences[[3, 0]], whole.sentences[[5, 1]]
    assert np.array_equal(whole.take(*asked).tokens, heldout.take(*asked).tokens)


def test_too_few_are_refused_in_a_sentence(tuned: Path, road: Path, tmp_path: Path):
    one = write(tmp_path / "one.jsonl", rows(1))
    with pytest.raises(InputError, match=r"1 row; 2 parts of 10 are needed"):
        divide(load(tuned), one)
    (tmp_path / "one.txt").write_text("the fox\n")
    with pytest.raises(InputError, match="1 text; 3 parts"):
        divide(load(road / "run"), tmp_path / "one.txt", choosing=True)
    with pytest.raises(InputError, match="labelled rows show"):
        divide(load(tuned), road / "data")
