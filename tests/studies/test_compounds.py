"""A compound stands in every sentence, anywhere, and nothing but its own words tells which it is."""

from collections import Counter

import numpy as np

from studies.corpora.compounds import ARTICLE, COMPOUNDS, FILLER, SENTENCES, WORDS, documents


def sentences(count: int, seed: int = 0) -> list[list[str]]:
    results = [each.split() for document in documents(count, seed) for each in document.sentences or []]
    assert len(results) == count * SENTENCES
    return results


def test_no_word_has_two_parts():
    words = [ARTICLE, *FILLER, *(word for pair in COMPOUNDS for word in pair)]
    assert len(words) == len(set(words))
    assert all(len(pair) == 2 for pair in COMPOUNDS)


def test_a_sentence_is_one_compound_behind_its_article_among_filler():
    places, which = Counter(), Counter()
    for words in sentences(100):
        assert len(words) == WORDS
        assert words.count(ARTICLE) == 1
        at = words.index(ARTICLE)
        assert (words[at + 1], words[at + 2]) in COMPOUNDS
        assert set(words[:at] + words[at + 3 :]) <= set(FILLER)
        places[at] += 1
        which[words[at + 1]] += 1
    assert set(places) == set(range(WORDS - 2))
    assert set(which) == {first for first, _ in COMPOUNDS}
    for counts in (places, which):
        mean = 100 * SENTENCES / len(counts)
        assert all(abs(count - mean) < 5 * mean**0.5 for count in counts.values())


def test_the_neighbours_tell_nothing_of_the_compound():
    """Chi-squared of compound and the word before its article, the word behind it, and the compound before it."""
    numbers, words = {pair: number for number, pair in enumerate(COMPOUNDS)}, {word: n for n, word in enumerate(FILLER)}
    text = sentences(200)
    at = [each.index(ARTICLE) for each in text]
    compound = [numbers[each[a + 1], each[a + 2]] for each, a in zip(text, at, strict=True)]
    before = [(c, words[each[a - 1]]) for each, a, c in zip(text, at, compound, strict=True) if a > 0]
    behind = [(c, words[each[a + 3]]) for each, a, c in zip(text, at, compound, strict=True) if a + 3 < WORDS]
    for pairs in (before, behind, list(zip(compound[1:], compound[:-1], strict=True))):
        table = np.zeros((1 + max(a for a, _ in pairs), 1 + max(b for _, b in pairs)))
        np.add.at(table, tuple(np.array(pairs).T), 1)
        expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
        free = (table.shape[0] - 1) * (table.shape[1] - 1)
        assert abs(((table - expected) ** 2 / expected).sum() - free) < 5 * (2 * free) ** 0.5


def test_a_seed_is_a_text():
    assert sentences(3, 1) == sentences(3, 1) != sentences(3, 2)
    assert sentences(5, 1)[: 3 * SENTENCES] == sentences(3, 1)
