"""Exact match and F1 of answers; the figures are those of the published scripts for the same texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.metrics.answers import answer_metrics, best_threshold, exact, f1, language_of, units

# What the scripts of SQuAD 1.1 and 2.0, which agree, say of these.
ENGLISH = [
    ("the Denver Broncos", ["Denver Broncos"], 1, 1),
    ("Denver", ["Denver Broncos", "The Broncos"], 0, 0.6666666667),
    ("Broncos, Denver!", ["Denver Broncos"], 0, 1),
    ("308 points", ["308"], 0, 0.6666666667),
    ("a  cat\tand an owl", ["cat and owl"], 1, 1),
    ("U.S.", ["US"], 1, 1),
    ("well-known", ["well known"], 0, 0),
    ("the the cat cat", ["cat"], 0, 0.6666666667),
    ("Café", ["café"], 1, 1),
    ("theatre", ["the atre"], 0, 0),
    ("6½", ["6½ sacks"], 0, 0.6666666667),
    ("“Weston”", ["Weston"], 0, 0),
    ("dog", ["cat"], 0, 0),
    ("in 1990 in May", ["May 1990", "in May"], 0, 0.6666666667),
]
# What the script of CMRC 2018 says.
CHINESE = [
    ("踢爆", ["踢爆"], 1, 1),
    ("4分钟内", ["4分钟"], 0, 0.8571428571),
    ("《跑跑卡丁车》与《泡泡堂》", ["跑跑卡丁车与泡泡堂"], 1, 1),
    ("韩国Nexon开发", ["Nexon", "韩国nexon"], 0, 0.75),
    ("天津北京", ["北京天津"], 0, 0.5),
    ("1940年", ["1940年6月15日", "1940年代"], 0, 0.8),
    ("John H. McArthur教授", ["麦克阿瑟（John H. McArthur）教授"], 0, 0.7142857143),
    ("熔点-150.5°C(-239°F)", ["-150.5°C"], 0, 0.2857142857),
    ("维生素C、50％以上", ["50％"], 0, 0),
    ("上海", ["北京"], 0, 0),
    ("2,281张。", ["2,281张"], 1, 1),
    ("高50—100厘米", ["100厘米"], 0, 0.6666666667),
    ("是。", ["是"], 1, 1),
    ("Linux 2.6内核", ["linux 2.6", "内核"], 0, 0.6666666667),
    ("天津的人", ["天津人"], 0, 0.5714285714),
    ("维生素C含量50 % , 以上", ["含量 50% 以上"], 0, 0.4705882353),
]


@pytest.mark.parametrize(("answer", "right", "same", "near"), ENGLISH)
def test_english(answer: str, right: list[str], same: float, near: float):
    assert exact(answer, right) == same
    assert f1(answer, right) == pytest.approx(near, abs=1e-9)


@pytest.mark.parametrize(("answer", "right", "same", "near"), CHINESE)
def test_chinese(answer: str, right: list[str], same: float, near: float):
    assert exact(answer, right, "zh") == same
    assert f1(answer, right, "zh") == pytest.approx(near, abs=1e-9)


def test_a_question_without_an_answer_is_answered_by_nothing():
    for language in ("en", "zh"):
        assert (exact("", [], language), f1("", [], language)) == (1, 1)
        assert (exact("x", [], language), f1("x", [], language)) == (0, 0)
        assert (exact("", ["x"], language), f1("", ["x"], language)) == (0, 0)


def test_chinese_units_are_characters_and_words():
    assert units("《Gtk# 3.5》是Nexon Inc.开发的，1,000张。", "zh") == (
        *("gtk", "#", "3.5", "是", "nexon", "inc", ".", "开", "发", "的", "1,000", "张"),
    )


def test_the_language_of_the_answers_chooses():
    assert language_of(["天津市", "Nexon", "1990"]) == "en"
    assert language_of(["天津市人", "Nexo", "1990"]) == "zh"
    assert language_of(["1990", ""]) == language_of([]) == "en"
    answers, right = ["天津", "1990年"], [["天津市"], ["1990年"]]
    assert answer_metrics(answers, right) == {"exact_match": 0.5, "f1": pytest.approx((4 / 5 + 1) / 2)}
    assert answer_metrics(answers, right, "en")["f1"] == 0.5


def test_both_kinds_of_questions_apart():
    result = answer_metrics(["cat", "", "dog", "big cat"], [["the cat"], [], [], ["cat"]])
    assert result == {
        "exact_match": 0.5,
        "f1": pytest.approx((1 + 1 + 0 + 2 / 3) / 4),
        "HasAns_exact": 0.5,
        "HasAns_f1": pytest.approx((1 + 2 / 3) / 2),
        "NoAns_exact": 0.5,
        "NoAns_f1": 0.5,
    }
    assert set(answer_metrics([""], [[]])) == {"exact_match", "f1"}


@given(st.lists(st.tuples(st.integers(-4, 4), st.floats(0, 1), st.booleans()), min_size=1, max_size=12))
def test_no_threshold_gains_more(rows: list[tuple[int, float, bool]]):
    margins = np.array([float(margin) for margin, _, _ in rows])
    silent = np.array([float(none) for _, _, none in rows])
    answered = np.array([0.0 if none else gain for _, gain, none in rows])

    def gained(threshold: float) -> float:
        return float(np.where(margins > threshold, silent, answered).sum())

    best = gained(best_threshold(margins, answered, silent))
    assert all(gained(threshold) <= best + 1e-9 for threshold in np.arange(-5.5, 6, 0.5))


def test_the_threshold_lies_halfway():
    margins = np.array([3.0, -2.0, 1.0])
    assert best_threshold(margins, np.array([0.0, 1.0, 1.0]), np.array([1.0, 0.0, 0.0])) == 2.0
    assert best_threshold(margins, np.zeros(3), np.ones(3)) == -2.5
    assert best_threshold(margins, np.ones(3), np.zeros(3)) == 3.5
