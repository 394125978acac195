import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.text import parts
from clozeworks.data.text.documents import Document
from clozeworks.data.text.normal import RUN, moved, normalise
from clozeworks.data.text.reader import Reader, Reading

accented = st.text(st.sampled_from("ae中ﬁ１ \n\u0301\u0316\u0323각ㅏ\u1100\u1161\u0f73é\0\r"), max_size=120)
texts = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), accented)


def rows(items, **options) -> list[Document]:
    return list(Reader(items, Reading(**options), None).documents(Counts()))


@given(texts, st.sampled_from(["nfc", "nfkc"]))
@settings(max_examples=500, deadline=None)  # the first look finds out which characters are marks
def test_it_is_the_standard_form(text, form):
    if not any(unicodedata.combining(character) for character in text) or len(text) <= RUN:
        assert normalise(text, form) == unicodedata.normalize(form.upper(), text)


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0316\u0301\u0323", "\u0f73", "\u0301"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
def test_millions_of_marks_take_seconds(tmp_path, marks, kind):
    file = tmp_path / f"a{kind}"
    text = "e" + marks * (5_000_000 // len(marks))
    file.write_text(text if kind == ".txt" else f'{{"text": "{text}"}}', encoding="utf-8")
    start = time.process_time()
    reader = Reader(file, Reading(unicode="nfc"), None)
    size = sum(len(document.text) for document in reader.documents(Counts()))
    assert time.process_time() - start < 20  # unbounded runs take hours
    assert size >= len(text) - 1


def test_runs_up_to_the_limit_are_sorted_as_ever():
    text = "a" + "\u0301\u0316" * (RUN // 2) + "b" + "\u0301\u0316" * 400 + "c"
    done = normalise(text, "nfc")
    whole = unicodedata.normalize("NFC", text)
    assert done.split("b")[0] == whole.split("b")[0]
    assert done != whole  # the long run is not sorted as a whole: that is what takes hours
    assert sorted(unicodedata.normalize("NFD", done)) == sorted(unicodedata.normalize("NFD", whole))


@given(accented, st.lists(st.integers(0, 120), max_size=8), st.sampled_from(["none", "nfc", "nfkc"]))
@settings(max_examples=500)
def test_offsets_move_as_the_text_before_them(text, offsets, form):
    def change(piece: str) -> str:
        return normalise(piece.replace("\0", "").replace("\r\n", "\n"), form)

    offsets = [min(offset, len(text)) for offset in offsets]
    assert moved(text, offsets, change) == {offset: len(change(text[:offset])) for offset in offsets}


def test_changed_documents_are_counted(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("cafe\u0301\nre\u0301sume\u0301\n\nplain\n\n１２３\n", encoding="utf-8")
    for form, expected, changed in (
        ("none", ["cafe\u0301\nre\u0301sume\u0301", "plain", "１２３"], 0),
        ("nfc", ["café\nrésumé", "plain", "１２３"], 1),
        ("nfkc", ["café\nrésumé", "plain", "123"], 2),
    ):
        counts = Counts()
        reader = Reader(file, Reading(unicode=form), None)
        assert [document.text for document in reader.documents(counts)] == expected
        assert counts.normalised == changed


def test_spans_follow_their_text():
    text = "\0Le cafe\u0301 de\r\nＮＹ est ouvert"
    begin = text.index("Ｎ")
    row = {"text": text, "entities": [[begin, begin + 2], [4, 9]], "phrases": [[4, len(text)]]}
    for form in ("none", "nfc", "nfkc"):
        document = rows([row], unicode=form)[0]
        entities = [document.text[first:last] for first, last in document.entities]
        assert [normalise(part, form) for part in ("cafe\u0301", "ＮＹ")] == entities
        assert document.text[slice(*document.phrases[0])].endswith("ouvert")


@pytest.mark.parametrize(
    "spans",
    [
        [[0, 0]],
        [[2, 1]],
        [[0, 99]],
        [[-1, 2]],
        [[0, True]],
        [[0, 1.0]],
        [["a", "b"]],
        [[0]],
        [[0, 3], [2, 4]],
        "ab",
        [3],
    ],
)
def test_bad_spans_are_refused_or_left_out(spans):
    row = {"text": "some text", "phrases": spans}
    with pytest.raises(InputError, match=r"documents, row 1: phrases .*inside the text"):
        rows([row])
    counts = Counts()
    document = next(iter(Reader([row], Reading(errors="skip"), None).documents(counts)))
    assert counts.bad_spans == 1
    assert len(document.phrases) == (spans == [[0, 3], [2, 4]])


def test_kinds_of_spans_may_overlap():
    document = rows([{"text": "New York City", "phrases": [[0, 13]], "entities": [[0, 8]]}])[0]
    assert (document.phrases, document.entities) == ([(0, 13)], [(0, 8)])


def test_a_span_of_white_space_goes_with_it(monkeypatch):
    monkeypatch.setattr(parts, "PART_CHARACTERS", 5)
    counts = Counts()
    list(Reader([{"text": "xaaaa   aax", "entities": [[0, 1], [5, 6]]}], Reading(), None).documents(counts))
    assert counts.bad_spans == 1


@given(st.text(st.sampled_from("ab中。. \n"), min_size=1, max_size=200), st.data())
@settings(max_examples=300)
def test_spans_survive_the_cutting_of_long_documents(text, data):
    text = f"x{text}x"
    edges = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    spans = list(zip(edges[::2], edges[1::2], strict=False))
    counts = Counts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_CHARACTERS", data.draw(st.integers(5, 60)))
        actual = list(Reader([{"text": text, "entities": spans}], Reading(), None).documents(counts))
    kept = [part.text[begin:end] for part in actual for begin, end in part.entities]
    assert len(kept) + counts.bad_spans == len(spans)
    expected = iter(text[begin:end] for begin, end in spans)
    assert all(any(piece == other for other in expected) for piece in kept)  # in order
    if len(actual) == 1:
        assert not counts.bad_spans
