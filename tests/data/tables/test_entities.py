"""Entities by their characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table, stream
from clozeworks.data.tokens.cut import cut
from clozeworks.metrics.entities import entities

ANN = "Ann Li is in Rome."
TAGS = ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]


def rows_of(text: str, tags: object, name: str = "entities"):
    return read_table([{"text": text, name: tags}], ("tokens",), ("tags",))


@pytest.mark.parametrize(
    "tags",
    [
        [[0, 6, "PER"], [13, 17, "LOC"]],
        [["LOC", 13, 17], ["PER", 0, 6]],
        [{"start": 0, "end": 6, "label": "PER"}, {"start_offset": 13, "end_offset": 17, "labels": ["LOC"]}],
        [{"start": 0, "end": 6, "label": "PER", "text": "Ann Li"}, {"start": 13, "end": 17, "label": "LOC"}],
        [{"start_idx": 0, "end_idx": 5, "type": "PER", "entity": "Ann Li"}, {"begin": 12, "end": 17, "tag": "LOC"}],
        {"PER": {"Ann Li": [[0, 5]]}, "LOC": {"Rome": [[13, 16]]}},
        {"entities": [(0, 6, "PER"), (13, 17, "LOC")]},
    ],
)  # fmt: skip
def test_every_way_to_mark_them(tags: object):
    for name in ("entities", "spans", "label"):
        row = rows_of(ANN, tags, name).table.rows[0]
        assert row["tokens"] == ["Ann", "Li", "is", "in", "Rome", "."]
        assert row["tags"] == TAGS


def test_no_entity_and_one_that_ends_inside_a_word_and_one_in_another():
    assert rows_of(ANN, []).table.rows[0]["tags"] == ["O"] * 6
    result = rows_of("an Anglo-Saxon king", [[3, 8, "X"]])
    assert result.table.rows[0]["tags"] == ["O", "B-X", "O"]
    assert result.notes == ["rows: 1 entity did not end where a word does: the whole word was taken"]
    result = rows_of("Bank of China in Rome", [[8, 13, "LOC"], [0, 13, "ORG"], [17, 21, "LOC"]])
    assert result.table.rows[0]["tags"] == ["B-ORG", "I-ORG", "I-ORG", "O", "B-LOC"]
    assert "left out" in result.notes[0]


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([[0, 99, "PER"]], "the entity is not at 0 to 99; characters of the text, which has 18"),
        ([[3, 4, "PER"]], "is not at 3 to 4"),
        ([[-1, 2, "PER"]], "is not at -1 to 2"),
        ([{"start": 0, "end": 3, "label": "PER", "text": "Bob"}], "the entity 'Bob' is not at 0 to 3"),
        ([[0, "PER"]], "where an entity starts, where it ends and what it is are needed"),
        ([{"start": 0, "label": "PER"}], "where it ends"),
        ({"PER": [[0, 3]]}, "where it ends"),
        ({"PER": {"Ann": [0, 2]}}, "where it ends"),
        ({"PER": {"Ann": 0}}, "where it ends"),
    ],
)
def test_what_marks_nothing_is_refused(tags: object, message: str):
    with pytest.raises(InputError, match=r"rows, row 1: .*") as caught:
        rows_of(ANN, tags)
    assert message in str(caught.value)


@given(st.data())
def test_entities_of_whole_words_come_back(data: st.DataObject):
    text = data.draw(st.text(alphabet="ab .中(", min_size=1, max_size=30).filter(lambda text: text.strip()))
    places = cut(text)
    borders = data.draw(st.sets(st.integers(0, len(places)), max_size=6))
    marks = [(a, b) for a, b in zip(sorted(borders)[::2], sorted(borders)[1::2], strict=False)]
    row = rows_of(text, [[places[a][0], places[b - 1][1], "X"] for a, b in marks]).table.rows[0]
    assert [(one.start, one.end) for one in entities(row["tags"], "BIO")] == marks


def test_a_tag_for_each_character():
    for text, tags in (("李明在", "B-P I-P O"), ("李 明在", "B-P I-P O"), ("李 明在", ["B-P", "I-P", "I-P", "O"])):
        row = read_table([{"text": text, "tags": tags}], ("tokens",), ("tags",)).table.rows[0]
        assert row == {"tokens": ["李", "明", "在"], "tags": ["B-P", "I-P", "O"]}
    with pytest.raises(InputError, match="2 tags for 1 token"):
        read_table([{"text": "李明在", "tags": "O O"}], ("tokens",), ("tags",))


def test_a_text_to_be_answered_is_cut_as_asked_and_words_are_not():
    def tokens(row: object, how: str | None) -> list[str]:
        [table] = stream([row], ("tokens",), cut=how)
        return table.rows[0]["tokens"]

    assert tokens({"text": "李明 (Rome)"}, "words") == ["李", "明", "(", "Rome", ")"]
    assert tokens("李明 Rome", "characters") == list("李明Rome")
    assert tokens({"sentence": "李明 (Rome)"}, "spaces") == ["李明", "(Rome)"]
    assert tokens({"tokens": "李明 (Rome)"}, "words") == ["李明", "(Rome)"]
    assert tokens({"text": '["李明", "(Rome)"]'}, "words") == ["李明", "(Rome)"]
    assert tokens({"tokens": ["李明"]}, "words") == ["李明"]
    [table] = stream(["李明"], ("tokens",), cut="characters")
    assert table.given == [{"text": "李明"}]
