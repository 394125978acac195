"""Rows set aside, and rows in both parts."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.tables import fewer, fold_table, read_table, repeats, split_table
from clozeworks.data.tables.table import Table
from tests.conftest import SHARED


def table(*labels: str) -> Table:
    return Table(
        "t", [{"text": f"text {n}", "label": label} for n, label in enumerate(labels)], list(range(1, 1 + len(labels)))
    )


def keys(part: Table) -> list[int]:
    return part.lines


def test_each_class_gives_its_share_and_keeps_a_row():
    whole = table(*"a" * 80, *"b" * 20, *"c")
    train, dev = split_table(whole, 0.1)
    assert Counter(row["label"] for row in dev.rows) == {"a": 8, "b": 2}
    assert sorted(keys(train) + keys(dev)) == keys(whole)
    assert keys(dev) == sorted(keys(dev))
    assert keys(split_table(whole, 0.1, seed=0)[1]) == keys(dev) != keys(split_table(whole, 0.1, seed=1)[1])


def test_fewer_rows_have_the_classes_in_the_same_shares():
    whole = table(*"a" * 80, *"b" * 20)
    assert Counter(row["label"] for row in fewer(whole, 50).rows) == {"a": 40, "b": 10}
    assert fewer(whole, 100) is whole
    assert fewer(whole, 1000) is whole


@given(st.lists(st.sampled_from("abcd"), min_size=2), st.floats(0.01, 0.99), st.integers(0, 9))
def test_no_row_is_lost_and_no_class_leaves_train(labels: list[str], share: float, seed: int):
    whole = table(*labels)
    if len(set(labels)) == len(labels):
        with pytest.raises(InputError, match=r"more are needed|several rows to be learned"):
            split_table(whole, share, seed)
        return
    train, dev = split_table(whole, share, seed)
    assert sorted(keys(train) + keys(dev)) == keys(whole)
    assert dev.rows
    assert {row["label"] for row in train.rows} == set(labels)
    assert len(dev) <= max(1, round(share * len(whole))) + 1


@given(st.lists(st.integers(0, 5), min_size=2), st.floats(0.05, 0.9))
def test_questions_of_one_passage_stay_together(passages: list[int], share: float):
    whole = Table("t", [{"context": f"c{n}", "question": "?", "answers": []} for n in passages])
    if len(set(passages)) == 1:
        with pytest.raises(InputError, match=r"1 different passage\(s\)"):
            split_table(whole, share)
        return
    train, dev = split_table(whole, share)
    assert not {row["context"] for row in train.rows} & {row["context"] for row in dev.rows}
    assert train.rows
    assert dev.rows


def test_rows_with_the_same_text_stay_together():
    whole = Table("t", [{"text": f"text {n % 10} ", "label": "ab"[n % 2]} for n in range(40)])
    train, dev = split_table(whole, 0.3)
    assert repeats(train, dev) == []
    assert 12 <= len(dev) <= 16  # by fours of each class


def test_of_several_labels_the_rarest_decides():
    rows = [{"text": str(n), "label": ["common", "rare"] if n < 4 else ["common"]} for n in range(40)]
    _, dev = split_table(Table("t", [*rows, {"text": "none", "label": []}]), 0.25)
    assert Counter(label for row in dev.rows for label in row["label"])["rare"] == 1


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(InputError, match="more are needed to set some aside"):
        split_table(table("a"))
    for share in (0, 1, -0.5):
        with pytest.raises(InputError, match="a share between 0 and 1"):
            split_table(table("a", "a"), share)


def test_rows_in_both_files_are_counted():
    rows = [{"text": "a", "label": "x"}, {"text": "b ", "label": "x"}, {"text": "c", "label": "x"}]
    train, dev = Table("train", rows), Table("dev", [{"text": "b", "label": "y"}, {"text": "d", "label": "x"}])
    assert repeats(train, dev) == ["1 of the 2 rows of dev is in train too: metrics on them show what was memorised"]
    assert repeats(train, Table("dev", [{"text": "d", "label": "x"}])) == []
    tags = Table("t", [{"tokens": ["a", "b"], "tags": ["O", "O"]}])
    assert len(repeats(tags, tags)) == 1


@pytest.mark.skipif(not SHARED.is_dir(), reason="no real rows beside the checkout")
def test_a_published_set_has_rows_in_both_files():
    folder: Path = SHARED / "chnsenticorp"
    train, dev = (read_table(folder / name, ("text",), ("label",)).table for name in ("train.jsonl", "dev.jsonl"))
    [note] = repeats(train, dev)
    assert " of the 1,200 rows of " in note
    assert repeats(*split_table(train)) == []


def whole(rows: list[dict]) -> Table:
    return Table("t", rows, list(range(1, 1 + len(rows))))


def test_the_last_row_of_a_tag_stays_to_be_learned_from():
    given = [{"tokens": [f"w{n}"], "tags": ["RARE" if n == 4 else "O"]} for n in range(20)]
    for seed in range(12):
        train, dev = split_table(whole(given), 0.3, seed)
        assert any("RARE" in row["tags"] for row in train.rows)
        assert len(dev) == 6


def test_fewer_rows_have_every_label_and_one_passage_stays_whole():
    given = [{"text": f"t{n}", "label": "rare" if n == 7 else "usual"} for n in range(40)]
    for many in (39, 20, 3):
        result = fewer(whole(given), many)
        assert len(result) == many
        assert any(row["label"] == "rare" for row in result.rows)
    passage = [{"context": "one", "question": f"q{n}", "answers": []} for n in range(9)]
    assert len(fewer(whole(passage), 5)) == 9


@given(st.lists(st.sampled_from("aaaab"), min_size=3), st.integers(2, 5), st.integers(0, 9))
def test_every_row_is_in_one_fold_and_classes_are_spread_alike(labels: list[str], folds: int, seed: int):
    given = table(*labels)
    if folds > len(labels):
        with pytest.raises(InputError, match=r"a row for each, are needed; use fewer folds"):
            fold_table(given, folds, seed)
        return
    parts = fold_table(given, folds, seed)
    assert sorted(at for part in parts for at in part) == list(range(len(labels)))
    assert min(map(len, parts)) >= 1
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for label in set(labels):
        counts = [sum(labels[at] == label for at in part) for part in parts]
        assert max(counts) - min(counts) <= 1


def test_folds_follow_the_seed_and_keep_repeated_rows_together():
    given = Table("t", [{"text": f"text {n % 10} ", "label": "ab"[n % 2]} for n in range(40)])
    parts = fold_table(given, 5)
    assert parts == fold_table(given, 5) != fold_table(given, 5, seed=1)
    for part in parts:
        train = given.some([at for at in range(40) if at not in part])
        assert repeats(train, given.some(part)) == []
    passages = Table("t", [{"context": f"c{n % 3}", "question": f"q{n}", "answers": []} for n in range(9)])
    assert [len({at % 3 for at in part}) for part in fold_table(passages, 3)] == [1, 1, 1]
    with pytest.raises(InputError, match=r"4 folds of 3 different passage\(s\)"):
        fold_table(passages, 4)


def test_labels_that_no_two_rows_have_are_no_classes():
    rows = [{"text": f"text {n}", "label": f"id-{n}"} for n in range(1200)]
    with pytest.raises(InputError, match="1,200 labels for 1,200 rows; a label needs several rows"):
        split_table(Table("t", rows))
