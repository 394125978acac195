"""Words that were segmented before, at their place in a text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.data.tokens.given_words import joined, pieces, spacing, word_starts
from clozeworks.data.tokens.tokenizer import Tokenizer

TEXT = [
    "EU rejects German call to boycott British lamb . Peter Blackburn 's",
    "the cat sat on the mat with 我们 中国 人民 日报 消息 北京 1998",
] * 3
KINDS = ("wordpiece", "bytes", "bpe", "unigram", "words", "chars")


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: Tokenizer.train(TEXT, kind=kind, vocab=400, lowercase=False) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@given(words=st.lists(st.sampled_from([*TEXT[0].split()[:-1], "cat", "mats", "xyz", "1998", ";"]), max_size=8))
def test_words_with_spaces_are_the_pieces_of_the_text(tokenizers: dict[str, Tokenizer], kind: str, words: list[str]):
    tokenizer = tokenizers[kind]
    result = pieces(tokenizer, [words])[0]
    whole = tokenizer.encode([" ".join(words)])[0]
    assert [index for word in result for index in word.ids] == whole.ids.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_characters_of_chinese_get_no_space(tokenizers: dict[str, Tokenizer], kind: str):
    tokenizer, words = tokenizers[kind], list("我们在1998年，，北京")
    for word, result in zip(words[1:], pieces(tokenizer, [words])[0][1:], strict=True):
        tokens = [tokenizer.token(index) for index in result.ids]
        assert not any(token.startswith(("▁", "Ġ")) for token in tokens)
        if kind != "bytes":
            assert tokens in ([word], [f"{word}</w>"], [tokenizer.names["unk"]], [","])


@pytest.mark.parametrize("kind", KINDS)
@given(words=st.lists(st.text(max_size=6), max_size=6))
def test_every_word_has_a_piece(tokenizers: dict[str, Tokenizer], kind: str, words: list[str]):
    result = pieces(tokenizers[kind], [words])[0]
    assert len(result) == len(words)
    assert all(0 <= word.lead < len(word.ids) for word in result)
    assert word_starts(result).sum() == len(words)


def test_what_a_tokenizer_drops_is_unknown(tokenizers: dict[str, Tokenizer]):
    tokenizer = tokenizers["wordpiece"]
    assert [each.ids for each in pieces(tokenizer, [["the", "\x01", ""]])[0][1:]] == [[tokenizer.unk]] * 2


def test_a_space_that_is_a_token_leads_the_word(tokenizers: dict[str, Tokenizer]):
    result = pieces(tokenizers["chars"], [["the", "cat"]])[0]
    assert [word.lead for word in result] == [0, 1]
    assert np.flatnonzero(word_starts(result)).tolist() == [0, 4]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["EU", "rejects", "it", "."], "EU rejects it ."),
        (["a", "b", "c"], "a b c"),
        (list("我们1998年"), "我们1998年"),
        (["我", "爱", "New", "York", "。"], "我爱New York。"),
        (["안녕", "하세요"], "안녕 하세요"),
        (["good", "🙂", "day"], "good 🙂 day"),
        ([], ""),
    ],
)
def test_texts_of_words(words: list[str], text: str):
    assert joined(words) == text
    assert len(spacing(words)) == len(words)
