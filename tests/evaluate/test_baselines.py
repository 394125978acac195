"""What counting words says of rows, beside which a model is put."""

import importlib.util

import pytest

from clozeworks.data.tables.table import Table
from clozeworks.evaluate import baselines
from clozeworks.evaluate.baselines import measure_baselines, measure_folds
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.pair import Pair
from tests.labelled import rows

pytest.importorskip("sklearn")
TASK = Classify(labels=("cold", "warm"))


def table(given: list[dict]) -> Table:
    return Table("rows", given)


def test_words_tell_what_the_majority_does_not():
    train, test = rows(60, seed=1), rows(40, seed=2)
    measured = measure_baselines(TASK, table(train), table(test))
    labels = [row["label"] for row in train]
    most = max(sorted(set(labels)), key=labels.count)
    assert measured.metrics["majority"] == sum(row["label"] == most for row in test) / len(test)
    assert measured.metrics["tfidf_words"] > 0.9
    assert measured.metrics["tfidf_characters"] > 0.9
    assert measured.notes == []


def test_rows_to_evaluate_on_choose_nothing():
    """What is predicted of a text does not depend on the others, nor on the labels of any."""
    train, test = table(rows(60, seed=1)), [row["text"] for row in rows(40, seed=2)]
    texts, labels = [row["text"] for row in train.rows], [row["label"] for row in train.rows]
    for unit in baselines.GRAMS:
        whole = baselines.predict_tfidf(unit, texts, labels, test)
        assert whole is not None
        assert whole[:5] == baselines.predict_tfidf(unit, texts, labels, test[:5])


def test_pairs_are_joined_and_chinese_is_counted_by_characters():
    given = [
        {"text_a": f"第{n}问这个", "text_b": "天气很好" if n % 2 else "书不好看", "label": "yn"[n % 2]}
        for n in range(24)
    ]
    task = Pair(labels=("n", "y"))
    measured = measure_baselines(task, table(given[:16]), table(given[16:]))
    assert measured.metrics == {"majority": 0.5, "tfidf_words": 1.0, "tfidf_characters": 1.0}


def test_many_rows_are_sampled_and_that_is_said(monkeypatch):
    monkeypatch.setattr(baselines, "ROWS", 30)
    note = measure_baselines(TASK, table(rows(60)), table(rows(20, seed=2))).notes[0]
    assert note.startswith("TF-IDF learns from ")
    assert note.endswith(" of 60 rows")


def test_where_nothing_can_be_counted():
    marks = [{"text": "?!" * n, "label": "ab"[n % 2]} for n in range(1, 9)]
    measured = measure_baselines(Classify(labels=("a", "b")), table(marks), table(marks))
    assert measured.metrics.keys() == {"majority", "tfidf_characters"}
    alone = [{"text": "one", "label": "a"}, {"text": "two", "label": "b"}]  # too few for cross-validation
    assert measure_baselines(Classify(labels=("a", "b")), table(alone), table(alone)).metrics["tfidf_words"] == 1.0
    assert measure_baselines(Classify(problem="regression"), table([]), table([])).metrics == {}
    assert measure_baselines(Classify(problem="multi_label", labels=("a",)), table([]), table([])).metrics == {}


def test_without_scikit_learn_a_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(baselines, "find_spec", lambda name: None)
    measured = measure_baselines(TASK, table(rows(20)), table(rows(10)))
    assert measured.metrics.keys() == {"majority"}
    assert "clozeworks[sklearn]" in measured.notes[0]
    assert importlib.util.find_spec("sklearn") is not None


def test_folds_are_scored_together():
    whole = table(rows(40))
    parts = [[*range(0, 40, 2)], [*range(1, 40, 2)]]
    folds = [(whole.some(other), whole.some(part)) for part, other in (parts, parts[::-1])]
    measured = measure_folds(TASK, folds)
    right = 0
    for train, test in folds:
        labels = [row["label"] for row in train.rows]
        most = max(sorted(set(labels)), key=labels.count)
        right += sum(row["label"] == most for row in test.rows)
    assert measured.metrics["majority"] == right / 40
    each = [measure_baselines(TASK, *fold).metrics["tfidf_words"] for fold in folds]
    assert measured.metrics["tfidf_words"] == pytest.approx(sum(each) / 2)
