"""How rows are spread over classes."""

from clozeworks.data.tables import balance
from clozeworks.data.tables.table import Table


def table(**counts: int) -> Table:
    return Table("t", [{"text": "x", "label": label} for label, count in counts.items() for _ in range(count)])


def test_labels_are_counted_the_largest_first():
    result = balance(table(a=20, c=30, b=20))
    assert list(result.counts.items()) == [("c", 30), ("a", 20), ("b", 20)]
    assert result.share == 30 / 70
    assert result.notes == []


def test_a_large_class_and_a_small_one_are_reported():
    result = balance(table(ok=93, spam=7))
    assert result.share == 0.93
    assert result.notes == [
        "93% of the rows are ok: who always says so is right as often; look at f1 or mcc",
        "fewer than 10 rows of spam: add some, or leave out the class",
    ]
    assert balance(table(a=3, b=3)).notes == []  # all are few: that is seen without a note
    many = balance(table(a=200, **{f"c{n}": 1 for n in range(7)}))
    assert "c0, c1, c2, c3, c4 and 2 more" in many.notes[1]


def test_every_kind_of_truth():
    assert balance(Table("t", [{"label": ["a", "b"]}, {"label": ["b"]}])).counts == {"b": 2, "a": 1}
    assert balance(Table("t", [{"tokens": ["x", "y"], "tags": ["O", "B"]}, {"tags": ["O"]}])).counts == {"O": 2, "B": 1}
    assert balance(Table("t", [{"answers": []}, {"answers": [{"text": "a"}]}])).counts == {"answer": 1, "no answer": 1}
    assert balance(Table("t", [{"answer": 1}, {"answer": 1}])).counts == {"choice 1": 2}
    assert balance(Table("t", [{"score": 1.0}])).counts == {}
    assert balance(Table("t", [{"score": 1.0}])).share == 0


def test_a_label_that_is_none():
    rows = [{"text": "a", "label": label} for label in ("yes", "no", "-", "-")]
    assert "2 rows with the label '-': people who did not agree? then remove them" in balance(Table("t", rows)).notes
    assert not balance(Table("t", [row for row in rows if row["label"] != "yes"])).notes
