"""Ids by way of words are the ids of whole texts, whatever was seen before."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.data.tokens import word_ids
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.data.tokens.word_ids import SEAM

WORDS = [
    "the", "quick", "Foxes'", "jumped,", "naïve", "e\u0301te\u0301", "U.S.", "我们去", "ΣΑΣ", "İstanbul", "ﬁne",
    "a\u00a0b", "c\td", "e\x1cf", "\u200dg", "[MASK]", "##x", "", "👩\u200d👧", "x" * 150, "\u0301", "１２", "\ufffd",
    SEAM, f"a{SEAM}b",
]  # fmt: skip
TOKENIZERS = [
    Tokenizer.train(
        [" ".join(WORDS[:-2]) * 3, "the quick brown fox jumps over the lazy dog"], vocab=160, lowercase=lower
    )
    for lower in (True, False)
]


def plain(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [result.ids.tolist() for result in tokenizer.encode(texts)]


def by_words(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    ids, lengths = tokenizer.ids(texts)
    assert ids.dtype == np.int32
    ends = np.cumsum(lengths)
    return [ids[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=8).map(" ".join), max_size=8),
    st.sampled_from(TOKENIZERS),
)
def test_words_give_the_ids_of_texts(texts, tokenizer):
    assert by_words(tokenizer, texts) == plain(tokenizer, texts)


def test_what_was_seen_is_forgotten_and_nothing_changes(monkeypatch):
    monkeypatch.setattr(word_ids, "HELD", 200)
    tokenizer = Tokenizer.train(["the quick brown fox jumps"], vocab=80)
    texts = [f"the quick number{n} jumps over {n * 7} fox" for n in range(300)]
    assert [row for at in range(0, 300, 7) for row in by_words(tokenizer, texts[at : at + 7])] == plain(
        tokenizer, texts
    )
    assert len(tokenizer.ids._number) < 100


def test_several_threads_share_what_was_seen():
    tokenizer = Tokenizer.train(["the quick brown fox jumps"], vocab=80)
    texts = [f"the quick number{n % 500} jumps over {n * 7} fox" for n in range(2000)]
    expected, wrong = plain(tokenizer, texts), []

    def work(begin: int) -> None:
        for at in range(begin, 2000, 40):
            if by_words(tokenizer, texts[at : at + 20]) != expected[at : at + 20]:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(begin,)) for begin in (0, 20, 10, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("texts", [[], [""], ["", " ", "a  b"]])
def test_nothing_is_something(texts):
    assert by_words(TOKENIZERS[0], texts) == plain(TOKENIZERS[0], texts)
