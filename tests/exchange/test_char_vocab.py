"""Words that a model of characters has never met."""

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.char_vocab import collect_texts, extend_vocabulary, spell
from clozeworks.exchange.grow import grow
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.characters import Characters, CharactersLayer
from clozeworks.nn.mixers.lstm import LSTM
from clozeworks.recipe import build
from clozeworks.recipes import recipe

TEXTS = ["a red fox runs near the river", "the old dog sleeps", "a cat sees the fox"]


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    tokenizer = Tokenizer.train(TEXTS, "words", 64)
    r = recipe("elmo_mini")
    r.encoder.width, r.encoder.vocab = 8, tokenizer.size
    for block in (r.encoder.stack.block_at(layer) for layer in range(2)):
        block.mixer = LSTM(12, clip=3.0, clip_out=3.0)
    r.encoder.embed.words = Characters(((1, 4), (3, 8)), width=4, highways=1, length=16)
    model = build(r)
    assert spell(model, tokenizer) == []
    return TextEncoder(model.eval(), tokenizer, r)


def test_unknown_words_are_found_and_learned(encoder):
    tokenizer = encoder.tokenizer
    assert tokenizer.unknown(["The  fox likes Moscow, moscow and xylophones"]) == [
        "likes", "moscow", ",", "and", "xylophones",
    ]  # fmt: skip
    larger = tokenizer.learn(["likes", "moscow"])
    assert larger.size == tokenizer.size + 2
    assert larger.unknown(["the fox likes moscow"]) == []
    old, new = (each.encode(["the fox likes"])[0].ids for each in (tokenizer, larger))
    assert old[:2].tolist() == new[:2].tolist()
    assert (old[2], new[2]) == (tokenizer.unk, tokenizer.size)
    assert Tokenizer.train(TEXTS, "wordpiece", 64).unknown(["qqq"]) == []


def test_a_word_that_came_later_is_read_as_it_is_written(encoder):
    model, tokenizer = extend_vocabulary(encoder.model, encoder.tokenizer, ["the fox likes foxes", "fox"])
    words = model.encoder.embed.words
    assert isinstance(words, CharactersLayer)
    names = [tokenizer.token(n) for n in range(tokenizer.size)]
    fresh = build(encoder.recipe)
    other = Characters(((1, 4), (3, 8)), width=4, highways=1, length=16).build(len(names), 8, 8)
    other.load_state_dict({**fresh.encoder.embed.words.state_dict(), "spelling": other.spelling})
    other.spell(names, tokenizer.cls, tokenizer.sep)
    assert torch.equal(words.spelling, other.spelling)
    torch.testing.assert_close(words(torch.arange(tokenizer.size)), other(torch.arange(tokenizer.size)))
    assert encoder.model.encoder.embed.words.vocab == encoder.tokenizer.size, "the model itself is as it was"
    assert model.encoder.stack is encoder.model.encoder.stack
    assert extend_vocabulary(encoder.model, encoder.tokenizer, TEXTS) == (encoder.model, encoder.tokenizer)


def test_sentence_vectors_know_such_words(encoder):
    one, other, same = encoder.encode(["the fox likes moscow", "the fox likes minsk", "the fox likes moscow"])
    assert not np.allclose(one, other)
    np.testing.assert_allclose(one, same)
    assert one.shape == (16,)


def test_a_word_too_long_is_told_of(encoder):
    tokenizer = Tokenizer.train(["supercalifragilistic words"], "words", 64)
    model = build(encoder.recipe)
    model.encoder.embed.words = Characters(((1, 4),), width=4, length=16).build(tokenizer.size, 8, 8)
    assert spell(model, tokenizer) == ["of 1 words the first 14 bytes count, such as supercalifragilistic"]


def test_models_without_characters_are_left_alone():
    r = recipe("bert_tiny")
    tokenizer = Tokenizer.train(TEXTS, "words", 64)
    r.encoder.vocab = tokenizer.size
    model = build(r)
    assert spell(model, tokenizer) == []
    assert extend_vocabulary(model, tokenizer, ["unheard of"]) == (model, tokenizer)


def test_texts_of_rows():
    rows = [{"tokens": ["a", "b"], "label": "x"}, {"tokens": "c d", "text": None}]
    assert collect_texts(rows, ("tokens", "text")) == ["a", "b", "c d"]


def test_a_tokenizer_with_more_words(encoder):
    grown = grow(encoder, encoder.tokenizer.learn(["moscow"]))
    vectors = grown.model.encoder.embed.words(torch.arange(grown.tokenizer.size))
    model, _ = extend_vocabulary(encoder.model, encoder.tokenizer, ["moscow"])
    torch.testing.assert_close(vectors, model.encoder.embed.words(torch.arange(grown.tokenizer.size)))
    assert len(grown.model.get_parameter("heads.next_token.bias")) == grown.tokenizer.size


def test_saved_and_loaded(encoder, tmp_path):
    cw.save(encoder, tmp_path / "m")
    again = cw.load(tmp_path / "m")
    assert torch.equal(again.model.encoder.embed.words.spelling, encoder.model.encoder.embed.words.spelling)
    np.testing.assert_allclose(again.encode(["the fox likes moscow"]), encoder.encode(["the fox likes moscow"]))


SENTENCES = [["a", "red", "fox"], [], ["the", "dog", "sleeps", "near", "Moscow"], ["xylophones"]]


def test_features_of_every_word_and_layer(encoder):
    """As in a pass of its own, whatever stands beside it; words that nobody met are read as they are written."""
    actual = encoder.features(SENTENCES)
    assert [each.shape for each in actual] == [(3, len(words), 16) for words in SENTENCES]
    ids, begin = encoder.add_special_tokens(encoder.tokenizer.encode(["a red fox"])[0].ids.tolist())
    alone = encoder.forward(torch.tensor([ids]), logits=False).hidden_states
    expected = torch.stack(alone)[:, 0, begin : begin + 3].numpy()
    np.testing.assert_allclose(actual[0], expected, atol=1e-6)
    one, other = encoder.features([["xylophones"], ["zebra"]])
    np.testing.assert_allclose(one, actual[3], atol=1e-6)
    assert np.abs(one - other).max() > 1e-4
    for words in ("a red fox", ["a", 1]):
        with pytest.raises(InputError, match="a list of words is needed"):
            encoder.features([words])


def test_features_of_words_in_pieces():
    """The first piece of each."""
    tokenizer = Tokenizer.train(["red foxes run"] * 9, "wordpiece", 64)
    r = recipe("bert_tiny")
    r.encoder.vocab = tokenizer.size
    encoder = TextEncoder(build(r).eval(), tokenizer, r)
    words = ["red", "runner", "foxes"]
    each = [tokenizer.encode([word])[0].ids.tolist() for word in words]
    assert max(map(len, each)) > 1
    ids, begin = encoder.add_special_tokens([index for some in each for index in some])
    layers = torch.stack(encoder.forward(torch.tensor([ids]), logits=False).hidden_states)[:, 0]
    at = [begin, begin + len(each[0]), begin + len(each[0]) + len(each[1])]
    np.testing.assert_allclose(encoder.features([words])[0], layers[:, at].numpy(), atol=1e-6)
    with pytest.raises(InputError, match="positions"):
        encoder.features([["red"] * 600])
