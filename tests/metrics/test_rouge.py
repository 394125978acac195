"""ROUGE beside the package rouge-score 0.1.2, whose figures are kept here."""

import pytest

from clozeworks.metrics.rouge import rouge, words

# answer, reference, and what their RougeScorer(["rouge1", "rouge2", "rougeL"]) gives of them
THEIRS = [
    (" dog, on _q_ it's", "_q_ a-b the _q_ the Cat 42", 0.15384615384615385, 0.0, 0.15384615384615385),
    ("x1 mat.  on a-b sat on sat the", "dog, a-b it's Cat Cat dog, sat sat the", 0.5, 0.22222222222222224, 0.5),
    ("Cat mat. Cat the  the", "sat 42 Cat", 0.25, 0.0, 0.25),
    ("mat.", "the _q_ a-b sat on it's mat.  a-b dog, mat.", 0.14285714285714288, 0.0, 0.14285714285714288),
]


@pytest.mark.parametrize(("text", "wanted", "one", "two", "longest"), THEIRS)
def test_their_figures(text: str, wanted: str, one: float, two: float, longest: float):
    assert rouge([text], [wanted]) == pytest.approx({"rouge1": one, "rouge2": two, "rougeL": longest})


def test_a_mean_over_texts():
    both = rouge([row[0] for row in THEIRS], [row[1] for row in THEIRS])
    assert both["rougeL"] == pytest.approx(sum(row[4] for row in THEIRS) / 4)
    assert rouge([], []) == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}
    assert rouge([""], [""]) == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}


def test_chinese_by_characters_and_other_letters_in_words():
    assert words("Für 3,5 Äpfel_und") == ["für", "3", "5", "äpfel", "und"]
    assert words("我在BERT里，写2023年") == ["我", "在", "bert", "里", "写", "2023", "年"]
    assert rouge(["我喜欢猫"], ["我喜欢狗"]) == pytest.approx({"rouge1": 0.75, "rouge2": 2 / 3, "rougeL": 0.75})


def test_a_subsequence_keeps_its_order():
    assert rouge(["a b c d"], ["d c b a"])["rougeL"] == pytest.approx(0.25)
    assert rouge(["a x b y c"], ["a b c"])["rougeL"] == pytest.approx(6 / 8)
