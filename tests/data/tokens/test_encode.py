import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.examples import ENTITY_INSIDE, ENTITY_START, PHRASE_INSIDE, PHRASE_START
from clozeworks.data.tokens.alignment import word_begins
from clozeworks.data.tokens.encode import Spans, encode
from clozeworks.data.tokens.tokenizer import Tokenizer
from tests.conftest import SHARED
from tests.data.tokens.test_word_borders import TOKENIZERS

MELON = ["我", "喜欢", "吃", "西瓜", "，", "还", "喜欢", "跑步"]
NOODLES = ["我", "喜欢", "吃", "哈尔滨", "正宗", "烤冷面"]
MODEL = ["使用", "语言", "模型", "来", "预测", "下", "一个", "词", "的", "probability", "。"]
TEXTS = [
    "".join(MELON),
    "".join(NOODLES),
    "".join(MODEL),
    "the melon, the noodles and the model: probability",
    "Harbin cold noodles; Harbin's noodles.",
] * 4
KINDS = ("wordpiece", "bytes", "bpe", "unigram", "words", "chars")


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request) -> Tokenizer:
    return Tokenizer.train(TEXTS, request.param, vocab=400, lang="zh")


def words_of(tokenizer: Tokenizer, text: str, words: list[str] | None) -> list[str]:
    made = encode(tokenizer, [text], [words])
    offsets = tokenizer.encode([text])[0].offsets
    cuts = [int(begin) for (begin, _), starts in zip(offsets, made.word_starts, strict=True) if starts]
    return [text[begin:end] for begin, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


@pytest.mark.parametrize("words", [MELON, NOODLES, MODEL], ids=["melon", "noodles", "model"])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "chars", "words"])
def test_words_as_given(kind, words):
    tokenizer = Tokenizer.train(TEXTS, kind, vocab=3000, lang="en" if kind == "bpe" else "zh")
    text = "".join(words)
    assert words_of(tokenizer, text, words) == words
    assert encode(tokenizer, [text], [words]).misaligned == 0
    if kind != "words":
        assert "哈尔滨" not in words_of(tokenizer, text, None)


def test_transformers_takes_the_sentence_for_one_word(tmp_path):
    """Its whole words are runs without a gap in the offsets; hiding one character hides all eleven."""
    transformers = pytest.importorskip("transformers")
    Tokenizer.train(TEXTS, vocab=400, lang="zh").save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    collate = transformers.DataCollatorForLanguageModeling(
        theirs, whole_word_mask=True, mask_replace_prob=1, random_replace_prob=0, return_tensors="np", seed=0
    )
    row = theirs("".join(MELON), return_offsets_mapping=True, return_special_tokens_mask=True)
    hidden = {tuple(np.flatnonzero(collate([dict(row)])["labels"][0] != -100).tolist()) for _ in range(40)}
    assert hidden == {(), tuple(range(1, 13))}


def test_white_space_may_be_missing_from_the_words(tokenizer):
    text = "使用 deep  learning 模型 "
    listed = encode(tokenizer, [text], [["使用", "deep", "learning", "模型"]])
    assert listed.misaligned == 0
    spelt = encode(tokenizer, [text], [["使用", " ", "deep", "  ", "learning", " ", "模型", " "]])
    assert listed.word_starts.tolist() == spelt.word_starts.tolist()
    assert encode(tokenizer, [text], [["使用", "deep", "模型"]]).misaligned == 1


def test_words_that_do_not_join_leave_the_tokenizers_borders(tokenizer):
    text = "".join(MELON)
    own = encode(tokenizer, [text, text])
    for wrong in ([], ["我"], [*MELON, "x"], MELON[::-1], ["我", "x", *MELON[1:]]):
        made = encode(tokenizer, [text, text], [wrong, None])
        assert made.misaligned == 1
        assert made.word_starts.tolist() == own.word_starts.tolist()


def test_a_border_inside_a_token_is_counted_and_the_token_follows_its_first_character():
    tokenizer = TOKENIZERS["unigram"]
    text = "我喜欢去"
    assert [tokenizer.token(index) for index in tokenizer.encode([text])[0].ids] == ["▁", "我", "喜欢", "去"]
    made = encode(tokenizer, [text, text], [["我喜", "欢去"], None])
    assert made.misaligned == 1
    assert made.word_starts.tolist() == [True, False, False, True, True, False, True, True]


def test_a_byte_token_over_two_characters():
    """Its bytes are the end of one and the beginning of the other: one border inside, counted once."""
    tokenizer = TOKENIZERS["bytes"]
    text = "一我a"
    assert encode(tokenizer, [text], [["一我", "a"]]).misaligned == 0
    made = encode(tokenizer, [text], [["一", "我", "a"]])
    assert made.misaligned == 1
    assert made.word_starts.tolist() == [True, False, False, True, False, True]


pieces = st.one_of(
    st.sampled_from(
        [*MELON, *NOODLES, *MODEL, " ", "  ", "don't", "é", "e\u0301", "👨\u200d👩", "ש", "㍿", "\U00020000"]
    ),
    st.text(max_size=3),
)


@given(lists=st.lists(st.lists(pieces, max_size=8), max_size=4), data=st.data())
@settings(max_examples=60, deadline=None)
def test_ids_never_change_whatever_the_words_are(tokenizer, lists, data):
    texts = ["".join(words) for words in lists]
    wrong = st.lists(st.text(max_size=3), max_size=4)
    known = [data.draw(st.one_of(st.none(), st.just(words), wrong)) for words in lists]
    ends = [len(text) for text in texts]
    spans = [
        data.draw(st.one_of(st.none(), st.lists(st.tuples(st.integers(-1, end + 1), st.integers(-1, end + 1)))))
        for end in ends
    ]
    plain = encode(tokenizer, texts)
    made = encode(tokenizer, texts, known, [None if one is None else Spans(one, one[::-1]) for one in spans])
    assert made.tokens.tolist() == plain.tokens.tolist()
    assert made.lengths.tolist() == plain.lengths.tolist()
    assert (made.tokens.dtype, made.word_starts.dtype, made.lengths.dtype) == (np.int32, np.bool_, np.int64)
    firsts = (np.cumsum(made.lengths) - made.lengths)[made.lengths > 0]
    assert made.word_starts[firsts].all()
    assert (made.units is None) == all(one is None for one in spans)
    if made.units is not None:
        assert made.units.dtype == np.uint8
        _check_units(made.units, made.lengths)
    assert plain.misaligned == 0
    assert plain.units is None


def _check_units(units: np.ndarray, lengths: np.ndarray) -> None:
    """Never both bits of a kind; inside follows start or inside, in the same text."""
    for text in np.split(units, np.cumsum(lengths)[:-1]):
        for start, inside in ((PHRASE_START, PHRASE_INSIDE), (ENTITY_START, ENTITY_INSIDE)):
            begins, goes_on = (text & start) > 0, (text & inside) > 0
            assert not (begins & goes_on).any()
            assert not goes_on[:1].any()
            assert (begins | goes_on)[:-1][goes_on[1:]].all()


@given(lists=st.lists(st.lists(st.text(max_size=3), max_size=8), max_size=4))
@settings(max_examples=60, deadline=None)
def test_each_character_follows_its_word(lists):
    """A plain reference, for tokens of one character each."""
    tokenizer = TOKENIZERS["characters, kept"]
    texts = ["".join(words) for words in lists]
    made = encode(tokenizer, texts, lists)
    expected = []
    for text, words in zip(texts, lists, strict=True):
        begins = word_begins(text, words) or []
        before = None
        for begin, _ in tokenizer.encode([text])[0].offsets.tolist():
            at = next((place for place in range(begin, len(text)) if not text[place].isspace()), len(text))
            word = sum(place <= at for place in begins)
            expected.append(before is None or word != before)
            before = word
    assert made.word_starts.tolist() == expected
    assert made.misaligned == 0


def units_of(tokenizer: Tokenizer, text: str, spans: Spans) -> tuple[list[tuple[str, int]], int]:
    made = encode(tokenizer, [text], spans=[spans])
    offsets = tokenizer.encode([text])[0].offsets.tolist()
    return [(text[b:e], bits) for (b, e), bits in zip(offsets, made.units.tolist(), strict=True)], made.misaligned


def test_phrases_and_entities_become_bits():
    tokenizer = TOKENIZERS["characters, dropped"]
    result, misaligned = units_of(tokenizer, "去大学 abc，我", Spans(phrases=[(0, 3), (4, 7)], entities=[(1, 3)]))
    assert misaligned == 0
    assert result == [
        ("去", PHRASE_START),
        ("大", PHRASE_INSIDE | ENTITY_START),
        ("学", PHRASE_INSIDE | ENTITY_INSIDE),
        ("a", PHRASE_START),
        ("b", PHRASE_INSIDE),
        ("c", PHRASE_INSIDE),
        ("，", 0),
        ("我", 0),
    ]
    nothing = encode(tokenizer, ["去", "我"], spans=[Spans(), None])
    assert nothing.units.tolist() == [0, 0]
    assert encode(tokenizer, ["去"], spans=[None]).units is None


def test_adjacent_spans_are_two_units():
    result, misaligned = units_of(TOKENIZERS["characters, kept"], "大学大学", Spans(entities=[(2, 4), (0, 2)]))
    assert [bits for _, bits in result] == [ENTITY_START, ENTITY_INSIDE] * 2
    assert misaligned == 0


@pytest.mark.parametrize(
    ("span", "expected", "misaligned"),
    [
        ((1, 3), [0, 0, 4, 0], 0),  # ▁ 我 喜欢 去
        ((0, 3), [4, 8, 8, 0], 0),  # the space before it is its own
        ((2, 4), [0, 0, 0, 4], 1),
        ((0, 2), [4, 8, 0, 0], 1),
        ((1, 2), [0, 0, 0, 0], 1),
        ((2, 3), [0, 0, 0, 0], 1),
    ],
)
def test_a_token_over_the_border_of_a_span_is_no_part_of_it(span, expected, misaligned):
    actual, counted = units_of(TOKENIZERS["unigram"], "我喜欢去", Spans(entities=[span]))
    assert [bits for _, bits in actual] == expected
    assert counted == misaligned


@pytest.mark.parametrize("span", [(0, 0), (2, 1), (-1, 1), (3, 9), (1, 3)])
def test_spans_that_cannot_be_are_counted_and_left_out(span):
    result, counted = units_of(TOKENIZERS["characters, kept"], "我们喜欢", Spans(entities=[(0, 2), span]))
    assert [bits for _, bits in result] == [ENTITY_START, ENTITY_INSIDE, 0, 0]
    assert counted == 1


def test_ids_alone_take_the_fast_way(monkeypatch):
    tokenizer = Tokenizer.train(TEXTS, vocab=400, lang="zh")
    asked = []
    monkeypatch.setattr(
        tokenizer, "encodings", lambda texts: asked.append(texts) or Tokenizer.encodings(tokenizer, texts)
    )
    encode(tokenizer, TEXTS)
    encode(tokenizer, TEXTS, [None] * len(TEXTS), [None] * len(TEXTS))
    assert not asked
    encode(tokenizer, TEXTS[:1], [MELON])
    assert len(asked) == 1


def test_gold_words_of_a_newspaper():
    file = SHARED / "zh_news_pd1998" / "train.jsonl"
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    with file.open(encoding="utf-8") as stream:
        gold = [json.loads(line)["words"].split(" ") for _, line in zip(range(500), stream, strict=False)]
    texts = ["".join(words) for words in gold]
    tokenizer = Tokenizer.train(texts, "chars", vocab=5000, lang="zh", lowercase=False)
    made = encode(tokenizer, texts, gold)
    assert made.misaligned == 0
    assert made.word_starts.sum() == sum(map(len, gold))
