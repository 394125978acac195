"""Words that come beside a text."""

import itertools
import json

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.wording import describe
from clozeworks.data.text import parts
from clozeworks.data.text.documents import Document
from clozeworks.data.text.reader import Reader, Reading
from clozeworks.data.text.segmented import words_of
from clozeworks.data.text.sentences import split_sentences

MELON = {"text": "我喜欢西瓜", "words": ["我", "喜欢", "西瓜"]}


def read(source, counts=None, **options) -> list[Document]:
    return list(Reader(source, Reading(**options), None).documents(Counts() if counts is None else counts))


def refusal(source, **options) -> str:
    with pytest.raises(InputError) as caught:
        read(source, **options)
    return str(caught.value)


def test_words_beside_a_text_are_its_words():
    assert read([MELON]) == [Document("我喜欢西瓜", source="documents", words=[["我", "喜欢", "西瓜"]])]
    row = {"text": "我来。New  York 好！\n", "words": "我 来 。 New York 好 ！"}
    assert read([row])[0].words == [["我", "来", "。"], ["New", "  York", " 好", "！"]]
    assert read([row])[0].text == "我来。New  York 好！"
    nested = {"body": "他来了。", "words": [["他"], ["来了", "。"]]}
    assert read([nested], field="body")[0].words == [["他", "来了", "。"]]


def test_every_format_brings_them(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(MELON, ensure_ascii=False))
    (tmp_path / "a.csv").write_text("words,text\n我 喜欢 西瓜,我喜欢西瓜\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([MELON | {"n": 1}]), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.csv", "a.parquet"):
        assert read(tmp_path / name)[0].words == [["我", "喜欢", "西瓜"]], name


@pytest.mark.parametrize(
    "words", [["我", "喜欢"], ["我", "喜欢", "南瓜"], "我 喜欢西", ["我", 3], [["我"], "喜欢西瓜"]]
)
def test_words_of_another_text_are_refused_or_counted(words):
    row = {"text": "我喜欢西瓜", "words": words}
    assert "documents, row 2" in refusal([MELON, row])
    for errors in ("replace", "skip"):
        counts = Counts()
        result = read([MELON, row], counts, errors=errors)
        assert [document.words for document in result] == [[["我", "喜欢", "西瓜"]], None]
        assert (counts.bad_words, counts.skipped, counts.documents) == (1, 0, 2)


@pytest.mark.parametrize("words", [None, [], "", 5, 2.5, {"count": 5}, "5"])
def test_a_field_that_holds_no_words_is_something_else(words):
    assert read([{"text": "我喜欢西瓜", "words": words}])[0].words is None


def test_a_word_across_two_sentences_is_divided():
    counts = Counts()
    row = {"text": "Ask Yahoo! Inc today.", "words": ["Ask", "Yahoo! Inc", "today", "."]}
    assert read([row], counts)[0].words == [["Ask", " Yahoo!"], ["Inc", " today", "."]]
    assert counts.cut_words == 1


pieces = st.lists(st.text(st.sampled_from("ab1中文。.! \nA"), min_size=1, max_size=5), min_size=1, max_size=20)


@given(pieces, st.data())
@settings(max_examples=300)
def test_words_join_to_the_sentences_of_their_text(words, data):
    gaps = [data.draw(st.sampled_from(["", " ", "\n"])) for _ in words]
    text = "".join(gap + word for gap, word in zip(gaps, words, strict=True))
    result = words_of(text, words)
    assert result is not None
    assert ["".join(own) for own in result[0]] == split_sentences(text)
    given, kept = (sum(bool(word.strip()) for word in some) for some in (words, itertools.chain(*result[0])))
    assert kept == given + result[1]
    assert words_of(text + "x", words) is None


@given(pieces, st.integers(1, 30))
@settings(max_examples=200)
def test_long_documents_keep_their_words_and_spans(words, size):
    text = "".join(words)
    if not text.strip():
        return
    entities = [(at, at + 1) for at in range(0, len(text.rstrip("\n")), 2)]
    row = {"text": text, "words": words, "entities": entities}
    whole = read([row])[0]
    counts = Counts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_CHARACTERS", size)
        cut = read([row], counts)
    assert list(itertools.chain(*(document.words or [] for document in cut))) == whole.words
    assert "".join(document.text for document in cut) == whole.text
    marked = [document.text[begin:end] for document in cut for begin, end in document.entities]
    assert marked == [text[begin:end] for begin, end in entities]
    assert counts.bad_spans == 0
    assert [document.part for document in cut] == list(range(len(cut)))


@pytest.mark.parametrize(
    ("value", "description"),
    [(3, "an int"), (2.5, "a float"), (b"x", "bytes"), ([1, "x"], "a list of int and str"), ({}, "a dict")],
)
def test_values_are_describe(value, description):
    assert describe(value) == description


def test_a_field_that_is_no_text_names_those_that_are():
    assert "'text' holds an int; a string is needed; is title meant?" in refusal([{"text": 3, "title": "x"}])
    assert "'text' holds bytes; a string is needed; is another field meant?" in refusal([{"text": b"x"}])
    assert "join paragraphs" in refusal([{"text": ["a", "b"]}])
    message = refusal([{"en": "x", "de": "y"}], pairs=("en", "fr"))
    assert "no field 'fr'" in message
    assert "--pairs" in message
    assert "--field" not in message
