"""What is strange in the text itself: characters, scripts, copies, layout, lines that come again."""

import random

import pytest

from clozeworks.data.checks import survey
from clozeworks.data.checks.finding import Aim
from tests.data.checks.samples import WORDS, chinese, look, prose, reports


def test_nul_and_control_characters(tmp_path):
    report = look(tmp_path, "\n\n".join(prose()).replace("river", "ri\0ver", 2).replace("stones", "\x07stones", 3))
    assert reports(report, "2 NUL characters will be removed")
    assert reports(report, "3 control characters: U+0007 3")
    assert reports(look(tmp_path, "\n\n".join(prose()).replace(" ", "\t", 9)), "no NUL and no other", "fine")


@pytest.mark.parametrize("sign", ["\ufffd", "cafÃ© ", "donâ€™t ", "锟斤拷", "烫烫烫烫", "ÖÐ¹úµÄ", "鐨勯銆锛 "])
def test_text_that_was_damaged_before(tmp_path, sign):
    texts = prose()
    assert reports(look(tmp_path, [*texts, sign * 5]), "go back to the original")
    assert not reports(
        look(tmp_path, [*texts, "Garçon, café, señor, Übergröße, «Âge»… £5 — don’t."]), "go back to the original"
    )


def test_forms_of_unicode(tmp_path):
    report = look(tmp_path, [*prose(), "Cafe\u0301 au lait."])
    assert reports(report, "of the documents are not in Unicode's form NFC")
    assert report.options()["--unicode"] == "nfc"
    assert not reports(look(tmp_path, [*prose(), "Cafe\u0301 au lait."], unicode="nfc"), "NFC")
    assert reports(look(tmp_path, [*prose(), "Café au lait."]), "form NFC", "fine")


def test_full_width_letters(tmp_path):
    wide = ["１９９８年Ａ组的人民。" * 5]
    assert reports(look(tmp_path, chinese() + wide), "--unicode nfkc")
    assert not reports(look(tmp_path, [text + "（中国，人民）：好！" for text in chinese()]), "--unicode nfkc")


def test_scripts_and_runs_of_marks(tmp_path):
    report = look(tmp_path, [*prose(), "שלום עולם. " * 20, "😀" * 90, "a" + "\u0301" * 200])
    assert reports(report, "from right to left", "fine")
    assert reports(report, "emoji", "fine")
    assert reports(report, "1 run of more than 30 combining marks on one letter, the longest of 200")
    assert report.facts["marks"] == {
        "right_to_left": 160,
        "emoji": 90,
        "combining": 200,
        "control": 0,
        "replacement": 0,
    }
    plain = look(tmp_path, prose())
    assert not reports(plain, "combining")
    assert not reports(plain, "emoji", "fine")


def test_millions_of_marks_take_no_longer_than_letters(tmp_path):
    report = look(tmp_path, "a" + "\u0301" * 1_500_000)
    assert reports(report, "combining marks on one letter")
    assert reports(report, "without the end of a sentence")


def test_copies(tmp_path):
    texts = prose()
    report = look(tmp_path, texts + texts[:10])
    assert reports(report, "25% of the documents are exact copies of others")
    assert "--dedupe" in report.options()
    assert "--dedupe" not in look(tmp_path, texts + texts[:10], aim=Aim(vocab=256, dedupe=True)).options()
    assert reports(look(tmp_path, texts), "no document is an exact copy", "fine")


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
    assert reports(look(tmp_path, lone), "100% of the documents have one sentence only")
    assert not reports(look(tmp_path, prose()), "one sentence only")


def test_one_document_for_want_of_blank_lines(tmp_path):
    report = look(tmp_path, "\n".join(prose(200)))
    assert reports(report, "a.txt: one document of")
    assert reports(report, "nothing can be held out")
    assert not reports(look(tmp_path, prose(200)), "one document")


def test_a_document_a_line(tmp_path):
    report = look(tmp_path, "\n".join(prose(1500)))
    assert reports(report, "1,500 lines, each like a text of its own")
    assert reports(report, "sed G ")
    assert not reports(look(tmp_path, prose(1500)), "each like a text of its own")


@pytest.mark.parametrize("width", [40, 72])
def test_lines_broken_at_a_column(tmp_path, width):
    import textwrap

    wrapped = ["\n".join(textwrap.wrap(text, width)) for text in prose()]
    report = look(tmp_path, wrapped)
    assert reports(report, "lines are broken inside sentences")
    assert "--unwrap" in report.options()
    assert "--unwrap" not in look(tmp_path, wrapped, unwrap=True).options()
    assert reports(look(tmp_path, prose(), unwrap=True), "leave out --unwrap")
    verse = ["\n".join(" ".join(WORDS[i : i + 5]).capitalize() for i in range(10)) for _ in range(20)]
    verse.append("Two lines\nthat are broken\nas some are in verse")
    assert not reports(look(tmp_path, verse), "broken inside sentences")


def test_chinese_lines_broken_at_a_column(tmp_path):
    wrapped = ["\n".join(text[i : i + 30] for i in range(0, len(text), 30)) for text in chinese()]
    assert "--unwrap" in look(tmp_path, wrapped).options()
    names = ["\n".join(text[i : i + 3] for i in range(0, len(text), 3)) for text in chinese()]
    assert "--unwrap" not in look(tmp_path, names).options()
    sentences = [text.replace("。", "。\n") for text in chinese()]
    assert "--unwrap" not in look(tmp_path, sentences).options()


def test_lines_that_come_again_in_many_documents(tmp_path):
    footer = "\nClick here to subscribe to our weekly letter"
    assert reports(look(tmp_path, [text + footer for text in prose()]), "'Click here to subscribe")
    assert reports(look(tmp_path, prose()), "no line comes again", "fine")


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
    assert reports(look(tmp_path, [f"<p class='x'>{text}</p>&nbsp;<br>" for text in prose()]), "are markup")
    assert reports(look(tmp_path, [*prose(), "aGVsbG8gd29ybGQ" * 40]), "such as base64")
    assert reports(look(tmp_path, [*prose(), *["12 34 5678 90123 4.5"] * 9]), "are mostly digits")
    plain = look(tmp_path, [*prose(), "In 1998, a < b & c; see [1]."])
    assert not any(reports(plain, words) for words in ("are markup", "base64", "digits"))
