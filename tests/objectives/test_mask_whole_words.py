import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.objectives.mask.whole_words import MaskWholeWords
from tests.objectives import mask_reference
from tests.objectives.layouts import VOCABULARY, alike, budget_of, chi_square, chosen_of, corrupt, flags, lay, layouts


@settings(deadline=None, max_examples=200)
@given(layouts, st.sampled_from([0.05, 0.15, 0.5, 0.9]), st.none() | st.integers(1, 9), st.integers(0, 9))
def test_words_are_hidden_whole_until_no_word_fits(layout, rate, most, seed):
    hidden = corrupt(MaskWholeWords(rate, most=most), lay(layout), seed)
    for pieces, result in zip(layout, flags(layout, hidden), strict=True):
        words = [word for piece in result for word in piece]
        assert all(all(word) or not any(word) for word in words)
        taken, passed = [len(w) for w in words if all(w)], [len(w) for w in words if not any(w)]
        left = budget_of(pieces, rate, most) - sum(taken)
        if left < 0:  # no word is small enough: one of the smallest
            assert taken == [min(taken + passed)]
        else:
            assert all(size > left for size in passed if left)
            assert taken or not words


def segmented(*sentences: str) -> list[list[list[int]]]:
    return [[[len(word) for word in sentence.split("|")]] for sentence in sentences]


def test_chinese_words_stay_together():
    """Words come from a segmenter, tokens are characters."""
    (layout,) = segmented("我|喜欢|吃|西瓜|，|还|喜欢|跑步")
    seen = set()
    for seed in range(300):
        (((*words,),),) = flags([layout], corrupt(MaskWholeWords(0.25), lay([layout]), seed))
        assert all(len(set(word)) == 1 for word in words)
        seen |= {number for number, word in enumerate(words) if word[0]}
        assert sum(len(word) for word in words if word[0]) == round(0.25 * 14)
    assert seen == set(range(8))


def test_a_long_name_is_not_guessable():
    (layout,) = segmented("我|喜欢|吃|哈尔滨|正宗|烤冷面")
    name = [tuple(flags([layout], corrupt(MaskWholeWords(0.3), lay([layout]), seed))[0][0][3]) for seed in range(300)]
    assert set(name) == {(True,) * 3, (False,) * 3}


def test_words_of_two_scripts():
    (layout,) = segmented("使用|语言|模型|来|预测|下|一个|词|的|probability|。")
    layout[0][9] = 3  # three pieces of a word
    for seed in range(200):
        result = flags([layout], corrupt(MaskWholeWords(0.4), lay([layout]), seed))[0][0]
        assert all(len(set(word)) == 1 for word in result)


def test_equal_words_are_equally_likely():
    hidden = corrupt(MaskWholeWords(0.09), lay([[[2] * 10]], times=20_000))  # a budget of 2 of 22 tokens: one word
    counts = np.sum([each[1:-1:2] for each in chosen_of(hidden)], axis=0)
    assert counts.sum() == 20_000
    assert chi_square(counts, np.full(10, 2000.0)) < 4


def test_a_budget_below_every_word_takes_one_of_the_smallest():
    layout = [[[5, 4, 6, 4]]] * 4000
    hidden = corrupt(MaskWholeWords(0.1), lay(layout))  # 2 tokens
    words = np.array([[all(word) for word in example[0]] for example in flags(layout, hidden)])
    assert (words.sum(axis=1) == 1).all()
    assert words[:, [0, 2]].sum() == 0
    assert words[:, 1].mean() == pytest.approx(0.5, abs=0.035)


def test_each_token_of_a_word_draws_its_own_replacement():
    hidden = corrupt(MaskWholeWords(), lay([[[3] * 40]], times=2000))
    chosen = hidden.labels != -100
    masked = (hidden.tokens == VOCABULARY.mask)[chosen].reshape(-1, 3)
    assert masked.mean() == pytest.approx(0.8, abs=0.01)
    assert masked.all(axis=1).mean() == pytest.approx(0.8**3, abs=0.015)
    kept = (hidden.tokens == hidden.labels)[chosen]
    assert kept.mean() == pytest.approx(0.1, abs=0.008)


def test_statistics_are_those_of_the_plain_algorithm():
    rng = random.Random(0)
    words = rng.choices(range(1, 8), [60, 20, 10, 5, 3, 1, 1], k=70)
    budget = budget_of([words])
    hidden = corrupt(MaskWholeWords(), lay([[words]], times=8000))
    ours = np.array([each[1:-1] for each in chosen_of(hidden)])
    plain = np.array([np.concatenate(mask_reference.whole_words(words, budget, rng)) for _ in range(8000)])
    alike(ours, plain)
    alike(ours.sum(axis=1, keepdims=True), plain.sum(axis=1, keepdims=True))
