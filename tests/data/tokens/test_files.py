import json

import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from tests.data.tokens.test_tokenizer import ENGLISH


@pytest.fixture(scope="module")
def suffixed() -> Tokenizer:
    return Tokenizer.train(ENGLISH, "bpe", 200)


def test_vocab_json_whose_words_end_in_a_suffix(tmp_path, suffixed):
    suffixed.inner.model.save(str(tmp_path))
    for path in (tmp_path, tmp_path / "vocab.json", tmp_path / "merges.txt"):
        loaded = Tokenizer.load(path)
        assert loaded.names == suffixed.names
        assert loaded.describe() == suffixed.describe()
        assert [one.ids.tolist() for one in loaded.encode(ENGLISH)] == [
            one.ids.tolist() for one in suffixed.encode(ENGLISH)
        ]
        assert loaded.decode(loaded.encode(["The words"])[0].ids) == "the words"
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert Tokenizer.load(tmp_path).unk in Tokenizer.load(tmp_path).encode(["THE"])[0].ids


def test_the_suffix_kind_is_that_of_transformers(tmp_path, suffixed):
    transformers = pytest.importorskip("transformers")
    suffixed.inner.model.save(str(tmp_path))
    theirs = transformers.OpenAIGPTTokenizer(
        vocab=json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8")),
        merges=[
            tuple(line.split(" ")) for line in (tmp_path / "merges.txt").read_text("utf-8").split("\n")[1:] if line
        ],
    )
    mine = Tokenizer.load(tmp_path)
    for line in [*ENGLISH[:4], "unseen words, (yes)!"]:
        assert mine.encode([line])[0].ids.tolist() == theirs(line, add_special_tokens=False)["input_ids"]


def test_merges_that_do_not_fit_are_refused(tmp_path, suffixed):
    suffixed.inner.model.save(str(tmp_path))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nzz qq\n")
    with pytest.raises(InputError, match="unreadable"):
        Tokenizer.load(tmp_path)


def test_a_path_that_is_nothing_is_told_all_kinds(tmp_path):
    with pytest.raises(InputError, match="wordpiece, bytes, bpe, unigram, words, chars, or a path"):
        Tokenizer.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="did you mean unigram"):
        Tokenizer.load("unigramm")
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"SentencePiece \.model"):
        Tokenizer.load(tmp_path / "model.bin")
