"""What preparing needs to know: language, words, vocabulary, lengths, room."""

import random

from clozeworks.data.checks import needs
from clozeworks.data.checks.check import Report
from clozeworks.data.checks.finding import Aim
from clozeworks.data.tokens.tokenizer import Tokenizer
from tests.data.checks.samples import chinese, look, prose, reports


def test_short_documents(tmp_path):
    short = look(tmp_path, [text[:60] + "." for text in prose()])
    assert reports(short, "100% of the documents are shorter than an example of 128 tokens")
    assert reports(look(tmp_path, prose()), "shorter than an example", "fine")


def test_language(tmp_path):
    report = look(tmp_path, chinese(), aim=Aim(lang="en", vocab=256))
    assert reports(report, "--lang en, but 100% of the letters are Chinese")
    assert report.options()["--lang"] == "zh"
    assert reports(look(tmp_path, chinese(), aim=Aim(lang="zh", vocab=256)), "language zh", "fine")
    late = prose(400, 1) + chinese(1500)
    assert reports(look(tmp_path, late), "the beginning looks like en, the whole like zh")


def test_chinese_words(tmp_path, monkeypatch):
    segmented = [" ".join(text[i : i + 2] for i in range(0, len(text), 2)) for text in chinese()]
    assert look(tmp_path, segmented).options()["--segmenter"] == "spaces"
    assert "--segmenter" not in look(tmp_path, segmented, aim=Aim(vocab=256, segmenter="spaces")).options()
    assert "--segmenter" not in look(tmp_path, chinese()).options()
    assert reports(look(tmp_path, chinese(), aim=Aim(segmenter="spaces")), "hardly any spaces")
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: None)
    assert reports(look(tmp_path, chinese()), "pip install 'clozeworks[zh]'", "wrong")
    assert not look(tmp_path, chinese(), aim=Aim(vocab=256, segmenter="none")).wrong
    assert not look(tmp_path, prose()).wrong


def test_too_little_text_for_the_vocabulary(tmp_path):
    report = look(tmp_path, prose(), aim=Aim(vocab=8192))
    assert reports(report, "are few for 8,192 pieces")
    assert int(report.options()["--vocab"]) * needs.ENOUGH <= report.facts["characters"]
    assert reports(look(tmp_path, prose()), "enough text for 256 pieces", "fine")
    assert reports(look(tmp_path, prose(), aim=Aim(vocab=10)), "wordpiece takes 64 to", "wrong")


def test_chinese_characters_without_a_place(tmp_path):
    draw = random.Random(0)
    many = ["".join(chr(0x4E00 + draw.randrange(2000)) for _ in range(400)) + "。" for _ in range(300)]
    report = look(tmp_path, many, aim=Aim(vocab=1000))
    assert reports(report, "of the Chinese characters find no place in 1,000 pieces")
    assert int(report.options()["--vocab"]) >= 2500
    assert not reports(look(tmp_path, many, aim=Aim(vocab=3000)), "find no place")
    assert "--vocab" not in look(tmp_path, many[:30], aim=Aim(vocab=1000, lang="en")).options()
    assert not reports(look(tmp_path, many, aim=Aim(vocab=1000, kind="bytes")), "find no place")


def test_tokens_unknown_to_a_tokenizer(tmp_path):
    known = Tokenizer.train(lambda: iter(prose()), "wordpiece", 200, True, "en")
    report = look(tmp_path, prose(seed=1), aim=Aim(tokenizer=known))
    assert reports(report, "0% of the tokens in a sample are unknown", "fine")
    assert reports(look(tmp_path, chinese(), aim=Aim(tokenizer=known)), "does its language fit the text?")


def test_room(tmp_path, monkeypatch):
    out = tmp_path / "x" / "data"
    assert reports(look(tmp_path, prose(), aim=Aim(out=out)), "MB are free", "fine")
    assert reports(look(tmp_path, prose(), aim=Aim(out=tmp_path)), "there is something in it", "wrong")
    assert not look(tmp_path, prose(), aim=Aim(out=tmp_path, overwrite=True)).wrong
    assert reports(look(tmp_path, prose(), aim=Aim(out=tmp_path / "a.txt" / "b")), "no directory", "wrong")
    monkeypatch.setattr(needs.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 1000}))
    assert reports(look(tmp_path, prose(), aim=Aim(out=out)), "make room", "wrong")


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

    assert reports(tried("fine"), "gives words for 300 sentences", "fine")
    report = tried("short")
    assert reports(report, "(does not join ", "note")
    assert reports(report, "of 300 sentences", "note")
    assert reports(tried("raises"), "ValueError: no on each of the first 100 sentences", "wrong")
    assert reports(tried("absent"), "it has no such function", "wrong")
    without = look(tmp_path, texts, aim=Aim(segmenter="none"))
    assert not any("segmenter" in finding.text for finding in without.findings)


def test_the_advised_vocabulary_holds_the_alphabet(tmp_path):
    texts = ["".join(map(chr, range(0x4E00, 0x4E00 + 150))) + "。"] * 2
    report = look(tmp_path, texts, aim=Aim())
    size = int(report.options()["--vocab"])
    trained = Tokenizer.train(texts, "wordpiece", size, lang="zh")
    assert trained.unk not in trained.encode(["".join(texts)])[0].ids
    assert size < 400
