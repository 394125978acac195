import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.data.tokens.alignment import Alignment, classes_of, word_begins
from tests.data.tokens.test_word_borders import TOKENIZERS


@pytest.mark.parametrize(
    ("text", "words", "begins"),
    [
        ("我喜欢", ["我", "喜欢"], [0, 1]),
        (" a  b ", ["a", "b"], [1, 4]),
        ("a b", ["a", " ", "b"], [0, 2]),
        ("a b", ["a", " b"], [0, 2]),
        ("  b", [" ", " b"], [2]),
        ("a b", ["a b"], [0]),
        ("  ", [], []),
        ("ab", ["a", "", "b"], [0, 1]),
        ("ab", ["a"], None),
        ("ab", ["b", "a"], None),
        ("ab", ["a", "b", "c"], None),
        ("a，b", ["a", "b"], None),
    ],
)
def test_where_words_begin(text, words, begins):
    assert word_begins(text, words) == begins


@given(st.lists(st.text(max_size=4), max_size=8))
def test_words_always_join_to_what_they_make(words):
    begins = word_begins("".join(words), words)
    assert begins is not None
    assert len(begins) == sum(bool(word.strip()) for word in words)


def blank(character: str) -> tuple[bool]:
    return (character.isspace(),)


@given(st.text(max_size=20))
@settings(deadline=None)
def test_classes_are_those_of_each_character(text):
    (space,) = classes_of(text, blank)
    assert space.tolist() == [character.isspace() for character in text]


def test_white_space_is_trimmed_and_a_space_alone_looks_ahead():
    tokenizer = TOKENIZERS["unigram"]
    texts = ["token 我", "a "]
    aligned = Alignment(texts, tokenizer.encodings(texts))
    covered = [aligned.text[first:last] for first, last in zip(aligned.first, aligned.last, strict=True)]
    assert covered == ["token", "", "我", "a", "a", ""]  # the space put before a text covers its first character
    assert aligned.first.tolist() == [0, 6, 6, 7, 7, 8]
    assert aligned.bases.tolist() == [0, 7]


def test_no_text_at_all():
    assert Alignment([], []).words(np.zeros(0, bool)).tolist() == []
    assert Alignment([""], TOKENIZERS["unigram"].encodings([""])).split(np.zeros(0, bool)) == 0
