import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.data.text.sentences import cut, split_sentences

ENGLISH = [
    ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
    ("Mr. Smith met Dr. Brown. They spoke.", ["Mr. Smith met Dr. Brown.", "They spoke."]),
    ("J. R. R. Tolkien wrote it. He did.", ["J. R. R. Tolkien wrote it.", "He did."]),
    ("The U.S. Senate sat, e.g. Smith. Then it rose.", ["The U.S. Senate sat, e.g. Smith.", "Then it rose."]),
    ("It cost 3.50 dollars. 2 of them left.", ["It cost 3.50 dollars.", "2 of them left."]),
    ("He said no. He left.", ["He said no.", "He left."]),
    ("See No. 5. Then go.", ["See No. 5.", "Then go."]),
    ('"Stop!" she cried. "Why?" "Because."', ['"Stop!" she cried.', '"Why?"', '"Because."']),
    ("He left (at last.) Nobody saw.", ["He left (at last.)", "Nobody saw."]),
    ("The end?! Yes... Perhaps... or not.", ["The end?!", "Yes...", "Perhaps... or not."]),
    ("1. First item\n2. Second item", ["1. First item", "2. Second item"]),
    ("Read python.org now. It helps.", ["Read python.org now.", "It helps."]),
    ("Well… perhaps. Or… No.", ["Well… perhaps.", "Or…", "No."]),
    ("What am I. Nothing.", ["What am I.", "Nothing."]),
]
CHINESE = [
    ("今天好。明天呢？后天！", ["今天好。", "明天呢？", "后天！"]),
    ("他说：“走吧。”我走了。", ["他说：“走吧。”", "我走了。"]),
    ("第一；第二；完", ["第一；", "第二；", "完"]),
    ("（注：见下。）正文", ["（注：见下。）", "正文"]),
    ("真的……我不信？！好", ["真的……", "我不信？！", "好"]),
    ("真好!我喜欢.下次再来", ["真好!", "我喜欢.", "下次再来"]),
    ("重3.5公斤。A.B公司", ["重3.5公斤。", "A.B公司"]),
    ("他说「好。」然后走了", ["他说「好。」", "然后走了"]),
]
MIXED = [
    ("他说：‘走吧！’“好？！”她问。", ["他说：‘走吧！’", "“好？！”", "她问。"]),
    ("「走。」「不！」他说『好；行』。", ["「走。」", "「不！」", "他说『好；", "行』。"]),
    ("等等……“什么？”……没有", ["等等……", "“什么？”", "……", "没有"]),
    ("他用Python 3.11写的。It works! 真的?!是的", ["他用Python 3.11写的。", "It works!", "真的?!", "是的"]),
    ("Really?! Yes!! No...", ["Really?!", "Yes!!", "No..."]),
    ("كيف حالك؟ أنا بخير. شكرا", ["كيف حالك؟", "أنا بخير.", "شكرا"]),
    ("یہ کتاب ہے۔ وہ قلم ہے۔", ["یہ کتاب ہے۔", "وہ قلم ہے۔"]),
    ("यह किताब है। वह कलम है॥ ठीक", ["यह किताब है।", "वह कलम है॥", "ठीक"]),
    ("Great! 😀 Next one. 👍🏽 Done", ["Great! 😀", "Next one. 👍🏽", "Done"]),
    ("太好了！😀明天见。", ["太好了！😀", "明天见。"]),
    ("😀😀 no border here", ["😀😀 no border here"]),
]


@pytest.mark.parametrize(("text", "sentences"), ENGLISH + CHINESE + MIXED)
def test_examples(text, sentences):
    assert split_sentences(text) == sentences


def test_line_breaks_always_end_a_sentence():
    assert split_sentences("no stop\nmr.\n Smith \n\n\nx") == ["no stop", "mr.", "Smith", "x"]


def test_text_without_borders_is_kept_whole():
    text = "word " * 1000 + "end"
    assert split_sentences(text) == [text]
    assert split_sentences("") == split_sentences(" \n ") == []


texts = st.one_of(st.text(), st.text(st.sampled_from(" \n\tAab1.!?。！？；…”\"')（“Mr中文؟।😀"), max_size=200))


@given(texts, st.integers(1, 30))
@settings(max_examples=500)
def test_no_character_is_lost(text, longest):
    sentences = split_sentences(text, longest)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() and len(sentence) <= longest for sentence in sentences)


@given(texts)
@settings(max_examples=200)
def test_a_sentence_never_holds_a_line_break(text):
    assert not any("\n" in sentence for sentence in split_sentences(text))


@given(texts, st.integers(1, 30))
def test_cutting_keeps_everything_within_the_limit(text, longest):
    pieces = cut(text, longest)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(piece) <= longest for piece in pieces)


def test_cuts_prefer_spaces():
    assert cut("aaa bbb ccc", 8) == ["aaa bbb", "ccc"]
    assert cut("一二三，四五六", 5) == ["一二三，", "四五六"]


@pytest.mark.parametrize("unit", [".", "!?", ". ", "…", "。", '"', " ", "A. ", "\n", "x", "!😀", "! 😀", "؟ "])
def test_time_is_linear_whatever_the_text(unit):
    text = unit * 300_000
    start = time.process_time()
    split_sentences(text)
    assert time.process_time() - start < 5  # a quadratic scan takes minutes
