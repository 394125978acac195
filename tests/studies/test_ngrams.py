"""The model of counts: its formula by hand, and that it is a distribution."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from studies.ngrams import KneserNey, main

TEXT = np.array([0, 1, 2, 0, 1, 3, 0, 1, 2, 2, 4, 1, 2, 0, 1, 2, 3, 3, 0, 4])
VOCAB = 6


def by_hand(text: list[int], history: tuple[int, ...], word: int, order: int) -> float:
    """The recursion, from sets and lists of n-grams."""

    def grams(length: int) -> list[tuple[int, ...]]:
        results = [tuple(text[at : at + order]) for at in range(len(text) - order + 1)]
        while len(results[0]) > length:
            results = [gram[1:] for gram in set(results)]
        return results

    if len(history) + 1 == 0:
        return 1 / VOCAB
    mine = grams(len(history) + 1)
    counts = {gram: mine.count(gram) for gram in mine}
    once, twice = (sum(1 for c in counts.values() if c == n) for n in (1, 2))
    d = once / (once + 2 * twice) if once else 0.5
    below = by_hand(text, history[1:], word, order) if history else 1 / VOCAB
    total = sum(c for gram, c in counts.items() if gram[:-1] == history)
    if not total:
        return below
    followers = sum(1 for gram in counts if gram[:-1] == history)
    return (max(counts.get((*history, word), 0) - d, 0) + d * followers * below) / total


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_recursion_by_hand(order):
    model, unseen = KneserNey(TEXT, VOCAB, order), np.array([0, 1, 3, 5, 2, 0, 1, 2, 4])
    result = model.chances(unseen)
    for at in range(1, len(unseen)):
        history = tuple(unseen[max(0, at - order + 1) : at].tolist())
        assert result[at - 1] == pytest.approx(by_hand(TEXT.tolist(), history, int(unseen[at]), order), rel=1e-12)
    assert model.perplexity(unseen) == pytest.approx(math.exp(-np.log(result).mean()))


def test_chances_add_up_to_one():
    model = KneserNey(TEXT, VOCAB, 3)
    for history in itertools.product(range(VOCAB), repeat=2):
        total = sum(model.chances(np.array([*history, word]))[1] for word in range(VOCAB))
        assert total == pytest.approx(1.0, rel=1e-12)


def test_more_words_before_help_a_text_with_order():
    generator = np.random.default_rng(0)
    text = [0, 0]
    for _ in range(6000):
        text.append((2 * text[-1] + text[-2] + int(generator.random() < 0.2)) % 7)
    whole = np.array(text)
    results = [KneserNey(whole[:5000], 7, order).perplexity(whole[5000:]) for order in (1, 2, 3)]
    assert results[2] < 0.4 * results[1]
    assert results[0] == pytest.approx(7, rel=0.02)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(InputError, match="62 bits"):
        KneserNey(TEXT, 1 << 21, 3)
    with pytest.raises(InputError, match="3 or more"):
        KneserNey(TEXT[:2], VOCAB, 3)


def test_bad_input_is_one_sentence(road: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main([str(road / "data"), "--order", "0"]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("error: order: 0")
    assert not output.out
