import pytest

from clozeworks.data.shards.units import Unit
from clozeworks.data.text.documents import Document
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.vectors import splitting
from clozeworks.vectors.splitting import Splitting

TEXT = "Mr. O'Neill paid 5,000 for the café; he didn't   mind.\tReally?\nDas Straße 我们 ok"


def words_of(text, **more):
    return splitting.Splitter(Splitting(**more)).words(text)


def test_words_are_those_of_a_words_tokenizer():
    """But for accents, which it takes off as BERT does."""
    tokenizer = Tokenizer.train([TEXT], "words", vocab=100)
    ids = tokenizer.encode([TEXT])[0].ids
    assert [word.replace("é", "e") for word in words_of(TEXT)] == [tokenizer.token(index) for index in ids]
    assert words_of(TEXT)[:6] == ["mr", ".", "o", "'", "neill", "paid"]
    assert "café" in words_of(TEXT)


def test_spaces_alone():
    """Text that was cut before, whatever its language, keeps its words whole."""
    text = Document("New_York  don't 我们 去 北京大学 .")
    part = Splitting(segmenter="spaces").start()(Unit(0, [text]))
    assert part.words == ["new_york", "don't", "我们", "去", "北京大学", "."]
    part = Splitting(segmenter="spaces").start()(Unit(0, [Document("New_York don't .")]))
    assert part.words == ["new_york", "don't", "."]


def test_case_and_marks():
    assert words_of("The Cat, it sat.", lowercase=False) == ["The", "Cat", ",", "it", "sat", "."]
    assert words_of("The Cat, it sat.", marks=False) == ["the", "cat", "it", "sat"]


def test_a_full_memory_changes_nothing(monkeypatch):
    whole = words_of(TEXT * 3)
    monkeypatch.setattr(splitting, "REMEMBERED", 2)
    assert words_of(TEXT * 3) == whole


def test_documents_become_sentences_of_words():
    documents = [
        Document("One two. Three!\nFour"),
        Document(words=[["New", " York", "。"], ["我们", "ＯＫ"]]),
        Document(sentences=["a b", "c"]),
    ]
    part = Splitting().start()(Unit(0, documents))
    result = iter([part.words[index] for index in part.ids])
    assert [[next(result) for _ in range(length)] for length in part.lengths] == [
        ["one", "two", "."], ["three", "!"], ["four"], ["new", "york", "。"], ["我们", "ｏｋ"], ["a", "b"], ["c"]
    ]  # fmt: skip


def test_chinese_words_come_from_the_segmenter():
    pytest.importorskip("jieba")
    part = Splitting(segmenter="jieba").start()(Unit(0, [Document("我们喜欢自然语言处理。OK then")]))
    assert [part.words[index] for index in part.ids] == ["我们", "喜欢", "自然语言", "处理", "。", "ok", "then"]
