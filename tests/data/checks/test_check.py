"""Each finding has a text that leads to it and one that does not."""

import gzip
import io
import json
import random
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.checks import needs, survey
from clozeworks.data.checks.check import Report, check
from clozeworks.data.checks.finding import Aim, share
from clozeworks.data.text.documents import Document
from clozeworks.data.text.reader import Reading
from clozeworks.data.tokens.tokenizer import Tokenizer
from tests.conftest import SHARED

WORDS = [
    "the",
    "small",
    "river",
    "of",
    "stones",
    "runs",
    "near",
    "every",
    "old",
    "house",
    "while",
    "people",
    "sleep",
    "or",
    "talk",
    "about",
    "winter",
]
HAN = "中国人民在这个大地上生活工作学习他们喜欢书和音乐天气很好我今年去北京看朋友"


def prose(documents: int = 30, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    sentence = lambda: " ".join(draw.choices(WORDS, k=draw.randint(6, 12))).capitalize() + "."  # noqa: E731
    return [" ".join(sentence() for _ in range(draw.randint(14, 20))) for _ in range(documents)]


def chinese(documents: int = 30, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    sentence = lambda: "".join(draw.choices(HAN, k=draw.randint(8, 20))) + "。"  # noqa: E731
    return ["".join(sentence() for _ in range(40)) for _ in range(documents)]


def look(
    tmp_path: Path, content: list[str] | str | bytes, name: str = "a.txt", aim: Aim | None = None, **reading
) -> Report:
    if isinstance(content, list):
        content = "\n\n".join(content) + "\n"
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return check([file], Reading(**reading), aim=aim or Aim(vocab=256))


def rows(*several: dict) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in several)


def found(report: Report, words: str, kind: str = "note") -> bool:
    """Is there a finding of this kind with these words in it or in what to do?"""
    return any(words in f"{finding.text}; {finding.todo}" and finding.kind == kind for finding in report.findings)


def test_good_prose_is_fine(tmp_path):
    report = look(tmp_path, prose())
    assert {finding.kind for finding in report.findings} == {"fine"}
    assert report.options() == {}
    facts = report.facts
    assert (facts["files"], facts["documents"], facts["language"]) == (1, 30, "en")
    assert facts["characters"] == sum(map(len, prose()))
    assert facts["sentences"] == sum(text.count(".") for text in prose())


def test_good_chinese_is_fine(tmp_path):
    report = look(tmp_path, chinese())
    assert {finding.kind for finding in report.findings} == {"fine"}
    assert report.facts["language"] == "zh"


# ---- reading


def test_another_encoding_is_named_and_the_text_still_looked_at(tmp_path):
    report = look(tmp_path, "\n\n".join(chinese()).encode("gb18030"))
    assert found(report, "a.txt looks like gb18030 (line 1", "wrong")
    assert report.options()["--encoding"] == "gb18030"
    assert report.facts["documents"] == 30
    assert report.facts["language"] == "zh"
    assert not look(tmp_path, "\n\n".join(chinese()).encode("gb18030"), encoding="gb18030").wrong
    assert not look(tmp_path, "\n\n".join(chinese()).encode("gb18030"), encoding="auto").wrong


def test_utf16_is_no_text_with_many_nuls(tmp_path):
    report = look(tmp_path, "\n\n".join(prose()).encode("utf-16-le"))
    assert report.options()["--encoding"] == "utf-16-le"
    assert not found(report, "NUL character will")
    assert not found(report, "NUL characters will")


def test_an_encoding_asked_for_in_vain(tmp_path):
    report = look(tmp_path, chinese(), encoding="gb18030")
    assert found(report, "looks like utf-8", "wrong")
    assert report.options()["--encoding"] == "utf-8"
    assert not look(tmp_path, prose(), encoding="gb18030").wrong


def test_mixed_encodings_are_told_file_by_file(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.txt").write_bytes("\n\n".join(chinese()).encode("gb18030"))
    (tmp_path / "d" / "b.txt").write_bytes("\n\n".join(chinese(seed=1)).encode())
    (tmp_path / "d" / "c.txt.gz").write_bytes(gzip.compress("\n\n".join(prose()).encode("utf-16")))
    report = check(tmp_path / "d", Reading())
    assert found(report, "a.txt looks like gb18030", "wrong")
    assert found(report, "c.txt.gz looks like utf-16-le", "wrong")
    assert not found(report, "b.txt looks", "wrong")
    assert report.options()["--encoding"] == "auto"
    assert report.facts["documents"] == 90


def test_every_undecodable_byte_is_counted_and_the_first_are_named(tmp_path):
    text = "\n\n".join(chinese()).encode().replace("书".encode(), b"\xff", 3)
    report = look(tmp_path, text)
    assert found(report, "3 sequences of bytes in 1 file cannot be decoded", "wrong")
    assert found(report, "a.txt (line", "wrong")
    assert report.options() == {"--errors": "replace"}
    assert report.facts["documents"] > 20
    for errors in ("replace", "skip"):
        report = look(tmp_path, text, errors=errors)
        assert not report.wrong
        assert found(report, "cannot be decoded")


def test_skip_is_recommended_where_replace_would_stop(tmp_path):
    good = rows(*({"text": text} for text in chinese())).encode()
    report = look(tmp_path, good + b'{"text": "\xff"}\n{not json\n', "a.jsonl")
    assert found(report, "1 sequence of bytes in 1 file cannot be decoded: ", "wrong")
    assert found(report, "a.jsonl, line 32: not JSON", "wrong")
    assert report.options()["--errors"] == "skip"


def test_a_damaged_file_in_another_encoding(tmp_path):
    report = look(tmp_path, "\n\n".join(chinese()).encode("gb18030") + b"\n\n\xff\xff.\n")
    assert found(report, "a.txt looks like gb18030", "wrong")
    assert found(report, "0xff is not gb18030", "wrong")
    assert report.options() == {"--encoding": "gb18030", "--errors": "replace"}


def test_lines_of_undecodable_bytes(tmp_path):
    report = look(tmp_path, b"One.\n\nT\xffwo.\n\nThree.\nFo\xfeur.\n\xff\nEnd.\n\n\xff.\n" + chinese()[0].encode())
    assert found(report, "(lines 3, 6, 7 and others)", "wrong")
    many = "\n".join(chinese(700)).encode()  # more than one piece of the file
    assert found(look(tmp_path, many + b"\n\xff\n"), "(line 701)", "wrong")


def test_rows_that_cannot_be_read(tmp_path):
    good = rows(*({"text": text} for text in prose()))
    report = look(tmp_path, good + "{not json\n" + good, "a.jsonl")
    assert found(report, "a.jsonl, line 31: not JSON", "wrong")
    assert report.options()["--errors"] == "skip"
    assert report.facts["documents"] == 60
    assert not look(tmp_path, good, "a.jsonl").wrong
    assert found(look(tmp_path, good + "{not json\n", "a.jsonl", errors="skip"), "1 line or row")
    assert found(look(tmp_path, good + "{not json\n", "a.jsonl", errors="replace"), "not JSON", "wrong")


def test_a_missing_field_names_those_there_are(tmp_path):
    assert found(look(tmp_path, rows({"body": "One.", "title": "t"}), "a.jsonl"), "the fields are body, title", "wrong")
    assert found(look(tmp_path, "body,title\nOne.,t\n", "a.csv"), "the columns are body, title", "wrong")
    assert not look(tmp_path, rows({"body": "One.", "title": "t"}), "a.jsonl", field="body").wrong


def test_a_row_without_the_field_among_good_ones(tmp_path):
    report = look(tmp_path, rows({"text": "One."}, {"body": "Two."}, {"text": "Three."}), "a.jsonl")
    assert found(report, "a.jsonl, line 2: no field 'text'", "wrong")
    assert report.facts["documents"] == 2


def test_spans_that_do_not_fit(tmp_path):
    good = [{"text": text, "entities": [[0, 3]]} for text in prose()]
    assert not look(tmp_path, rows(*good), "a.jsonl").wrong
    report = look(tmp_path, rows(*good, {"text": "Short.", "entities": [[2, 90]]}), "a.jsonl")
    assert found(report, "entities with [2, 90]", "wrong")
    assert found(report, "1 phrase or entity span", "wrong")
    assert found(
        look(tmp_path, rows({"text": "Short.", "phrases": [[2, 90]]}), "a.jsonl", errors="skip"), "does not fit"
    )


def test_pairs(tmp_path):
    good = [{"en": text, "de": text[::-1]} for text in prose()]
    report = look(tmp_path, rows(*good), "a.jsonl", pairs=("en", "de"))
    assert found(report, "both sides of all pairs are filled", "fine")
    assert not report.wrong
    bad = [*good, {"en": "", "de": "x"}, {"en": "Word.", "de": prose()[0]}]
    report = look(tmp_path, rows(*bad), "a.jsonl", pairs=("en", "de"))
    assert found(report, "1 pair has an empty side")
    assert found(report, "1 pair (3.2%) has sides")
    same = [{"en": text, "de": text} for text in prose()]
    assert found(look(tmp_path, rows(*same), "a.jsonl", pairs=("en", "de")), "the same text on both sides")
    assert found(look(tmp_path, prose(), pairs=("en", "de")), "rows with two fields", "wrong")


def test_empty_files_and_rows(tmp_path):
    assert found(look(tmp_path, ""), "a.txt: an empty file", "wrong")
    assert found(look(tmp_path, "\n \n\n"), "a file without a document", "wrong")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "empty.txt").touch()
    assert found(check(tmp_path / "d", Reading()), "no document at all", "wrong")
    (tmp_path / "d" / "good.txt").write_text("\n\n".join(prose()))
    report = check(tmp_path / "d", Reading(), aim=Aim(vocab=256))
    assert found(report, "1 file is empty and passed over")
    assert not report.wrong
    report = look(tmp_path, rows(*({"text": text} for text in prose()), {"text": " "}), "a.jsonl")
    assert found(report, "1 row has no text in 'text'")


def test_a_truncated_archive_and_a_path_that_is_not_there(tmp_path):
    packed = gzip.compress("\n\n".join(prose()).encode())
    assert found(look(tmp_path, packed[: len(packed) // 2], "a.txt.gz"), "ends too early", "wrong")
    with pytest.raises(InputError, match="no such file"):
        check(tmp_path / "none.txt", Reading())


def test_links_that_lead_nowhere(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "good.txt").write_text("\n\n".join(prose()))
    (tmp_path / "d" / "bad.txt").symlink_to(tmp_path / "nowhere.txt")
    assert found(check(tmp_path / "d", Reading()), "1 link leads nowhere")


def test_standard_input_is_looked_at_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"body": "One."}\n')))
    assert found(check("-", Reading()), "standard input, line 1: no field", "wrong")


# ---- characters


def test_nul_and_control_characters(tmp_path):
    report = look(tmp_path, "\n\n".join(prose()).replace("river", "ri\0ver", 2).replace("stones", "\x07stones", 3))
    assert found(report, "2 NUL characters will be removed")
    assert found(report, "3 control characters: U+0007 3")
    assert found(look(tmp_path, "\n\n".join(prose()).replace(" ", "\t", 9)), "no NUL and no other", "fine")


@pytest.mark.parametrize("sign", ["\ufffd", "cafÃ© ", "donâ€™t ", "锟斤拷", "烫烫烫烫", "ÖÐ¹úµÄ", "鐨勯銆锛 "])
def test_text_that_was_damaged_before(tmp_path, sign):
    texts = prose()
    assert found(look(tmp_path, [*texts, sign * 5]), "go back to the original")
    assert not found(
        look(tmp_path, [*texts, "Garçon, café, señor, Übergröße, «Âge»… £5 — don’t."]), "go back to the original"
    )


def test_forms_of_unicode(tmp_path):
    report = look(tmp_path, [*prose(), "Cafe\u0301 au lait."])
    assert found(report, "of the documents are not in Unicode's form NFC")
    assert report.options()["--unicode"] == "nfc"
    assert not found(look(tmp_path, [*prose(), "Cafe\u0301 au lait."], unicode="nfc"), "NFC")
    assert found(look(tmp_path, [*prose(), "Café au lait."]), "form NFC", "fine")


def test_full_width_letters(tmp_path):
    wide = ["１９９８年Ａ组的人民。" * 5]
    assert found(look(tmp_path, chinese() + wide), "--unicode nfkc")
    assert not found(look(tmp_path, [text + "（中国，人民）：好！" for text in chinese()]), "--unicode nfkc")


def test_scripts_and_runs_of_marks(tmp_path):
    report = look(tmp_path, [*prose(), "שלום עולם. " * 20, "😀" * 90, "a" + "\u0301" * 200])
    assert found(report, "from right to left", "fine")
    assert found(report, "emoji", "fine")
    assert found(report, "1 run of more than 30 combining marks on one letter, the longest of 200")
    assert report.facts["marks"] == {
        "right_to_left": 160,
        "emoji": 90,
        "combining": 200,
        "control": 0,
        "replacement": 0,
    }
    plain = look(tmp_path, prose())
    assert not found(plain, "combining")
    assert not found(plain, "emoji", "fine")


def test_millions_of_marks_take_no_longer_than_letters(tmp_path):
    report = look(tmp_path, "a" + "\u0301" * 1_500_000)
    assert found(report, "combining marks on one letter")
    assert found(report, "without the end of a sentence")


# ---- documents


def test_copies(tmp_path):
    texts = prose()
    report = look(tmp_path, texts + texts[:10])
    assert found(report, "25% of the documents are exact copies of others")
    assert "--dedupe" in report.options()
    assert "--dedupe" not in look(tmp_path, texts + texts[:10], aim=Aim(vocab=256, dedupe=True)).options()
    assert found(look(tmp_path, texts), "no document is an exact copy", "fine")


def test_copies_among_more_documents_than_are_remembered(monkeypatch):
    monkeypatch.setattr(survey, "KEPT", 64)
    copies = survey.Copies()
    draw = random.Random(0)
    keys = [draw.getrandbits(64) for _ in range(5000)]
    for key in keys + keys[:2500]:
        copies.add(key)
    assert copies.every >= 64
    assert len(copies.keys) <= 64
    assert 0.15 < copies.share() < 0.5  # a third


def test_documents_of_one_sentence(tmp_path):
    lone = [text.split(".")[0] + "." for text in prose(300)]
    assert found(look(tmp_path, lone), "100% of the documents have one sentence only")
    assert not found(look(tmp_path, prose()), "one sentence only")


def test_one_document_for_want_of_blank_lines(tmp_path):
    report = look(tmp_path, "\n".join(prose(200)))
    assert found(report, "a.txt: one document of")
    assert found(report, "nothing can be held out")
    assert not found(look(tmp_path, prose(200)), "one document")


def test_a_document_a_line(tmp_path):
    report = look(tmp_path, "\n".join(prose(1500)))
    assert found(report, "1,500 lines, each like a text of its own")
    assert found(report, "sed G ")
    assert not found(look(tmp_path, prose(1500)), "each like a text of its own")


@pytest.mark.parametrize("width", [40, 72])
def test_lines_broken_at_a_column(tmp_path, width):
    import textwrap

    wrapped = ["\n".join(textwrap.wrap(text, width)) for text in prose()]
    report = look(tmp_path, wrapped)
    assert found(report, "lines are broken inside sentences")
    assert "--unwrap" in report.options()
    assert "--unwrap" not in look(tmp_path, wrapped, unwrap=True).options()
    assert found(look(tmp_path, prose(), unwrap=True), "leave out --unwrap")
    verse = ["\n".join(" ".join(WORDS[i : i + 5]).capitalize() for i in range(10)) for _ in range(20)]
    verse.append("Two lines\nthat are broken\nas some are in verse")
    assert not found(look(tmp_path, verse), "broken inside sentences")


def test_chinese_lines_broken_at_a_column(tmp_path):
    wrapped = ["\n".join(text[i : i + 30] for i in range(0, len(text), 30)) for text in chinese()]
    assert "--unwrap" in look(tmp_path, wrapped).options()
    names = ["\n".join(text[i : i + 3] for i in range(0, len(text), 3)) for text in chinese()]
    assert "--unwrap" not in look(tmp_path, names).options()
    sentences = [text.replace("。", "。\n") for text in chinese()]
    assert "--unwrap" not in look(tmp_path, sentences).options()


def test_lines_that_come_again_in_many_documents(tmp_path):
    footer = "\nClick here to subscribe to our weekly letter"
    assert found(look(tmp_path, [text + footer for text in prose()]), "'Click here to subscribe")
    assert found(look(tmp_path, prose()), "no line comes again", "fine")


def test_lines_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(survey, "LINES", 100)
    repeated = survey.Repeated()
    for number in range(3000):
        repeated.add(f"A line of its own, number {number}\nThe same line every time")
        assert len(repeated.lines) <= 101
    (line, count), *rest = repeated.most_frequent(100)
    assert line == "The same line every time"
    assert not rest
    assert 0.9 * 3000 < count <= 3000


def test_what_is_no_prose(tmp_path):
    assert found(look(tmp_path, [f"<p class='x'>{text}</p>&nbsp;<br>" for text in prose()]), "are markup")
    assert found(look(tmp_path, [*prose(), "aGVsbG8gd29ybGQ" * 40]), "such as base64")
    assert found(look(tmp_path, [*prose(), *["12 34 5678 90123 4.5"] * 9]), "are mostly digits")
    plain = look(tmp_path, [*prose(), "In 1998, a < b & c; see [1]."])
    assert not any(found(plain, words) for words in ("are markup", "base64", "digits"))


def test_short_documents(tmp_path):
    short = look(tmp_path, [text[:60] + "." for text in prose()])
    assert found(short, "100% of the documents are shorter than an example of 128 tokens")
    assert found(look(tmp_path, prose()), "shorter than an example", "fine")


# ---- the aim


def test_language(tmp_path):
    report = look(tmp_path, chinese(), aim=Aim(lang="en", vocab=256))
    assert found(report, "--lang en, but 100% of the letters are Chinese")
    assert report.options()["--lang"] == "zh"
    assert found(look(tmp_path, chinese(), aim=Aim(lang="zh", vocab=256)), "language zh", "fine")
    late = prose(400, 1) + chinese(1500)
    assert found(look(tmp_path, late), "the beginning looks like en, the whole like zh")


def test_chinese_words(tmp_path, monkeypatch):
    segmented = [" ".join(text[i : i + 2] for i in range(0, len(text), 2)) for text in chinese()]
    assert look(tmp_path, segmented).options()["--segmenter"] == "spaces"
    assert "--segmenter" not in look(tmp_path, segmented, aim=Aim(vocab=256, segmenter="spaces")).options()
    assert "--segmenter" not in look(tmp_path, chinese()).options()
    assert found(look(tmp_path, chinese(), aim=Aim(segmenter="spaces")), "hardly any spaces")
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: None)
    assert found(look(tmp_path, chinese()), "pip install 'clozeworks[zh]'", "wrong")
    assert not look(tmp_path, chinese(), aim=Aim(vocab=256, segmenter="none")).wrong
    assert not look(tmp_path, prose()).wrong


def test_too_little_text_for_the_vocabulary(tmp_path):
    report = look(tmp_path, prose(), aim=Aim(vocab=8192))
    assert found(report, "are few for 8,192 pieces")
    assert int(report.options()["--vocab"]) * needs.ENOUGH <= report.facts["characters"]
    assert found(look(tmp_path, prose()), "enough text for 256 pieces", "fine")
    assert found(look(tmp_path, prose(), aim=Aim(vocab=10)), "wordpiece takes 64 to", "wrong")


def test_chinese_characters_without_a_place(tmp_path):
    draw = random.Random(0)
    many = ["".join(chr(0x4E00 + draw.randrange(2000)) for _ in range(400)) + "。" for _ in range(300)]
    report = look(tmp_path, many, aim=Aim(vocab=1000))
    assert found(report, "of the Chinese characters find no place in 1,000 pieces")
    assert int(report.options()["--vocab"]) >= 2500
    assert not found(look(tmp_path, many, aim=Aim(vocab=3000)), "find no place")
    assert "--vocab" not in look(tmp_path, many[:30], aim=Aim(vocab=1000, lang="en")).options()
    assert not found(look(tmp_path, many, aim=Aim(vocab=1000, kind="bytes")), "find no place")


def test_tokens_unknown_to_a_tokenizer(tmp_path):
    known = Tokenizer.train(lambda: iter(prose()), "wordpiece", 200, True, "en")
    report = look(tmp_path, prose(seed=1), aim=Aim(tokenizer=known))
    assert found(report, "0% of the tokens in a sample are unknown", "fine")
    assert found(look(tmp_path, chinese(), aim=Aim(tokenizer=known)), "does its language fit the text?")


def test_room(tmp_path, monkeypatch):
    out = tmp_path / "x" / "data"
    assert found(look(tmp_path, prose(), aim=Aim(out=out)), "MB are free", "fine")
    assert found(look(tmp_path, prose(), aim=Aim(out=tmp_path)), "there is something in it", "wrong")
    assert not look(tmp_path, prose(), aim=Aim(out=tmp_path, overwrite=True)).wrong
    assert found(look(tmp_path, prose(), aim=Aim(out=tmp_path / "a.txt" / "b")), "no directory", "wrong")
    monkeypatch.setattr(needs.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 1000}))
    assert found(look(tmp_path, prose(), aim=Aim(out=out)), "make room", "wrong")


# ---- all of it


def test_documents_and_rows_in_memory():
    report = check([{"text": text} for text in prose()], Reading(), aim=Aim(vocab=256))
    assert report.facts["documents"] == 30
    assert not report.wrong
    assert found(check(iter([{"text": "One."}, {"body": "Two."}]), Reading()), "1 row cannot be read", "wrong")
    assert check((Document(text) for text in prose()), Reading()).facts["documents"] == 30


def test_memory_is_bounded(tmp_path):
    """Memory does not grow with the text."""
    draw, file = random.Random(0), tmp_path / "a.jsonl"
    with file.open("w") as stream:
        for _ in range(25_000):
            stream.write(json.dumps({"text": " ".join(draw.choices(WORDS, k=40))}) + "\n")
    look(tmp_path, prose())  # what is made once
    tracemalloc.start()
    check(file, Reading())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000


@given(st.binary(max_size=400), st.sampled_from(["a.txt", "a.jsonl", "a.csv", "a.tsv", "a.txt.gz", "a.parquet"]))
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_never_crash_it(content, name):
    with tempfile.TemporaryDirectory() as place:
        report = look(Path(place), content, name)
        assert report.findings
        assert list(Path(place).iterdir()) == [Path(place, name)]


@given(st.lists(st.text(max_size=60), max_size=6), st.sampled_from(["utf-8", "utf-16", "gb18030"]), st.booleans())
@settings(max_examples=100, deadline=None)
def test_arbitrary_text_never_crashes_it(texts, encoding, strict):
    with tempfile.TemporaryDirectory() as place:
        raw = "\n\n".join(texts).encode(encoding, "ignore")
        assert look(Path(place), raw, encoding="auto", errors="strict" if strict else "skip").findings


@given(st.integers(0, 10**7), st.integers(1, 10**7))
def test_shares_are_never_rounded_to_nothing_or_all(part, whole):
    told = share(min(part, whole), whole)
    assert (told == "0%") == (part == 0)
    assert (told == "100%") == (part >= whole)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data")
@pytest.mark.parametrize("name", ["en_wiki", "zh_wiki", "zh_law"])
def test_good_corpora_are_fine(name):
    assert not check(SHARED / name / "train.jsonl", Reading()).wrong


# ---- words, mixtures, other files, segmenters, small vocabularies


def test_words_that_do_not_join(tmp_path):
    good = [{"text": text, "words": list(text)} for text in chinese(3)]
    assert not look(tmp_path, rows(*good), "a.jsonl").wrong
    bad = [*good, {"text": "我喜欢西瓜", "words": ["我"]}]
    report = look(tmp_path, rows(*bad), "a.jsonl")
    assert found(report, "line 4: field 'words' does not join", "wrong")
    assert found(report, "1 row has words that do not join to its text", "wrong")
    assert report.options()["--errors"] in ("replace", "skip")
    assert found(look(tmp_path, rows(*bad), "a.jsonl", errors="replace"), "1 row has words that do not join", "note")
    across = {"text": "Ask Yahoo! Inc now.", "words": ["Ask", "Yahoo! Inc", "now", "."]}
    assert found(look(tmp_path, rows(across), "a.jsonl"), "1 word lies across", "note")


@pytest.mark.parametrize("encoding", ["auto", "utf-8"])
def test_two_encodings_in_one_file(tmp_path, encoding):
    first, second = ("\n".join(chinese(4, seed)) + "\n" for seed in (1, 2))
    report = look(tmp_path, first.encode() + second.encode("gb18030"), encoding=encoding)
    assert found(report, "two encodings in one file (UTF-8 up to line 4, then it looks like gb18030)", "wrong")
    assert not found(report, "every byte decodes", "fine")
    assert not found(report, "looks like gb18030 (line", "wrong")
    assert report.options() == {**report.options(), "--encoding": "auto", "--errors": "skip"}
    assert not found(look(tmp_path, (first + second).encode("gb18030"), encoding="auto"), "two encodings", "wrong")


def test_other_files_and_false_names(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(prose()))
    assert not found(check(tmp_path, Reading()), "other file")
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.7")
    assert found(check(tmp_path, Reading()), "1 other file is of a kind that is not read", "note")
    (tmp_path / "c.txt").write_bytes(gzip.compress(b"Text."))
    report = check(tmp_path, Reading())
    assert found(report, "c.txt: it is gzip", "wrong")
    assert not found(report, "cannot be decoded", "wrong")


def test_a_segmenter_is_tried(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "def fine(text): return list(text)\n"
        "def short(text): return list(text)[:-1] if '北京' in text else list(text)\n"
        "def raises(text): raise ValueError('no')\n"
    )
    texts = [*chinese(20), "我今年去北京。"]

    def tried(name: str) -> Report:
        return look(tmp_path, texts, aim=Aim(segmenter=f"{file}:{name}"))

    assert found(tried("fine"), "gives words for 300 sentences", "fine")
    report = tried("short")
    assert found(report, "(does not join ", "note")
    assert found(report, "of 300 sentences", "note")
    assert found(tried("raises"), "ValueError: no on each of the first 100 sentences", "wrong")
    assert found(tried("absent"), "it has no such function", "wrong")
    told = look(tmp_path, texts, aim=Aim(segmenter="none"))
    assert not any("segmenter" in finding.text for finding in told.findings)


def test_the_advised_vocabulary_holds_the_alphabet(tmp_path):
    texts = ["".join(map(chr, range(0x4E00, 0x4E00 + 150))) + "。"] * 2
    report = look(tmp_path, texts, aim=Aim())
    size = int(report.options()["--vocab"])
    trained = Tokenizer.train(texts, "wordpiece", size, lang="zh")
    assert trained.unk not in trained.encode(["".join(texts)])[0].ids
    assert size < 400


def test_one_of_a_thing_is_told_as_one(tmp_path):
    report = look(tmp_path, rows(*({"text": text} for text in prose()), {"text": ""}), "a.jsonl")
    assert found(report, "1 row has no text in 'text' and is passed over")
    report = look(tmp_path, rows(*({"text": text} for text in prose()), 3), "a.jsonl", errors="skip")
    assert found(report, "cannot be read and is left out")
