"""Texts cut into words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.data.tokens.cut import CUTS, cut, guessed, whole


def words(text: str, how: str = "words") -> list[str]:
    return [text[begin:end] for begin, end in CUTS[how](text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EU rejects (U.S. law), 1-0.", ["EU", "rejects", "(", "U.S.", "law", ")", ",", "1-0", "."]),
        ("Ann's we’re M. Smith...", ["Ann", "'s", "we", "’re", "M.", "Smith", "..."]),
        ("李明在Rome工作1998年。", ["李", "明", "在", "Rome", "工", "作", "1998", "年", "。"]),
        ("'' \t--  's", ["''", "--", "'s"]),
        ("한국어 말", ["한국어", "말"]),
        (" \n", []),
    ],
)
def test_words_and_marks(text: str, expected: list[str]):
    assert words(text) == expected


@given(st.text(alphabet="ab.'’s-( 中，　\n\u0301", max_size=30), st.sampled_from(list(CUTS)))
def test_every_character_is_in_one_word_and_no_white_space_is(text: str, how: str):
    inside = [at for begin, end in CUTS[how](text) for at in range(begin, end)]
    assert inside == [at for at, character in enumerate(text) if not character.isspace()]


@given(st.text(alphabet="ab.'s-(中 ", max_size=20))
def test_words_that_were_cut_stay_whole_between_spaces(text: str):
    parts = [part for part in words(text) if whole(part)]
    assert words(" ".join(parts)) == parts
    assert cut("") == []


def test_how_words_were_made():
    assert guessed(list("李明在1998年")) == "characters"
    assert guessed(["EU", "rejects", "call", ".", "U.S."]) == "words"
    assert guessed(["中国", "经济", "发展"]) == "spaces"
    assert guessed(["The", "end.", "So", "what?"]) == "spaces"
