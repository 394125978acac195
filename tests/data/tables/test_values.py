"""Values in the forms that files give them."""

from pathlib import Path

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table, values

CHOICE = ("context", "question", "choices")


def test_several_labels_and_lists_in_cells(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text('text,label\nx,"[""a"", ""b""]"\ny,[]\nz,c\n')
    assert [row["label"] for row in read_table(file, ("text",), ("label",)).table.rows] == [["a", "b"], [], "c"]
    file.write_text("""tokens,tags\n"['EU', ""it's""]","['B', 'O']"\n[ x ],O O O\n"[""a""]",[3]\n""")
    rows = read_table(file, ("tokens",), ("tags",)).table.rows
    assert rows[0] == {"tokens": ["EU", "it's"], "tags": ["B", "O"]}
    assert rows[1] == {"tokens": ["[", "x", "]"], "tags": ["O", "O", "O"]}
    assert rows[2] == {"tokens": ["a"], "tags": ["3"]}
    file.write_text("""tokens,tags\n"['EU' 'is']","['B' 'O']"\n""")  # as arrays print
    with pytest.raises(InputError, match="a list is needed as JSON"):
        read_table(file, ("tokens",), ("tags",))


def test_an_ideographic_space_is_a_token():
    assert read_table([{"tokens": "中 \u3000 国"}], ("tokens",)).table.rows[0]["tokens"] == ["中", "\u3000", "国"]


def test_choices_and_answers_in_their_usual_forms():
    def answer(**row) -> tuple[list[str], int]:
        table = read_table([{"question": "q", **row}], CHOICE, ("answer",)).table.rows[0]
        assert table["context"] == ""
        return table["choices"], table["answer"]

    assert answer(choices=["x", "y"], label=1) == (["x", "y"], 1)
    assert answer(choices='["x", "y"]', label="1") == (["x", "y"], 1)
    assert answer(options=["x", "y", "z"], answer="C") == (["x", "y", "z"], 2)
    assert answer(options=["x", "y", "z"], answer="y") == (["x", "y", "z"], 1)
    assert answer(ending0="x", ending1="y", ending2="", label="0") == (["x", "y"], 0)
    assert answer(A="x", B="y", C="z", D="w", answer="D") == (["x", "y", "z", "w"], 3)
    assert answer(choices={"text": ["x", "y"], "label": ["1", "2"]}, answerKey="2") == (["x", "y"], 1)
    assert answer(choices=["7", "9"], answer="9") == (["7", "9"], 1)


def test_arrays_and_their_numbers_are_plain_values():
    assert values.label_of(np.int64(3), "", "") == "3"
    assert values.label_of(np.array(["a", "b"]), "", "") == ["a", "b"]
    assert values.words_of(np.array(["a", "b"]), "", "") == ["a", "b"]
    assert values.score_of(np.float32(0.5), "", "") == 0.5
    assert values.is_missing(float("nan"))
    with pytest.raises(InputError, match="nothing in column 'x'"):
        values.label_of(np.float32("nan"), "a, line 1", "x")


def test_numbers_stand_for_classes():
    names = ("O", "B-PER")
    assert values.words_of([1, 0], "", "", names) == ["B-PER", "O"]
    assert values.label_of(1, "", "", names) == "B-PER"
    assert values.label_of("1", "", "", names) == "1"
    for wrong in (-1, 2):
        with pytest.raises(InputError, match=f"class {wrong} in column 'x'; a number below 2 is needed"):
            values.label_of(wrong, "a, line 1", "x", names)
