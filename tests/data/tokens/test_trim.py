"""A tokenizer with some of its tokens cuts what these spell as it did with all of them."""

import functools
import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.data.tokens.trim import keep_tokens, needed_tokens

KINDS = ("wordpiece", "bpe", "bytes", "unigram", "words", "chars")
SYLLABLES = ("ba", "ra", "to", "mi", "na", "lo", "re", "ki", "su", "ne", "é", "中", "文")
ENDINGS = ("", ",", ".", "s", "'s", "-", "!")
syllables = st.lists(st.sampled_from(SYLLABLES), min_size=1, max_size=5)
word = st.builds(lambda parts, ending: "".join(parts) + ending, syllables, st.sampled_from(ENDINGS))
text = st.lists(word | st.sampled_from(["Ω", "🙂", "[MASK]", "Bara", "12"]), min_size=1, max_size=12).map(" ".join)


@functools.cache
def trained(kind: str) -> Tokenizer:
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(SYLLABLES[:11], draw.integers(1, 4))) for _ in range(150)]
    texts = [" ".join(draw.choice(words, 12)) + draw.choice([".", "!", " 中文"]) for _ in range(300)]
    return Tokenizer.train(texts, kind, vocab=500)


def ids_of(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [each.ids.tolist() for each in tokenizer.encode(texts)]


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(text, min_size=1, max_size=4))
@settings(max_examples=25)
def test_texts_whose_tokens_stay_are_cut_as_before(kind: str, texts: list[str]):
    old = trained(kind)
    before = ids_of(old, texts)
    kept = needed_tokens(old, {index for ids in before for index in ids}, texts)
    new = keep_tokens(old, kept)
    assert new.size == len(kept) <= old.size
    for texts_ids, ids in zip(before, ids_of(new, texts), strict=True):
        assert [int(kept[index]) for index in ids] == texts_ids
    assert new.names == old.names
    for role in ("pad", "unk", "cls", "sep", "mask"):
        assert kept[new.need(role)] == old.need(role)
    again = Tokenizer(new.inner, new.names)
    assert ids_of(again, texts) == ids_of(new, texts)
    assert [new.decode(ids) for ids in ids_of(new, texts)] == [old.decode(ids) for ids in before]


@pytest.mark.parametrize("kind", KINDS)
def test_a_trimmed_tokenizer_is_smaller_and_its_special_tokens_are_put_around_texts(kind: str):
    old = trained(kind)
    ids = ids_of(old, ["bara tomi nalo"])[0]
    kept = needed_tokens(old, ids, ["bara tomi nalo"])
    new = keep_tokens(old, kept)
    assert new.size < old.size or kind == "chars"
    theirs, ours = old.inner.encode("bara tomi", "nalo"), new.inner.encode("bara tomi", "nalo")
    assert [int(kept[index]) for index in ours.ids] == theirs.ids
    assert ours.type_ids == theirs.type_ids


def test_a_word_that_was_unknown_stays_unknown():
    """abc is ab and then nothing; without ab it would be a and ##bc."""
    vocabulary = {name: index for index, name in enumerate(["[UNK]", "a", "ab", "##bc", "x", "##b"])}
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    old = Tokenizer(inner, {"unk": "[UNK]"})
    texts = ["abc x", "xbc a"]
    used = {index for ids in ids_of(old, texts) for index in ids}
    assert ids_of(old, texts) == [[0, 4], [4, 3, 1]]
    bare, kept = keep_tokens(old, sorted(used)), needed_tokens(old, used, texts)
    assert len(ids_of(bare, texts)[0]) == 3, "so that it is worth a rule"
    assert [int(kept[index]) for index in ids_of(keep_tokens(old, kept), texts)[0]] == [0, 4]


def test_an_unknown_character_costs_what_it_did():
    """The lowest score of the vocabulary stays, by which unknown characters are scored."""
    old = trained("unigram")
    vocabulary = json_model(old)["vocab"]
    lowest = min(range(len(vocabulary)), key=lambda index: vocabulary[index][1])
    assert lowest in needed_tokens(old, ids_of(old, ["bara"])[0])


def test_every_byte_keeps_its_token():
    old = trained("bytes")
    new = keep_tokens(old, needed_tokens(old, ids_of(old, ["bara"])[0]))
    assert new.decode(ids_of(new, ["naïve 北 🙂"])[0]).strip() == "naïve 北 🙂"


@pytest.mark.parametrize("made", [processors.BertProcessing, processors.RobertaProcessing])
def test_other_post_processors_are_renumbered(made):
    old = trained("wordpiece").inner
    cls, sep = old.token_to_id("[CLS]"), old.token_to_id("[SEP]")
    old.post_processor = processors.Sequence([made(("[SEP]", sep), ("[CLS]", cls))])
    whole = Tokenizer(old, trained("wordpiece").names)
    kept = np.array([*sorted(whole.special_ids), *range(60, 200)])
    trimmed = keep_tokens(whole, kept)
    ids = trimmed.inner.encode("bara").ids
    assert (ids[0], ids[-1]) == (trimmed.cls, trimmed.sep)


def test_added_tokens_stay_where_they_are_used():
    old, _ = trained("wordpiece").add_tokens(["foxglove", "larkspur"])
    used = ids_of(old, ["bara foxglove"])[0]
    new = keep_tokens(old, needed_tokens(old, used, ["bara foxglove"]))
    assert new.id("foxglove") == new.size - 1
    assert new.id("larkspur") is None


def json_model(tokenizer: Tokenizer) -> dict:
    return json.loads(tokenizer.inner.to_str())["model"]
