"""Word starts of every kind of tokenizer, built with the `tokenizers` library itself."""

import re
import sys

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models, normalizers, pre_tokenizers

from clozeworks.core.characters import is_han
from clozeworks.data.tokens import word_borders
from clozeworks.data.tokens.tokenizer import Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,.'-$()!?#"
HAN = "我们喜欢去大学，。"
ALPHABET = LETTERS + HAN


def wordpiece(chinese: bool = True) -> tokenizers.Tokenizer:
    pieces = ["[UNK]", "token", "##izers", *ALPHABET, *("##" + letter for letter in ALPHABET)]
    made = tokenizers.Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=chinese)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def byte_level(regex: bool = True, prefix: bool = False) -> tokenizers.Tokenizer:
    pieces = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("t", "o"), ("k", "e"), ("ke", "n"), ("to", "ken"), ("Ģ", "æ")]
    for left, right in merges:
        pieces[left + right] = len(pieces)
    made = tokenizers.Tokenizer(models.BPE(pieces, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    return made


def unigram(split: bool = True) -> tokenizers.Tokenizer:
    scored = [
        ("<unk>", 0.0),
        ("▁", -3.0),
        ("▁token", -1.0),
        ("izers", -1.0),
        ("喜欢", -1.0),
        ("'s", -1.0),
        (".50", -1.0),
    ]
    scored += [(letter, -4.0) for letter in ALPHABET]
    made = tokenizers.Tokenizer(models.Unigram(scored, unk_id=0))
    made.pre_tokenizer = pre_tokenizers.Metaspace(split=split)
    return made


def sentencepiece_bpe() -> tokenizers.Tokenizer:
    """As converted files have it: no pre-tokenizer at all, spaces spelt by the normaliser, bytes for the unknown."""
    pieces = ["<unk>", "▁", *(f"<0x{byte:02X}>" for byte in range(256)), *ALPHABET, "▁t"]
    model = models.BPE(
        {p: i for i, p in enumerate(pieces)}, [("▁", "t")], unk_token="<unk>", byte_fallback=True, fuse_unk=True
    )
    made = tokenizers.Tokenizer(model)
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return made


def words_alone() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "tokenizers": 1, ",": 2}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def suffixed() -> tokenizers.Tokenizer:
    pieces = ["<unk>", *ALPHABET, *(letter + "</w>" for letter in ALPHABET), "to"]
    model = models.BPE({p: i for i, p in enumerate(pieces)}, [("t", "o")], unk_token="<unk>", end_of_word_suffix="</w>")
    made = tokenizers.Tokenizer(model)
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def characters(spaces: str) -> tokenizers.Tokenizer:
    """Every character a token: the space kept, spelt ▁, or dropped; or no merge at all between words."""
    pieces = {piece: index for index, piece in enumerate(["[UNK]", "▁", " ", *ALPHABET])}
    one = pre_tokenizers.Split(Regex("."), "isolated")
    if spaces == "no merges":
        made = tokenizers.Tokenizer(models.BPE(pieces, [], unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        return made
    made = tokenizers.Tokenizer(models.WordLevel(pieces, unk_token="[UNK]"))
    if spaces == "spelt":
        made.normalizer = normalizers.Replace(" ", "▁")
    dropped = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), one])
    made.pre_tokenizer = dropped if spaces == "dropped" else one
    return made


KINDS = {
    "wordpiece": wordpiece(),
    "wordpiece, Chinese together": wordpiece(chinese=False),
    "bytes": byte_level(),
    "bytes, prefixed": byte_level(prefix=True),
    "bytes, no rule": byte_level(regex=False),
    "unigram": unigram(),
    "unigram, unsplit": unigram(split=False),
    "sentencepiece bpe": sentencepiece_bpe(),
    "words": words_alone(),
    "suffix": suffixed(),
    **{f"characters, {spaces}": characters(spaces) for spaces in ("kept", "spelt", "dropped", "no merges")},
}
TOKENIZERS = {name: Tokenizer(inner) for name, inner in KINDS.items()}


def words(kind: str, text: str) -> list[str]:
    """The words of a text, as its word starts have them."""
    encoding = TOKENIZERS[kind].encode([text])[0]
    cuts = [
        *(begin for (begin, _), starts in zip(encoding.offsets.tolist(), encoding.word_starts, strict=True) if starts)
    ]
    return [text[begin:end].strip() for begin, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tokenizers, token", ["tokenizers", ",", "token"]),
        ("the (token) end", ["the", "(", "token", ")", "end"]),
        ("U.S. law", ["U", ".", "S", ".", "law"]),
        ("state-of-the-art", ["state", "-", "of", "-", "the", "-", "art"]),
        ("C# it", ["C", "#", "it"]),
        ("我们喜欢 token", ["我", "们", "喜", "欢", "token"]),
        ("去abc大学b", ["去", "abc", "大", "学", "b"]),
        ("我，去", ["我", "，", "去"]),
    ],
)
def test_words_do_not_fuse(kind, text, expected):
    if "unigram" in kind and "喜欢" in text:  # one token, so one word
        expected = ["我", "们", "喜欢", "token"]
    assert words(kind, text) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_apostrophes_and_prices(kind):
    contractions = kind in ("bytes", "bytes, prefixed")
    own, price = ["BERT", "'", "s", "."], ["$", "3", ".", "50"]
    if contractions:
        own = ["BERT", "'s", "."]
    elif "unigram" in kind:  # pieces that begin with a mark begin a word
        own, price = ["BERT", "'s", "."], ["$", "3", ".50"]
    assert words(kind, "BERT's.") == own
    assert words(kind, "$3.50") == price
    assert words(kind, "don't") == (["don", "'t"] if contractions else ["don", "'", "t"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_belongs_to_the_word_after_it(kind):
    encoding = TOKENIZERS[kind].encode(["ab 我 (c)"])[0]
    spelt = [TOKENIZERS[kind].token(index) for index in encoding.ids]
    for at, token in enumerate(spelt[:-1]):
        if token in ("▁", "Ġ", " "):
            assert encoding.word_starts[at]
            assert not encoding.word_starts[at + 1]
    assert words(kind, "ab 我 (c)") == (["ab", "我", "(", "c", ")"])


def test_half_a_character_does_not_begin_a_word():
    """The merge of 一's last byte with 我's first lies over the border of two words."""
    encoding = TOKENIZERS["bytes"].encode(["一我a"])[0]
    spelt = [TOKENIZERS["bytes"].token(index) for index in encoding.ids]
    assert spelt == ["ä", "¸", "Ģæ", "Ī", "ĳ", "a"]
    assert encoding.word_starts.tolist() == [True, False, False, False, False, True]


def test_what_is_unknown_stays_in_its_word():
    assert words("suffix", "caféx de") == ["caféx", "de"]
    assert words("characters, no merges", "caféx 我") == ["caféx", "我"]
    assert words("unigram", "caféx, 我é") == ["caféx", ",", "我", "é"]
    assert words("sentencepiece bpe", "caféx 鱼鱼a") == ["caféx", "鱼", "鱼", "a"]  # in bytes


def test_specials_of_the_text_stand_alone():
    for made in (wordpiece(), byte_level(), unigram()):
        made.add_special_tokens(["[MASK]"])
        encoding = Tokenizer(made).encode(["a[MASK][MASK]b"], specials=True)[0]
        assert encoding.word_starts.sum() == 4


ODD = [
    "é",
    "e\u0301",
    "我\ufe00",
    "👨\u200d👩\u200d👧",
    "שלום",
    "مرحبا",
    "\u200f",
    "ｶﾞ",
    "各\u0301",
    " ",
    "\u3000",
    "㍿",
    "\U00020000",
]
texts = st.lists(st.one_of(st.sampled_from([*ODD, *ALPHABET]), st.text(max_size=4)), max_size=12).map("".join)


@given(text=texts, kind=st.sampled_from(list(KINDS)))
@settings(max_examples=500, deadline=None)
def test_any_text_has_words(text, kind):
    encoding = TOKENIZERS[kind].encode([text])[0]
    assert len(encoding.word_starts) == len(encoding.ids)
    assert encoding.word_starts[:1].all()


@given(text=texts, kind=st.sampled_from([kind for kind in KINDS if kind != "sentencepiece bpe"]))
@settings(max_examples=500, deadline=None)
def test_a_token_that_begins_with_chinese_begins_a_word(text, kind):
    encoding = TOKENIZERS[kind].encode([text])[0]
    offsets = encoding.offsets.tolist()
    for at, ((begin, end), starts) in enumerate(zip(offsets, encoding.word_starts, strict=True)):
        after_space = at > 0 and not text[slice(*offsets[at - 1])].strip()
        part = at > 0 and offsets[at - 1][1] > begin  # of the same character
        unknown = encoding.ids[at] == TOKENIZERS[kind].unk or TOKENIZERS[kind].token(encoding.ids[at]) == "<unk>"
        torn = kind.startswith("bytes") and not "一" <= text[begin : begin + 1] <= "鿿"  # F0 alone may open an emoji
        if is_han(text[begin:end][:1] or " ") and not (after_space or part or unknown or torn):
            assert starts


@pytest.mark.parametrize("kind", ["characters, kept", "characters, no merges"])
def test_marks_that_combine_stay_with_their_letter(kind):
    assert words(kind, "各\u0301") == ["各\u0301"]
    assert words(kind, "ae\u0301 b") == ["ae\u0301", "b"]
    assert words(kind, "a👨\u200d👩 b") == ["a👨\u200d👩", "b"]


def test_han_is_what_the_class_says():
    known = re.compile(f"[{word_borders.HAN}]")
    for code in range(sys.maxunicode + 1):
        assert is_han(chr(code)) == (known.match(chr(code)) is not None), hex(code)
    assert not is_han("")
