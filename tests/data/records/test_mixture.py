"""Files in two encodings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.mixture import find_mixture
from clozeworks.data.text.reader import Reader, Reading

LINE = "今天的天气很好，我们一起去公园看花，大家都很高兴。\n"
FRENCH = "Le café était fermé, à côté de la forêt où il a été élevé.\n"


def write(tmp_path, *pieces: tuple[str, str]):
    file = tmp_path / "a.txt"
    file.write_bytes(b"".join(text.encode(encoding) for text, encoding in pieces))
    return file


def read(file, counts=None, **options) -> str:
    result = Reader([file], Reading(**options), None).documents(Counts() if counts is None else counts)
    return "\n".join(document.text for document in result) + "\n"


def refusal(file, **options) -> str:
    with pytest.raises(InputError) as caught:
        read(file, **options)
    return str(caught.value)


@pytest.mark.parametrize("more", [3, 30, 300])
@pytest.mark.parametrize("encoding", ["auto", "utf-8"])
def test_the_line_where_they_meet_is_named(tmp_path, encoding, more):
    file = write(tmp_path, ("Plain.\n" + LINE * 20, "utf-8"), (LINE * more, "gb18030"))
    message = refusal(file, encoding=encoding)
    assert "two encodings in one file (UTF-8 up to line 21, then it looks like gb18030)" in message
    assert "--encoding gb18030" not in message
    file = write(tmp_path, (LINE * 20, "gb18030"), (LINE * more, "utf-8"))
    assert "(gb18030 up to line 20, then it looks like UTF-8)" in refusal(file, encoding=encoding)


def test_what_is_not_utf8_can_be_left_out(tmp_path):
    file = write(tmp_path, (LINE * 20, "utf-8"), (LINE[3:] * 30, "gb18030"))
    counts = Counts()
    assert read(file, counts, encoding="auto", errors="skip") == LINE * 20
    assert counts.skipped == 30


def test_latin_letters(tmp_path):
    file = write(tmp_path, (FRENCH * 9, "utf-8"), (FRENCH * 9, "cp1252"))
    assert "UTF-8 up to line 9, then it looks like cp1252" in refusal(file, encoding="auto")


def test_one_encoding_is_one(tmp_path):
    for text, encoding in ((LINE, "gb18030"), (LINE, "utf-8"), (FRENCH, "cp1252"), (FRENCH, "utf-8")):
        file = write(tmp_path, (text * 30, encoding))
        assert find_mixture(file, "") is None
        assert read(file, encoding="auto") == text * 30


def test_damaged_text_is_not_in_two_encodings(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(LINE.encode() * 50 + (b"\xff" + LINE.encode()) * 3)
    assert find_mixture(file, "") is None
    message = refusal(file, encoding="auto")
    assert "line 51, byte" in message
    assert "--encoding gb18030" not in message


@given(
    st.lists(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5), min_size=1, max_size=2), min_size=30)
)
@settings(max_examples=100, deadline=None)
def test_lists_of_short_words_are_in_one_encoding(tmp_path_factory, words):
    file = tmp_path_factory.mktemp("words") / "a.txt"
    file.write_bytes("\n".join(words).encode("gb18030"))
    assert find_mixture(file, "") is None
