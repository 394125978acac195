import json
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.text import parts, segmented
from clozeworks.data.text.documents import Document
from clozeworks.data.text.reader import Reader, Reading
from clozeworks.data.text.segmented import spaced
from tests.conftest import SHARED


def read(source, spool=None, **options) -> list[Document]:
    reader = Reader(source, Reading(**options), spool)
    first = list(reader.documents(Counts()))
    counts = Counts()
    assert list(reader.documents(counts)) == first  # every pass is the same
    assert counts.bytes == reader.total
    assert reader.identity() is None
    return first


def refusal(source, **options) -> str:
    with pytest.raises(InputError) as caught:
        read(source, **options)
    return str(caught.value)


ITEMS = [
    "A text.\nTwo lines.",
    {"text": "A row.", "id": 3, "entities": [[2, 5]], "vector": np.zeros(2)},
    Document("A document.", source="here", label="x", phrases=[(0, 1)]),
    Document(words=[["他", "来"], ["New", " York"]], source="there"),
    Document(sentences=["One.", "Two."]),
    {"words": "他 来 了"},
    {"sentences": ["One. Still one.", " ", "Two."]},
]
FOUND = [
    Document("A text.\nTwo lines.", source="documents"),
    Document("A row.", source="documents", entities=[(2, 5)]),
    *ITEMS[2:5],
    Document(source="documents", words=[["他", "来", "了"]]),
    Document(source="documents", sentences=["One. Still one.", "Two."]),
]


def test_texts_rows_and_documents_in_memory_and_only_once(tmp_path):
    assert read(ITEMS) == FOUND
    assert read(iter(ITEMS), tmp_path / "spool") == FOUND
    assert read((item for item in ITEMS), tmp_path / "spool", unicode="nfc") == FOUND


def test_what_is_no_source_is_refused(tmp_path):
    assert "one dict" in refusal({"text": "x"})
    assert "one bytes" in refusal(b"x")
    assert "one int" in refusal(3)
    assert "documents, row 2: an int" in refusal([{"text": "x"}, 3])
    assert "no document" in refusal([{"text": " "}])
    assert "no document" in refusal(iter([]), spool=tmp_path / "spool")
    assert "no field 'text'" in refusal([{"body": "x"}])
    assert "no such file" in refusal(["a text in a list is a path"])


def test_what_is_kept_takes_no_memory(tmp_path):
    tracemalloc.start()
    try:
        reader = Reader((f"{n} " + "word " * 2000 for n in range(2000)), Reading(), tmp_path / "spool")
        assert sum(1 for _ in reader.documents(Counts())) == 2000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reader.total > 20_000_000
    assert peak < 1_000_000


def test_datasets_are_known_without_their_package(tmp_path):
    datasets = pytest.importorskip("datasets")
    texts = [f"Text {number}." for number in range(600)]
    table = datasets.Dataset.from_dict({"text": texts, "id": list(range(600)), "entities": [[[0, 4]]] * 600})
    result = read(table)
    assert [document.text for document in result] == texts
    assert result[5].entities == [(0, 4)]
    assert [document.text for document in read(table.select([5, 3]))] == ["Text 5.", "Text 3."]
    both = datasets.DatasetDict({"train": table, "test": table.select([1])})
    assert [document.text for document in read(both)] == [*texts, "Text 1."]
    assert [document.text for document in read(table.to_iterable_dataset(), tmp_path / "spool")] == texts
    assert [document.text for document in read(table.with_format("numpy"))] == texts
    assert [document.text for document in read(table["text"], tmp_path / "spool")] == texts
    assert "no column 'body'" in refusal(table, field="body")
    pairs = datasets.Dataset.from_dict({"en": ["one"], "de": ["eins"], "text": ["x"]})
    assert read(pairs, pairs=("en", "de"))[0].sentences == ["one", "eins"]


def test_the_package_of_datasets_is_never_imported():
    source = [module.__file__ for name, module in sys.modules.items() if name.startswith("clozeworks.data.")]
    assert source
    for file in source:
        with open(file, encoding="utf-8") as stream:
            assert "import datasets" not in stream.read()


WORDS = [
    ("他 来 了", ["他", "来", "了"]),
    (
        ["我", "爱", "New", "York", "City", "的", "3", "4", "月"],
        ["我", "爱", "New", " York", " City", "的", "3", " 4", "月"],
    ),
    (["１９９８年", "１", "２"], ["１９９８年", "１", "２"]),
    (["Hello", ",", "world"], ["Hello", ",", "world"]),
    (["한국", "말"], ["한국", " 말"]),
]


@pytest.mark.parametrize(("given_words", "expected"), WORDS)
def test_words_carry_the_space_before_them(given_words, expected):
    document = read([{"words": given_words}])[0]
    assert document.words == [expected]
    parts_ = given_words.split() if isinstance(given_words, str) else given_words
    assert "".join(spaced(parts_)) == "".join(expected)
    assert spaced(expected) == expected


@given(st.lists(st.lists(st.text(st.sampled_from("ab1中文。 \n"), max_size=6), max_size=6), min_size=1, max_size=5))
@settings(max_examples=200)
def test_sentences_of_words_lose_nothing_but_white_space(sentences):
    result = list(Reader([{"words": sentences}, {"text": "x"}], Reading(), None).documents(Counts()))
    words = result[0].words if result[0].words else []
    assert "".join("".join(map("".join, words)).split()) == "".join("".join(map("".join, sentences)).split())
    assert all(word.strip() and word == word.rstrip() for sentence in words for word in sentence)
    assert all("".join(spaced(sentence)) == "".join(sentence) for sentence in words)


def test_fields_choose_words_and_sentences():
    row = {"text": "他来了", "words": [["他", "来了"]], "sentences": ["他", "来了"]}
    assert read([row])[0] == Document("他来了", source="documents", words=[["他", "来了"]])
    assert read([row], field="words")[0].words == [["他", "来了"]]
    assert read([row], field="sentences")[0].sentences == ["他", "来了"]
    assert "field 'words' holds an int" in refusal([{"words": 3}])
    assert "field 'sentences' holds a str" in refusal([{"sentences": "他。来了。"}])
    assert read([{"sentences": "他来了"}], field="sentences")[0].text == "他来了"  # asked for by name
    assert "holds a list of int and str" in refusal([{"words": ["a", 3]}])
    assert "field 'sentences' holds a dict" in refusal([{"sentences": {"a": 1}}])


def test_long_sentences_of_words_and_long_documents_are_divided(monkeypatch):
    monkeypatch.setattr(segmented, "LONGEST", 10)
    monkeypatch.setattr(parts, "PART_CHARACTERS", 25)
    result = read([{"words": ["word"] * 12}])
    assert [document.part for document in result] == [0, 1, 2]
    sentences = [sentence for document in result for sentence in document.words or []]
    assert all(len("".join(sentence)) <= 10 for sentence in sentences)
    assert "".join("".join(map("".join, sentences)).split()) == "word" * 12


@pytest.mark.skipif(not SHARED.is_dir(), reason="real text is not here")
def test_gold_words_of_real_text():
    file = SHARED / "zh_news_pd1998" / "train.jsonl"
    with file.open(encoding="utf-8") as stream:
        rows = [json.loads(line)["words"] for line in stream]
    result = list(Reader(file, Reading(), None).documents(Counts()))
    assert len(result) == len(rows)
    for row, document in zip(rows, result, strict=True):
        assert [word.strip() for word in document.words[0]] == row.split()
