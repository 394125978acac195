import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from clozeworks.core.characters import is_han
from clozeworks.core.errors import InputError
from clozeworks.data.tokens.encode import encode
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.data.tokens.word_borders import is_punctuation
from tests.conftest import SHARED

ENGLISH = [
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "Tokenizers, unlike foxes, split words into pieces: token, tokens, tokenizing.",
    "In 1998 the café (near the river) cost $3.50 a cup.",
    "Pieces of words make words; words make sentences; sentences make documents.",
] * 5
CHINESE = [
    "我们今天去北京大学上课，明天再回来。",
    "这本书写得很好，值得一读！",
    "１９９８年的Python教程在北京出版。",
] * 5


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return Tokenizer.train(ENGLISH, vocab=180)


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    return Tokenizer.train(ENGLISH, "bytes", vocab=300)


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text as its word starts have it, each joined from its pieces."""
    results: list[list[int]] = []
    encoding = tokenizer.encode([text])[0]
    for index, starts in zip(encoding.ids, encoding.word_starts, strict=True):
        if starts:
            results.append([])
        results[-1].append(int(index))
    return [tokenizer.decode(word, skip_specials=False).strip() for word in results]


def test_specials_have_their_usual_ids(wordpiece, byte_level):
    assert [wordpiece.pad, wordpiece.unk, wordpiece.cls, wordpiece.sep, wordpiece.mask] == [0, 1, 2, 3, 4]
    assert [wordpiece.token(index) for index in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert [byte_level.cls, byte_level.pad, byte_level.sep, byte_level.unk, byte_level.mask] == [0, 1, 2, 3, 4]
    assert wordpiece.special_ids == byte_level.special_ids == {0, 1, 2, 3, 4}
    assert (wordpiece.size, byte_level.size) == (180, 300)


@pytest.mark.parametrize(
    ("kind", "lang", "texts"), [("wordpiece", "en", ENGLISH), ("wordpiece", "zh", CHINESE), ("bytes", "en", ENGLISH)]
)
def test_training_gives_the_same_file_in_every_process(kind, lang, texts):
    script = (
        "import sys, json; from clozeworks.data.tokens.tokenizer import Tokenizer\n"
        "kind, lang, texts = json.load(sys.stdin);"
        "print(Tokenizer.train(texts, kind, 320, lang=lang).fingerprint)"
    )
    task = json.dumps([kind, lang, texts])
    run = lambda: subprocess.run([sys.executable, "-c", script], input=task, capture_output=True, text=True, check=True)  # noqa: E731
    prints = {run().stdout.strip() for _ in range(3)}
    assert prints == {Tokenizer.train(iter(texts), kind, 320, lang=lang).fingerprint}


def test_lowercase_is_a_choice():
    lower, cased = (Tokenizer.train(ENGLISH, vocab=600, lowercase=choice) for choice in (True, False))
    assert words(lower, "The Café")[0] == "the"
    assert words(lower, "café") == ["cafe"]
    assert words(cased, "The Café") == ["The", "Café"]


def test_english_words_do_not_fuse_with_punctuation(wordpiece, byte_level):
    text = "tokenizers, (tokens)!"
    assert words(wordpiece, text) == ["tokenizers", ",", "(", "tokens", ")", "!"]
    assert words(byte_level, text) == ["tokenizers", ",", "(", "tokens", ")!"]


def test_chinese_characters_are_tokens_and_words():
    tokenizer = Tokenizer.train(CHINESE, vocab=200, lang="zh")
    encoding = tokenizer.encode(["我们去Python大学"])[0]
    tokens = [tokenizer.token(index) for index in encoding.ids]
    assert tokens[:3] == ["我", "们", "去"]
    assert tokens[-2:] == ["大", "学"]
    assert words(tokenizer, "我们去Python大学") == ["我", "们", "去", "python", "大", "学"]
    by_bytes = Tokenizer.train(CHINESE, "bytes", vocab=300, lang="zh")
    assert "".join(words(by_bytes, "我们去大学")) == "我们去大学"
    assert len(words(by_bytes, "我们去大学")) > 1


def test_borders_of_a_tokenizer_that_splits_at_spaces_only():
    pieces = ["▁to", "kens", ",", "▁(", "x", ")", "▁我", "们", "▁", "<unk>"]
    inner = tokenizers.Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=9))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = Tokenizer(inner)
    encoding = tokenizer.encode(["tokens, (x) 我们"])[0]
    results = [tokenizer.token(index) for index in encoding.ids]
    assert results == ["▁to", "kens", ",", "▁(", "x", ")", "▁我", "们"]
    assert encoding.word_starts.tolist() == [True, False, True, True, True, True, True, True]


def test_known_words_give_the_borders():
    tokenizer = Tokenizer.train(CHINESE, vocab=200, lang="zh")
    known = ["我们", "今天", "去", "北京大学"]
    result = encode(tokenizer, ["".join(known), "上课"], [known, None])
    assert result.word_starts.tolist() == [True, False, True, False, True, True, False, False, False, True, True]
    assert result.tokens.tolist() == encode(tokenizer, ["".join(known), "上课"]).tokens.tolist()


any_text = st.lists(st.one_of(st.text(max_size=40), st.sampled_from(ENGLISH + CHINESE)), max_size=6)


@given(texts=any_text, kind=st.sampled_from(["wordpiece", "bytes"]))
@settings(max_examples=200, deadline=None)
def test_flat_encoding_is_the_single_one_end_to_end(wordpiece, byte_level, texts, kind):
    tokenizer = wordpiece if kind == "wordpiece" else byte_level
    single, flat = tokenizer.encode(texts), encode(tokenizer, texts)
    assert flat.lengths.tolist() == [len(encoding.ids) for encoding in single]
    assert flat.tokens.tolist() == [index for encoding in single for index in encoding.ids]
    assert flat.word_starts.tolist() == [start for encoding in single for start in encoding.word_starts]
    assert (flat.tokens.dtype, flat.word_starts.dtype) == (np.int32, np.bool_)
    for text, encoding in zip(texts, single, strict=True):
        assert len(encoding.ids) == 0 or encoding.word_starts[0]
        if kind == "bytes":
            assert tokenizer.decode(encoding.ids).removeprefix(" ") == text.removeprefix(" ")


# BERT's own code splits these off; the tokenizers library begins the block at 2b920 instead of 2b820.
UNSPLIT = "".join(map(chr, range(0x2B820, 0x2B920)))


def splits_off(character: str) -> bool:
    return tokenizers.normalizers.BertNormalizer(lowercase=False).normalize_str(f"a{character}a").startswith("a ")


@given(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters=UNSPLIT))
@settings(max_examples=300)
def test_our_notion_of_punctuation_and_han_is_that_of_bert(character):
    pieces = [piece for piece, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{character}a")]
    assert (len(pieces) == 3) == is_punctuation(character)
    assert splits_off(character) == is_han(character)


def test_the_characters_that_the_library_forgets_are_han():
    assert all(map(is_han, UNSPLIT))
    assert not any(map(splits_off, UNSPLIT))
    assert all(map(splits_off, "\U0002b81f\U0002b920"))


def test_specials_in_the_text_are_text_unless_asked(wordpiece, byte_level):
    for tokenizer, text in ((wordpiece, "a [MASK] [SEP]"), (byte_level, "a <mask> </s>")):
        assert not tokenizer.special_ids.difference([tokenizer.unk]).intersection(
            tokenizer.encode([text])[0].ids.tolist()
        )
        assert tokenizer.mask in tokenizer.encode([text], specials=True)[0].ids


def test_encoding_adds_nothing_and_decodes_back(wordpiece, byte_level):
    text = "the quick brown fox, doesn't it?"
    assert wordpiece.decode(wordpiece.encode([text])[0].ids) == "the quick brown fox, doesn ' t it?"
    assert byte_level.decode(byte_level.encode([text])[0].ids).strip() == text
    assert wordpiece.cls not in wordpiece.encode([text])[0].ids


def test_template_of_pairs(wordpiece, byte_level):
    pair = wordpiece.inner.encode("a", "b")
    assert pair.tokens == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 1, 1]
    assert byte_level.inner.encode("the", "the").tokens == ["<s>", "Ġthe", "</s>", "</s>", "Ġthe", "</s>"]


@pytest.mark.parametrize("target", ["tokenizer.json", "directory"])
def test_saved_and_loaded_is_the_same(tmp_path, wordpiece, byte_level, target):
    for number, tokenizer in enumerate((wordpiece, byte_level)):
        path = tmp_path / str(number) / target
        tokenizer.save(path)
        again = Tokenizer.load(path)
        assert again.fingerprint == tokenizer.fingerprint
        assert again.names == tokenizer.names
        assert pickle.loads(pickle.dumps(tokenizer)).fingerprint == tokenizer.fingerprint
    assert wordpiece.fingerprint != byte_level.fingerprint


def test_truncation_and_padding_of_a_foreign_file_are_dropped(tmp_path, wordpiece):
    inner = wordpiece.inner
    inner.enable_truncation(4)
    inner.enable_padding()
    inner.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path)
    assert len(loaded.encode([ENGLISH[0]])[0].ids) > 4
    assert loaded.fingerprint == wordpiece.fingerprint


def vocabulary(tokenizer: Tokenizer) -> str:
    return "\n".join(tokenizer.token(index) for index in range(tokenizer.size)) + "\n"


def test_vocab_txt_with_and_without_its_config(tmp_path, wordpiece):
    file = tmp_path / "vocab.txt"
    file.write_text(vocabulary(wordpiece), encoding="utf-8")
    for path in (file, tmp_path):
        loaded = Tokenizer.load(path)
        assert loaded.encode(ENGLISH)[0].ids.tolist() == wordpiece.encode(ENGLISH)[0].ids.tolist()
        assert (loaded.names, loaded.size) == (wordpiece.names, wordpiece.size)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert Tokenizer.load(file).unk in Tokenizer.load(file).encode(["THE"])[0].ids
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true, "strip_accents": false}')
    assert words(Tokenizer.load(file), "the")[0] == "the"
    assert Tokenizer.load(file).unk in Tokenizer.load(file).encode(["thé thë"])[0].ids
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": {"content": "fox"}}')
    assert Tokenizer.load(file).names["mask"] == "fox"


def test_cased_vocabulary_is_recognised(tmp_path):
    cased = Tokenizer.train(ENGLISH, vocab=300, lowercase=False)
    (tmp_path / "vocab.txt").write_text(vocabulary(cased), encoding="utf-8")
    loaded = Tokenizer.load(tmp_path)
    assert loaded.encode(ENGLISH)[0].ids.tolist() == cased.encode(ENGLISH)[0].ids.tolist()


def test_vocab_json_with_merges(tmp_path, byte_level):
    byte_level.inner.model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    loaded = Tokenizer.load(tmp_path)
    assert loaded.names == byte_level.names
    assert loaded.encode(ENGLISH)[0].ids.tolist() == byte_level.encode(ENGLISH)[0].ids.tolist()
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(InputError, match=r"merges\.txt"):
        Tokenizer.load(tmp_path)


def test_a_missing_special_matters_only_where_it_is_needed(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[PAD]\na\nb\n")
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.mask, tokenizer.cls, tokenizer.sep, tokenizer.pad, tokenizer.unk) == (None, None, None, 1, 0)
    assert tokenizer.encode(["a b"])[0].ids.tolist() == [2, 3]
    assert tokenizer.need("pad") == 1
    with pytest.raises(InputError, match="a mask token is needed"):
        tokenizer.need("mask")
    (tmp_path / "vocab.txt").write_text("[PAD]\na\nb\n")
    with pytest.raises(InputError, match="unk"):
        Tokenizer.load(tmp_path).encode(["zzz"])


def test_added_tokens_stand_at_the_end_and_match_whole_words(wordpiece, byte_level):
    for tokenizer in (wordpiece, byte_level):
        more, count = tokenizer.add_tokens(["covid", "北京", "covid"])
        assert (count, more.size) == (2, tokenizer.size + 2)
        assert [more.token(index) for index in range(tokenizer.size)] == [
            tokenizer.token(index) for index in range(tokenizer.size)
        ]
        assert more.encode(ENGLISH)[0].ids.tolist() == tokenizer.encode(ENGLISH)[0].ids.tolist()
        ids = more.encode(["the covid pieces"])[0]
        assert ids.ids.tolist().count(tokenizer.size) == 1
        at = ids.ids.tolist().index(tokenizer.size)
        assert ids.word_starts[at]
        assert ids.word_starts[at + 1]
        flat = encode(more, ["the covid pieces"])
        assert flat.word_starts.tolist() == ids.word_starts.tolist()
        assert tokenizer.size not in more.encode(["covidian"])[0].ids
        assert tokenizer.size + 1 in more.encode(["去北京大学"])[0].ids
        assert not more.special_ids.difference(tokenizer.special_ids)
        assert more.fingerprint != tokenizer.fingerprint
        again, count = more.add_tokens(["covid"])
        assert (count, again.size) == (0, more.size)
    with pytest.raises(InputError, match="white space"):
        wordpiece.add_tokens([" x"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "wordpeice"}, "did you mean wordpiece?"),
        ({"kind": "bytes", "vocab": 100}, "261"),
        ({"vocab": 10}, "64 to"),
        ({"vocab": 10_000_000}, "1,000,000"),
        ({"lang": "fr"}, "en, zh"),
    ],
)
def test_training_refuses_what_cannot_be(arguments, message):
    with pytest.raises(InputError, match=message):
        Tokenizer.train(ENGLISH, **arguments)


def test_loading_refuses_what_is_no_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    for path, message in [
        (tmp_path / "nowhere", "wordpiece, bytes|choose one of bytes, wordpiece"),
        (tmp_path, "not a tokenizer file"),
    ]:
        with pytest.raises(InputError, match=message):
            Tokenizer.load(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"vocab\.txt"):
        Tokenizer.load(tmp_path / "empty")
    (tmp_path / "prose.txt").write_text("This is prose.\nNot a vocabulary.\n")
    with pytest.raises(InputError, match="one piece a line"):
        Tokenizer.load(tmp_path / "prose.txt")
    with pytest.raises(InputError, match="ids run from 0"):
        Tokenizer.train(ENGLISH, vocab=100).token(100_000)


def test_a_vocabulary_larger_than_the_text_gives():
    tokenizer = Tokenizer.train(["a b"], vocab=8192)
    assert 5 < tokenizer.size < 200
    assert tokenizer.unk not in tokenizer.encode(["Zebra! #7 ~"])[0].ids  # what a keyboard types is always known


@pytest.mark.parametrize(("lang", "known"), [("en", 30), ("zh", 300)])
def test_the_alphabet_leaves_room_for_words(lang, known):
    rare = "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
    texts = [*ENGLISH, *CHINESE, *(rare[:count] for count in range(10, 3000, 30))] * 3
    tokenizer = Tokenizer.train(texts, vocab=600, lang=lang)
    assert tokenizer.size <= 600
    result = sum(len(token) == 1 and is_han(token) for token in map(tokenizer.token, range(tokenizer.size)))
    assert result >= known
    assert words(tokenizer, "words")[0] == "words"
    assert tokenizer.id("the") is not None


def real_lines(lang: str) -> list[str]:
    file = SHARED / f"{lang}_wiki" / "train.jsonl"
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    with file.open(encoding="utf-8") as stream:
        return [
            line for _, row in zip(range(300), stream, strict=False) for line in json.loads(row)["text"].split("\n")
        ][:1000]


@pytest.mark.parametrize(("lang", "kind"), [("en", "wordpiece"), ("zh", "wordpiece"), ("en", "bytes")])
def test_transformers_gives_the_same_ids_on_real_lines(tmp_path, lang, kind):
    transformers = pytest.importorskip("transformers")
    lines = real_lines(lang)
    tokenizer = Tokenizer.train(lines, kind, 4000, lang=lang)
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(lines, add_special_tokens=False)["input_ids"] == [e.ids.tolist() for e in tokenizer.encode(lines)]
    assert (theirs.mask_token_id, theirs.pad_token_id) == (tokenizer.mask, tokenizer.pad)
    assert (theirs.cls_token_id, theirs.sep_token_id) == (tokenizer.cls, tokenizer.sep)
    assert theirs("a b")["input_ids"][0] == tokenizer.cls


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "words"])
def test_half_a_surrogate_pair_is_named(kind):
    tokenizer = Tokenizer.train(ENGLISH, kind, 300)
    for encode_one in (tokenizer.encode, tokenizer.encodings):
        with pytest.raises(InputError, match=r"^text: half a surrogate pair .* in 'fox \\ud83d'; Unicode"):
            encode_one(["a fox", "fox \ud83d"])
    with pytest.raises(InputError, match=r"^texts: half a surrogate pair .*; Unicode text is needed"):
        Tokenizer.train([*ENGLISH, "fox \ud83d"], kind, 300)
