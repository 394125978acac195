"""Our reading of `.model` files against the `sentencepiece` package itself."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.tokens import sentencepiece as ours
from clozeworks.data.tokens.tokenizer import Tokenizer
from tests.conftest import SHARED

theirs = pytest.importorskip("sentencepiece")

ENGLISH = [
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "Pieces of words (token, tokens, tokenizing) make words; words make sentences.",
    "In 1998 the café near the river cost $3.50 a cup, the naïve said.",
    "A sentence-piece is a piece of a sentence; a word-piece is a piece of a word!",
] * 8
CHINESE = [
    "我们今天去北京大学上课，明天再回来。",
    "这本书写得很好，值得一读！",
    "１９９８年的Python教程在北京出版。",
] * 8
BRACKETS = {"control_symbols": "[CLS],[SEP],[MASK]", "pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
ANGLES = {"control_symbols": "<cls>,<sep>,<pad>,<mask>,<eod>,<eop>"}

MODELS = {
    "unigram": {"model_type": "unigram", "vocab_size": 150, **BRACKETS},
    "unigram identity": {"model_type": "unigram", "vocab_size": 150, "normalization_rule_name": "identity"},
    "unigram bytes": {"model_type": "unigram", "vocab_size": 420, "byte_fallback": True},
    "unigram defined": {"model_type": "unigram", "vocab_size": 150, "user_defined_symbols": "(,),-,piece,<extra_id_0>"},
    "unigram folded": {"model_type": "unigram", "vocab_size": 130, "normalization_rule_name": "nmt_nfkc_cf"},
    "unigram no prefix": {"model_type": "unigram", "vocab_size": 150, "add_dummy_prefix": False},
    "unigram spaces": {"model_type": "unigram", "vocab_size": 150, "remove_extra_whitespaces": False},
    "unigram chinese": {"model_type": "unigram", "vocab_size": 90, **ANGLES},
    "bpe": {"model_type": "bpe", "vocab_size": 200, **ANGLES},
    "bpe identity": {"model_type": "bpe", "vocab_size": 200, "normalization_rule_name": "identity"},
    "bpe bytes": {"model_type": "bpe", "vocab_size": 450, "byte_fallback": True, "split_digits": True},
    "bpe defined": {"model_type": "bpe", "vocab_size": 200, "user_defined_symbols": "piece,-,<x>"},
    "bpe spaces": {
        "model_type": "bpe",
        "vocab_size": 450,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    },
    "bpe chinese": {"model_type": "bpe", "vocab_size": 100, "byte_fallback": False},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


_TRAINED: dict[str, tuple[Tokenizer, Any, Path]] = {}


def pair(name: str, folder: Path) -> tuple[Tokenizer, Any, Path]:
    """Our tokenizer and theirs of one model, trained once."""
    if name not in _TRAINED:
        prefix = folder / name.replace(" ", "-")
        texts = CHINESE if "chinese" in name else ENGLISH
        theirs.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_prefix=str(prefix),
            hard_vocab_limit=False,
            minloglevel=3,
            num_threads=1,
            **MODELS[name],
        )
        file = prefix.with_suffix(".model")
        _TRAINED[name] = Tokenizer.load(file), theirs.SentencePieceProcessor(model_file=str(file)), file
    return _TRAINED[name]


words = st.sampled_from([word for line in ENGLISH[:4] + CHINESE[:3] for word in line.split()])
gaps = st.sampled_from([" ", "  ", "", "\t", " \n", "　", "-", "<x>", "<extra_id_0>", "(", "[MASK]", "<sep>"])
texts = st.one_of(st.text(max_size=30), st.lists(st.one_of(words, gaps, st.text(max_size=3)), max_size=12).map("".join))


def comparable(text: str) -> bool:
    """Not a `▁` of its own, nor marks in a row, where the two libraries are known to differ."""
    marks = [unicodedata.category(c)[0] == "M" or c in "\u200c\u200d" for c in text]
    return "▁" not in text and "\0" not in text and not any(marks)


def agree(mine: Tokenizer, other: Any, text: str) -> bool:
    """The same ids; of a unigram model, where spellings tie (p + pp, pp + p) and rounding decides, the same pieces."""
    result, wanted = mine.encode([text])[0].ids.tolist(), other.encode(text)
    return result == wanted or (mine.describe().startswith("Unigram") and sorted(result) == sorted(wanted))


@pytest.mark.parametrize("name", MODELS)
@given(text=texts)
@settings(max_examples=150, deadline=None)
def test_ids_equal_those_of_the_package(name, folder, text):
    mine, other, _ = pair(name, folder)
    assume(comparable(text))
    assert agree(mine, other, text)


@pytest.mark.parametrize("name", MODELS)
def test_ids_equal_on_accents_and_other_scripts(name, folder):
    mine, other, _ = pair(name, folder)
    lines = [
        "cafe\u0301 e\u0301 E\u0301tude",
        "naïve  Å A\u030a ",
        " שלום עולם",
        "مرحبا بالعالم",
        "👩‍👩‍👧‍👦 🇩🇪 👍🏽",
        "한국어 ﬁne ①",
    ]
    for line in lines:
        assert mine.encode([line])[0].ids.tolist() == other.encode(line)


@pytest.mark.parametrize("name", ["unigram", "unigram bytes", "unigram chinese", "bpe", "bpe bytes", "bpe chinese"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_ids_equal_on_real_lines(name, lang, folder):
    file = SHARED / f"{lang}_wiki" / "train.jsonl"
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    with file.open(encoding="utf-8") as stream:
        rows = [json.loads(row)["text"] for _, row in zip(range(40), stream, strict=False)]
    lines = [line for row in rows for line in row.split("\n")]
    mine, other, _ = pair(name, folder)
    assert not [line for line in lines if not agree(mine, other, line)]


@pytest.mark.parametrize("name", ["unigram bytes", "bpe bytes", "bpe spaces"])
@given(text=texts)
@settings(max_examples=100, deadline=None)
def test_text_comes_back_up_to_normalisation(name, folder, text):
    mine, other, _ = pair(name, folder)
    assume(comparable(text))
    ids = mine.encode([text])[0].ids.tolist()
    assert mine.decode(ids) == other.decode(ids)
    if name == "bpe spaces":
        assert mine.decode(ids) == text
    else:
        assert mine.decode(ids) == other.normalize(text).replace("▁", " ").removeprefix(" ")


def test_roles_of_specials_in_brackets(folder):
    mine, other, _ = pair("unigram", folder)
    assert mine.names == {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    assert [mine.pad, mine.unk, mine.cls, mine.sep, mine.mask] == [0, 1, 2, 3, 4]
    assert mine.size == other.get_piece_size()
    result = mine.inner.encode("the word", "the piece")
    assert [result.tokens[0], result.tokens[-1], result.tokens.count("[SEP]")] == ["[CLS]", "[SEP]", 2]
    assert mine.mask in mine.encode(["the [MASK] of words"], specials=True)[0].ids
    assert not mine.special_ids.difference([mine.unk]).intersection(mine.encode(["a [MASK] [SEP]"])[0].ids.tolist())


def test_roles_of_specials_in_angles(folder):
    for name in ("bpe", "unigram chinese"):
        mine, _, _ = pair(name, folder)
        assert mine.names == {"pad": "<pad>", "unk": "<unk>", "cls": "<cls>", "sep": "<sep>", "mask": "<mask>"}
        result = mine.inner.encode("a", "b")
        assert result.tokens[-2:] == ["<sep>", "<cls>"]
        assert mine.class_last
        assert result.type_ids[-3:] == [1, 1, 2]
        assert mine.id("<eod>") in mine.special_ids
        assert mine.id("<eod>") not in mine.encode(["<eod>"])[0].ids
    plain, _, _ = pair("unigram identity", folder)
    assert plain.names == {"unk": "<unk>", "cls": "<s>", "sep": "</s>"}
    with pytest.raises(InputError, match="a mask token is needed"):
        plain.need("mask")


@pytest.mark.parametrize("file_name", ours.FILES)
def test_a_directory_with_a_model(file_name, folder, tmp_path):
    mine, _, file = pair("bpe", folder)
    (tmp_path / file_name).write_bytes(file.read_bytes())
    assert Tokenizer.is_in(tmp_path)
    assert not Tokenizer.is_in(tmp_path / "nowhere")
    loaded = Tokenizer.load(tmp_path)
    assert loaded.fingerprint == mine.fingerprint
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true, "mask_token": "<eop>"}')
    lower = Tokenizer.load(tmp_path)
    assert lower.names["mask"] == "<eop>"
    assert lower.encode(["THE CAFÉ"])[0].ids.tolist() == mine.encode(["the cafe"])[0].ids.tolist()


def test_a_lower_cased_vocabulary_in_brackets_lower_cases(tmp_path):
    prefix = tmp_path / "lower"
    theirs.SentencePieceTrainer.train(
        sentence_iterator=iter([line.lower() for line in ENGLISH]),
        model_prefix=str(prefix),
        hard_vocab_limit=False,
        minloglevel=3,
        **{**BRACKETS, "vocab_size": 120},
    )
    mine = Tokenizer.load(tmp_path / "lower.model")
    assert mine.encode(["The QUICK"])[0].ids.tolist() == mine.encode(["the quick"])[0].ids.tolist()
    assert mine.describe().endswith("lower-cased")


@pytest.mark.parametrize("name", ["unigram", "bpe bytes", "unigram defined", "bpe defined"])
def test_saved_it_is_the_same_here_and_in_transformers(name, folder, tmp_path):
    transformers = pytest.importorskip("transformers")
    mine, other, _ = pair(name, folder)
    mine.save(tmp_path)
    lines = [*ENGLISH[:4], "a  b <x> piece-piece"]
    again = Tokenizer.load(tmp_path)
    assert (again.fingerprint, again.names) == (mine.fingerprint, mine.names)
    assert [one.ids.tolist() for one in again.encode(lines)] == [other.encode(line) for line in lines]
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(lines, add_special_tokens=False)["input_ids"] == [other.encode(line) for line in lines]


def test_word_borders_of_a_model(folder):
    mine, _, _ = pair("unigram", folder)
    encoding = mine.encode(["the words, sentences"])[0]
    begins = [mine.token(index) for index, start in zip(encoding.ids, encoding.word_starts, strict=True) if start]
    assert len(begins) == 4
    assert begins[2] == ","


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_broken_file_is_refused_or_read_never_a_traceback(data, folder, tmp_path_factory):
    _, _, file = pair("unigram", folder)
    whole = file.read_bytes()
    broken = bytearray(whole)
    if data.draw(st.booleans()):
        broken = broken[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            broken[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "broken.model"
    path.write_bytes(broken)
    try:
        Tokenizer.load(path).encode(["the words", "１９９８年 ﬁ é \x01 ①", "".join(map(chr, range(0x2000, 0x2FFF)))])
    except InputError:
        return


@pytest.mark.parametrize(
    ("at", "content"),
    [(0, b"\x03\0\0\0"), (0, b"\xff\xff\xff\x7f"), (4, b"\xff\xff\xff\x7f")],
)
def test_a_damaged_normaliser_is_refused_before_it_is_used(at, content, folder):
    _, _, file = pair("unigram", folder)
    table = ours.read(file).charsmap
    damaged = table[:at] + content + table[at + len(content) :]
    path = folder / "damaged.model"
    path.write_bytes(file.read_bytes().replace(table, damaged))
    with pytest.raises(InputError, match="not a whole SentencePiece model"):
        Tokenizer.load(path)


def test_a_truncated_file_says_so(folder, tmp_path):
    _, _, file = pair("unigram", folder)
    for name, content, message in [
        ("cut", file.read_bytes()[:1000], "not a whole SentencePiece model"),
        ("empty", b"", "no pieces"),
        ("prose", b"This is no model at all, only prose.", "not a whole SentencePiece model"),
    ]:
        path = tmp_path / f"{name}.model"
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            Tokenizer.load(path)


@pytest.mark.parametrize(("kind", "message"), [("char", "characters"), ("word", "words")])
def test_other_kinds_of_models_are_refused_by_name(kind, message, tmp_path):
    theirs.SentencePieceTrainer.train(
        sentence_iterator=iter(ENGLISH),
        model_prefix=str(tmp_path / "m"),
        model_type=kind,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    with pytest.raises(InputError, match=message):
        Tokenizer.load(tmp_path / "m.model")
