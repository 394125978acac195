"""What every kind of tokenizer that can be trained must do: one battery over `KINDS`, English and Chinese."""

import json
import subprocess
import sys
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.tokens import training as tokenizer_training
from clozeworks.data.tokens.encode import encode
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.data.tokens.training import KINDS, SMALLEST
from tests.conftest import SHARED
from tests.data.tokens.test_tokenizer import CHINESE, ENGLISH

TEXTS = {"en": ENGLISH, "zh": CHINESE + ENGLISH[:4]}
VOCAB = 320
both = pytest.mark.parametrize("lang", ["en", "zh"])
every = pytest.mark.parametrize("kind", KINDS)
_TRAINED: dict[tuple[str, str], Tokenizer] = {}


def trained(kind: str, lang: str) -> Tokenizer:
    if (kind, lang) not in _TRAINED:
        _TRAINED[kind, lang] = Tokenizer.train(TEXTS[lang], kind, VOCAB, lang=lang)
    return _TRAINED[kind, lang]


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text])[0].ids.tolist()


@both
def test_the_same_file_in_every_process(lang):
    script = (
        "import sys, json; from clozeworks.data.tokens.tokenizer import Tokenizer\n"
        "lang, kinds, texts = json.load(sys.stdin)\n"
        "for kind in kinds: print(Tokenizer.train(texts, kind, 320, lang=lang).fingerprint)"
    )
    task = json.dumps([lang, KINDS, TEXTS[lang]])
    runs = {
        subprocess.run([sys.executable, "-c", script], input=task, capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert [run.split() for run in runs] == [[trained(kind, lang).fingerprint for kind in KINDS]]


@every
@both
def test_every_role_has_one_of_the_first_ids(kind, lang):
    tokenizer = trained(kind, lang)
    roles = [tokenizer.need(role) for role in ("pad", "unk", "cls", "sep", "mask")]
    assert sorted(roles) == [0, 1, 2, 3, 4]
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}
    assert tokenizer.vocabulary().mask == tokenizer.mask
    result = tokenizer.inner.encode("the words")
    assert (result.ids[0], result.ids[-1]) == (tokenizer.cls, tokenizer.sep)
    marked = f"the {tokenizer.names['mask']} words"
    assert tokenizer.encode([marked], specials=True)[0].ids.tolist().count(tokenizer.mask) == 1
    assert not {tokenizer.mask, tokenizer.cls}.intersection(ids(tokenizer, marked + tokenizer.names["cls"]))


@every
@both
def test_the_vocabulary_has_the_size_asked_for_where_the_text_allows(kind, lang):
    words = [
        f"w{number % 7}x{number:o} {chr(0x4E00 + number % 300)}{chr(0x4E00 + number % 41)}" for number in range(4000)
    ]
    tokenizer = Tokenizer.train([" ".join(words[at : at + 50]) for at in range(0, 4000, 10)], kind, 300, lang=lang)
    assert tokenizer.size == 300
    assert [tokenizer.token(index) for index in range(300)]
    assert trained(kind, lang).size <= VOCAB


@every
@both
def test_description_is_one_line(kind, lang):
    tokenizer = trained(kind, lang)
    name = {
        "wordpiece": "WordPiece",
        "bytes": "Byte-level BPE",
        "bpe": "BPE",
        "unigram": "Unigram",
        "words": "Words",
        "chars": "Characters",
    }[kind]
    units = {"words": "words", "chars": "characters"}.get(kind, "pieces")
    case = "cased" if kind == "bytes" else "lower-cased"
    assert tokenizer.describe() == f"{name}, {tokenizer.size} {units}, {case}"
    assert Tokenizer.train(ENGLISH, kind, 300, lowercase=False).describe().endswith(" cased")


@every
@both
def test_added_words_become_one_token_and_no_id_changes(kind, lang):
    tokenizer = trained(kind, lang)
    more, count = tokenizer.add_tokens(["covid", "书京", "covid"])
    assert (count, more.size) == (2, tokenizer.size + 2)
    for index in range(tokenizer.size):
        assert more.token(index) == tokenizer.token(index)
    plain = ENGLISH[0] if lang == "en" else "这本书写得很好，值得一读！"
    assert ids(more, plain) == ids(tokenizer, plain)
    covid, chinese = tokenizer.size, tokenizer.size + 1
    encoding = more.encode(["the covid pieces"])[0]
    at = encoding.ids.tolist().index(covid)
    assert encoding.ids.tolist().count(covid) == 1
    assert encoding.word_starts[at]
    assert encoding.word_starts[at + 1]
    assert encode(more, ["the covid pieces"]).word_starts.tolist() == encoding.word_starts.tolist()
    assert covid not in ids(more, "covidian")
    assert chinese in ids(more, "去书京大学")
    assert more.decode(encoding.ids).strip() == "the covid pieces"
    assert more.encode(["covid the"])[0].ids[0] == covid
    assert more.decode(ids(more, "covid the")).strip() == "covid the"
    again, count = more.add_tokens(
        ["covid", "words"] if kind not in ("chars", "unigram") and lang == "en" else ["covid"]
    )
    assert (count, again.size) == (0, more.size)


@every
@both
def test_saved_and_loaded_is_the_same_here_and_in_transformers(kind, lang, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = trained(kind, lang)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.fingerprint, again.names) == (tokenizer.fingerprint, tokenizer.names)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    lines = [*TEXTS[lang], "  Ünknown ☃  words\t(x) ", "去北京"]
    assert theirs(lines, add_special_tokens=False)["input_ids"] == [one.ids.tolist() for one in tokenizer.encode(lines)]
    roles = [theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id]
    assert roles == [tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask]
    assert theirs("words")["input_ids"] == [tokenizer.cls, *ids(tokenizer, "words"), tokenizer.sep]


@every
@both
def test_text_reads_right_when_decoded(kind, lang):
    tokenizer = trained(kind, lang)
    english = "the words make sentences"
    assert tokenizer.decode(ids(tokenizer, english)).strip() == english
    chinese = "我们今天去北京大学上课，明天再回来。"
    if lang == "zh" and kind != "wordpiece":
        assert tokenizer.decode(ids(tokenizer, chinese)) == chinese


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_chinese_pieces_have_several_characters_and_stay_inside_a_clause(kind):
    tokenizer = trained(kind, "zh")
    pieces = [tokenizer.token(index) for index in range(5, tokenizer.size)]
    chinese = [piece for piece in pieces if any("一" <= letter <= "鿿" for letter in piece)]
    assert any(len(piece) > 1 for piece in chinese)
    assert not [piece for piece in chinese if any(mark in piece for mark in "，。！▁")]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_no_piece_joins_letters_with_punctuation(kind):
    tokenizer = trained(kind, "en")
    pieces = [tokenizer.token(index).removesuffix("</w>").strip("▁") for index in range(5, tokenizer.size)]
    assert len(pieces) > 100
    assert not [piece for piece in pieces if any(map(str.isalpha, piece)) and not all(map(str.isalpha, piece))]


@every
@both
def test_a_long_line_without_spaces_costs_little(kind, lang):
    line = "".join(CHINESE[:3] * 2000)[:100_000].replace("，", "").replace("。", "").replace("！", "")
    begin = time.perf_counter()
    tokenizer = Tokenizer.train([line, *TEXTS[lang]], kind, VOCAB, lang=lang)
    result = encode(tokenizer, [line])
    assert time.perf_counter() - begin < 20
    assert 10 < len(result.tokens) <= 3 * len(line)


@both
def test_merges_are_counted_on_a_sample_of_a_large_text(lang, monkeypatch):
    whole = {kind: trained(kind, lang).fingerprint for kind in ("bpe", "bytes", "unigram")}
    monkeypatch.setattr(tokenizer_training, "UNSPACED", 200)
    monkeypatch.setattr(tokenizer_training, "RUNS", 20)
    for kind in ("bpe", "bytes", "unigram"):
        small = Tokenizer.train(TEXTS[lang], kind, VOCAB, lang=lang)
        assert small.fingerprint == Tokenizer.train(iter(TEXTS[lang]), kind, VOCAB, lang=lang).fingerprint
        assert small.unk not in ids(small, "the words")
        if lang == "zh" or kind == "unigram":
            assert small.fingerprint != whole[kind]


any_text = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
    st.lists(
        st.sampled_from(
            [
                "e\u0301",
                "שלום",
                "مرحبا",
                "👩‍👩‍👧‍👦",
                "🇩🇪",
                "\u202e",
                "한국어",
                "  ",
                "\n",
                "words",
                "北京",
                "ﬁ",
                "Å",
                "ก็",
                "\ufeff",
            ]
        ),
        max_size=8,
    ).map("".join),
)


@both
@given(text=any_text)
@settings(max_examples=200, deadline=None)
def test_bytes_give_every_text_back(lang, text):
    tokenizer = trained("bytes", lang)
    result = ids(tokenizer, text)
    assert tokenizer.unk not in result
    back = tokenizer.decode(result)
    assert back == text or (lang == "en" and back == " " + text)


@every
@both
@given(text=any_text)
@settings(max_examples=100, deadline=None)
def test_any_text_is_encoded_and_decoded_and_encoded_the_same_in_a_corpus(kind, lang, text):
    tokenizer = trained(kind, lang)
    single, flat = tokenizer.encode([text])[0], encode(tokenizer, [text])
    assert flat.tokens.tolist() == single.ids.tolist()
    assert flat.word_starts.tolist() == single.word_starts.tolist()
    assert isinstance(tokenizer.decode(single.ids), str)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "chars"])
@given(text=any_text)
@settings(max_examples=200, deadline=None)
def test_known_characters_come_back_up_to_normalisation(kind, text):
    """Of kinds that keep spaces: what has a token comes back as normalisation left it."""
    tokenizer = trained(kind, "zh")
    result = ids(tokenizer, text)
    if tokenizer.unk not in result:
        assert tokenizer.decode(result) == tokenizer.inner.normalizer.normalize_str(text)


def test_normalisation_is_one_space_between_words():
    english, chinese = trained("unigram", "en").inner.normalizer, trained("unigram", "zh").inner.normalizer
    assert english.normalize_str("  The\t\u3000Café ▁ ﬁne，") == "the cafe fine,"
    assert chinese.normalize_str(" Ａ 北京，\n大学 ") == unicodedata.normalize("NFC", "Ａ 北京，大学".lower()).replace(
        "，", "， "
    )
    cased = Tokenizer.train(ENGLISH, "unigram", 300, lowercase=False).inner.normalizer
    assert cased.normalize_str("The Café ") == "The Café"


def test_characters_keep_words_together():
    tokenizer = trained("chars", "en")
    encoding = tokenizer.encode(["the fox, it"])[0]
    assert [tokenizer.token(index) for index in encoding.ids] == list("the▁fox,▁it")
    assert [at for at, start in enumerate(encoding.word_starts) if start] == [0, 3, 7, 8]


def test_words_are_whole_and_rare_ones_unknown():
    tokenizer = Tokenizer.train(["a a a b b 北京 c.", "a b c"], "words", 64)
    assert [tokenizer.token(index) for index in range(5, tokenizer.size)] == ["a", "b", "c", ".", "京", "北"]
    assert ids(tokenizer, "a zebra 北.") == [5, tokenizer.unk, 10, 8]


def test_unigram_pieces_take_the_space_before_them():
    tokenizer = trained("unigram", "en")
    assert [tokenizer.token(index) for index in ids(tokenizer, "The words")] == ["▁the", "▁words"]
    assert tokenizer.token(ids(tokenizer, ", the")[-1]) == "▁the"


def test_a_special_in_the_text_is_text_also_where_case_is_kept():
    tokenizer = Tokenizer.train([*ENGLISH, "MASK [CLS]"], "unigram", 300, lowercase=False)
    assert not {tokenizer.mask, tokenizer.cls}.intersection(ids(tokenizer, "the [MASK] words [CLS]"))
    more, _ = tokenizer.add_tokens(["covid"])
    assert ids(more, "the covid [MASK]").count(tokenizer.size) == 1
    assert tokenizer.mask not in ids(more, "the covid [MASK]")


def test_suffix_pieces_end_words():
    tokenizer = trained("bpe", "en")
    pieces = [tokenizer.token(index) for index in ids(tokenizer, "words, words")]
    assert "".join(pieces) == "words</w>,</w>words</w>"


@pytest.mark.parametrize("kind", [*KINDS, "sentencepiece"])
def test_a_wrong_kind_is_told_all_kinds(kind):
    with pytest.raises(InputError, match="wordpiece, bytes, bpe, unigram, words, chars"):
        Tokenizer.train(ENGLISH, kind + "x")


@every
@both
def test_transformers_gives_the_same_ids_on_real_lines(kind, lang, tmp_path):
    transformers = pytest.importorskip("transformers")
    file = SHARED / f"{lang}_wiki" / "train.jsonl"
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    with file.open(encoding="utf-8") as stream:
        rows = [json.loads(row)["text"] for _, row in zip(range(60), stream, strict=False)]
    lines = [line for row in rows for line in row.split("\n")]
    tokenizer = Tokenizer.train(lines, kind, 2000, lang=lang)
    assert tokenizer.size == 2000 or kind == "chars"
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(lines, add_special_tokens=False)["input_ids"] == [one.ids.tolist() for one in tokenizer.encode(lines)]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "chars"])
@both
def test_places_left_free_go_to_the_alphabet(kind, lang):
    """However small the share of the alphabet, a vocabulary is as large as asked where the text has the characters."""
    letters = [chr(0x4E00 + number) for number in range(90)]
    text = "，".join("".join(letters[at : at + 9]) for at in range(0, 90, 9))
    texts = [text, "a few words"]
    whole = Tokenizer.train(texts, kind, 2000, lang=lang)
    assert whole.unk not in ids(whole, text)
    sizes = []
    for vocab in (64, 80, 120, 150, 200, whole.size):
        result = Tokenizer.train(texts, kind, vocab, lang=lang)
        sizes.append(result.size)
        assert result.size >= min(vocab, whole.size) - 1, vocab  # a letter takes two places, so one may stay free
        assert result.size <= max(vocab, SMALLEST)
        assert len({result.token(index) for index in range(result.size)}) == result.size
    assert result.unk not in ids(result, text)
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "chars"])
def test_characters_of_the_text_go_before_others(kind):
    result = Tokenizer.train(["今天天气很好。"] * 3, kind, 64, lang="zh")
    assert result.unk not in ids(result, "今天天气很好。")
    assert result.unk in ids(result, "z") or kind != "wordpiece"
