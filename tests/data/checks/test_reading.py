"""What cannot be read is named with its place and with what mends it: encodings, bytes, rows, spans, pairs."""

import gzip

import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.checks.check import check
from clozeworks.data.checks.finding import Aim
from clozeworks.data.text.reader import Reading
from tests.data.checks.samples import chinese, look, prose, reports, rows


def test_another_encoding_is_named_and_the_text_still_looked_at(tmp_path):
    report = look(tmp_path, "\n\n".join(chinese()).encode("gb18030"))
    assert reports(report, "a.txt looks like gb18030 (line 1", "wrong")
    assert report.options()["--encoding"] == "gb18030"
    assert report.facts["documents"] == 30
    assert report.facts["language"] == "zh"
    assert not look(tmp_path, "\n\n".join(chinese()).encode("gb18030"), encoding="gb18030").wrong
    assert not look(tmp_path, "\n\n".join(chinese()).encode("gb18030"), encoding="auto").wrong


def test_utf16_is_no_text_with_many_nuls(tmp_path):
    report = look(tmp_path, "\n\n".join(prose()).encode("utf-16-le"))
    assert report.options()["--encoding"] == "utf-16-le"
    assert not reports(report, "NUL character will")
    assert not reports(report, "NUL characters will")


def test_an_encoding_asked_for_in_vain(tmp_path):
    report = look(tmp_path, chinese(), encoding="gb18030")
    assert reports(report, "looks like utf-8", "wrong")
    assert report.options()["--encoding"] == "utf-8"
    assert not look(tmp_path, prose(), encoding="gb18030").wrong


def test_mixed_encodings_are_reported_file_by_file(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.txt").write_bytes("\n\n".join(chinese()).encode("gb18030"))
    (tmp_path / "d" / "b.txt").write_bytes("\n\n".join(chinese(seed=1)).encode())
    (tmp_path / "d" / "c.txt.gz").write_bytes(gzip.compress("\n\n".join(prose()).encode("utf-16")))
    report = check(tmp_path / "d", Reading())
    assert reports(report, "a.txt looks like gb18030", "wrong")
    assert reports(report, "c.txt.gz looks like utf-16-le", "wrong")
    assert not reports(report, "b.txt looks", "wrong")
    assert report.options()["--encoding"] == "auto"
    assert report.facts["documents"] == 90


def test_every_undecodable_byte_is_counted_and_the_first_are_named(tmp_path):
    text = "\n\n".join(chinese()).encode().replace("书".encode(), b"\xff", 3)
    report = look(tmp_path, text)
    assert reports(report, "3 sequences of bytes in 1 file cannot be decoded", "wrong")
    assert reports(report, "a.txt (line", "wrong")
    assert report.options() == {"--errors": "replace"}
    assert report.facts["documents"] > 20
    for errors in ("replace", "skip"):
        report = look(tmp_path, text, errors=errors)
        assert not report.wrong
        assert reports(report, "cannot be decoded")


def test_skip_is_recommended_where_replace_would_stop(tmp_path):
    good = rows(*({"text": text} for text in chinese())).encode()
    report = look(tmp_path, good + b'{"text": "\xff"}\n{not json\n', "a.jsonl")
    assert reports(report, "1 sequence of bytes in 1 file cannot be decoded: ", "wrong")
    assert reports(report, "a.jsonl, line 32: not JSON", "wrong")
    assert report.options()["--errors"] == "skip"


def test_a_damaged_file_in_another_encoding(tmp_path):
    report = look(tmp_path, "\n\n".join(chinese()).encode("gb18030") + b"\n\n\xff\xff.\n")
    assert reports(report, "a.txt looks like gb18030", "wrong")
    assert reports(report, "0xff is not gb18030", "wrong")
    assert report.options() == {"--encoding": "gb18030", "--errors": "replace"}


def test_lines_of_undecodable_bytes(tmp_path):
    report = look(tmp_path, b"One.\n\nT\xffwo.\n\nThree.\nFo\xfeur.\n\xff\nEnd.\n\n\xff.\n" + chinese()[0].encode())
    assert reports(report, "(lines 3, 6, 7 and others)", "wrong")
    many = "\n".join(chinese(700)).encode()  # more than one piece of the file
    assert reports(look(tmp_path, many + b"\n\xff\n"), "(line 701)", "wrong")


def test_rows_that_cannot_be_read(tmp_path):
    good = rows(*({"text": text} for text in prose()))
    report = look(tmp_path, good + "{not json\n" + good, "a.jsonl")
    assert reports(report, "a.jsonl, line 31: not JSON", "wrong")
    assert report.options()["--errors"] == "skip"
    assert report.facts["documents"] == 60
    assert not look(tmp_path, good, "a.jsonl").wrong
    assert reports(look(tmp_path, good + "{not json\n", "a.jsonl", errors="skip"), "1 line or row")
    assert reports(look(tmp_path, good + "{not json\n", "a.jsonl", errors="replace"), "not JSON", "wrong")


def test_a_missing_field_names_those_there_are(tmp_path):
    assert reports(
        look(tmp_path, rows({"body": "One.", "title": "t"}), "a.jsonl"), "the fields are body, title", "wrong"
    )
    assert reports(look(tmp_path, "body,title\nOne.,t\n", "a.csv"), "the columns are body, title", "wrong")
    assert not look(tmp_path, rows({"body": "One.", "title": "t"}), "a.jsonl", field="body").wrong


def test_a_row_without_the_field_among_good_ones(tmp_path):
    report = look(tmp_path, rows({"text": "One."}, {"body": "Two."}, {"text": "Three."}), "a.jsonl")
    assert reports(report, "a.jsonl, line 2: no field 'text'", "wrong")
    assert report.facts["documents"] == 2


def test_spans_that_do_not_fit(tmp_path):
    good = [{"text": text, "entities": [[0, 3]]} for text in prose()]
    assert not look(tmp_path, rows(*good), "a.jsonl").wrong
    report = look(tmp_path, rows(*good, {"text": "Short.", "entities": [[2, 90]]}), "a.jsonl")
    assert reports(report, "entities with [2, 90]", "wrong")
    assert reports(report, "1 phrase or entity span", "wrong")
    assert reports(
        look(tmp_path, rows({"text": "Short.", "phrases": [[2, 90]]}), "a.jsonl", errors="skip"), "does not fit"
    )


def test_pairs(tmp_path):
    good = [{"en": text, "de": text[::-1]} for text in prose()]
    report = look(tmp_path, rows(*good), "a.jsonl", pairs=("en", "de"))
    assert reports(report, "both sides of all pairs are filled", "fine")
    assert not report.wrong
    bad = [*good, {"en": "", "de": "x"}, {"en": "Word.", "de": prose()[0]}]
    report = look(tmp_path, rows(*bad), "a.jsonl", pairs=("en", "de"))
    assert reports(report, "1 pair has an empty side")
    assert reports(report, "1 pair (3.2%) has sides")
    same = [{"en": text, "de": text} for text in prose()]
    assert reports(look(tmp_path, rows(*same), "a.jsonl", pairs=("en", "de")), "the same text on both sides")
    assert reports(look(tmp_path, prose(), pairs=("en", "de")), "rows with two fields", "wrong")


def test_empty_files_and_rows(tmp_path):
    assert reports(look(tmp_path, ""), "a.txt: an empty file", "wrong")
    assert reports(look(tmp_path, "\n \n\n"), "a file without a document", "wrong")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "empty.txt").touch()
    assert reports(check(tmp_path / "d", Reading()), "no document at all", "wrong")
    (tmp_path / "d" / "good.txt").write_text("\n\n".join(prose()))
    report = check(tmp_path / "d", Reading(), aim=Aim(vocab=256))
    assert reports(report, "1 file is empty and passed over")
    assert not report.wrong
    report = look(tmp_path, rows(*({"text": text} for text in prose()), {"text": " "}), "a.jsonl")
    assert reports(report, "1 row has no text in 'text'")


def test_a_truncated_archive_and_a_path_that_is_not_there(tmp_path):
    packed = gzip.compress("\n\n".join(prose()).encode())
    assert reports(look(tmp_path, packed[: len(packed) // 2], "a.txt.gz"), "ends too early", "wrong")
    with pytest.raises(InputError, match="no such file"):
        check(tmp_path / "none.txt", Reading())


def test_words_that_do_not_join(tmp_path):
    good = [{"text": text, "words": list(text)} for text in chinese(3)]
    assert not look(tmp_path, rows(*good), "a.jsonl").wrong
    bad = [*good, {"text": "我喜欢西瓜", "words": ["我"]}]
    report = look(tmp_path, rows(*bad), "a.jsonl")
    assert reports(report, "line 4: field 'words' does not join", "wrong")
    assert reports(report, "1 row has words that do not join to its text", "wrong")
    assert report.options()["--errors"] in ("replace", "skip")
    assert reports(look(tmp_path, rows(*bad), "a.jsonl", errors="replace"), "1 row has words that do not join", "note")
    across = {"text": "Ask Yahoo! Inc now.", "words": ["Ask", "Yahoo! Inc", "now", "."]}
    assert reports(look(tmp_path, rows(across), "a.jsonl"), "1 word lies across", "note")


@pytest.mark.parametrize("encoding", ["auto", "utf-8"])
def test_two_encodings_in_one_file(tmp_path, encoding):
    first, second = ("\n".join(chinese(4, seed)) + "\n" for seed in (1, 2))
    report = look(tmp_path, first.encode() + second.encode("gb18030"), encoding=encoding)
    assert reports(report, "two encodings in one file (UTF-8 up to line 4, then it looks like gb18030)", "wrong")
    assert not reports(report, "every byte decodes", "fine")
    assert not reports(report, "looks like gb18030 (line", "wrong")
    assert report.options() == {**report.options(), "--encoding": "auto", "--errors": "skip"}
    assert not reports(look(tmp_path, (first + second).encode("gb18030"), encoding="auto"), "two encodings", "wrong")
