"""Text that was taken apart is written as people write it."""

import pytest

from clozeworks.data.tokens.spacing import respaced
from clozeworks.data.tokens.tokenizer import Tokenizer

TEXTS = [
    "Ein Mann, der ein T-Shirt trägt, sagt: Hallo!",
    'Das Schild sagt "Halt", er (der Mann) nicht.',
    "He doesn't pay 1,000 or 3.5%; why?",
    "他在1929年来到巴黎，住了三年。",
]


@pytest.mark.parametrize("text", TEXTS)
def test_marks_find_their_words_again(text: str):
    apart = " ".join("".join(c if c.isalnum() and not "\u4e00" <= c <= "\u9fff" else f" {c} " for c in text).split())
    assert apart != text
    assert respaced(apart) == text
    assert respaced(text) == text


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "words", "bytes", "chars", "unigram"])
def test_every_kind_of_tokenizer_writes_its_text_back(kind: str):
    several = TEXTS[:3] * 20
    tokenizer = Tokenizer.train(several, kind, 400, lowercase=False)
    for text in TEXTS[:3]:
        assert tokenizer.write(tokenizer.encode([text])[0].ids) == text


def test_chinese_is_written_without_spaces():
    for kind in ("wordpiece", "bytes"):
        tokenizer = Tokenizer.train(TEXTS * 20, kind, 500, lowercase=False, lang="zh")
        assert tokenizer.write(tokenizer.encode([TEXTS[3]])[0].ids) == TEXTS[3]


def test_capitals_are_known_to_be_lost():
    assert Tokenizer.train(TEXTS, "wordpiece", 300).lowercase
    assert not Tokenizer.train(TEXTS, "wordpiece", 300, lowercase=False).lowercase
