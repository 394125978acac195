"""New words for an old model: rows that start where their old pieces were, and no old id moved."""

import numpy as np
import pytest
import torch

from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.grow import BIAS, TABLE, grow, is_larger
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.recipe import build
from clozeworks.recipes import recipe

TEXTS = ["the fox sees a red stone near the old tree", "a small hen eats under the large house"] * 20


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    tokenizer = Tokenizer.train(TEXTS, vocab=90)
    r = recipe("bert_tiny")
    r.encoder.vocab = tokenizer.size
    model = build(r).eval()
    with torch.no_grad():
        model.get_parameter(BIAS).normal_()
    return TextEncoder(model, tokenizer, r)


def test_new_rows_are_the_mean_of_their_old_pieces(encoder):
    old = encoder.tokenizer
    new, added = old.add_tokens(["foxstone", "hen", "redtree"])
    assert added == new.size - old.size > 0
    grown = grow(encoder, new)
    assert grown.recipe.encoder.vocab == new.size
    assert encoder.recipe.encoder.vocab == old.size, "the old recipe must stay as it is"
    for name in (TABLE, BIAS):
        before, after = encoder.model.get_parameter(name), grown.model.get_parameter(name)
        assert torch.equal(after[: old.size], before)
        for word in ("foxstone", "redtree"):
            pieces = old.encode([word])[0].ids.tolist()
            assert len(pieces) > 1
            torch.testing.assert_close(after[new.id(word)], before[pieces].mean(0))


def test_a_text_without_new_words_is_read_as_before(encoder):
    new, _ = encoder.tokenizer.add_tokens(["foxstone"])
    ids = torch.tensor([encoder.tokenizer.encode(["the red hen sees a tree"])[0].ids.tolist()])
    before, after = encoder.forward(ids), grow(encoder, new).forward(ids)
    assert torch.equal(before.last_hidden_state, after.last_hidden_state)
    assert before.logits is not None
    assert after.logits is not None
    torch.testing.assert_close(before.logits, after.logits[..., : encoder.tokenizer.size])


def test_rows_that_were_there_for_nobody_are_used(encoder):
    """Published models often have a few more rows than tokens."""
    r = recipe("bert_tiny")
    r.encoder.vocab = encoder.tokenizer.size + 8
    padded = TextEncoder(build(r).eval(), encoder.tokenizer, r)
    new, _ = encoder.tokenizer.add_tokens(["foxstone"])
    grown = grow(padded, new)
    assert grown.recipe.encoder.vocab == r.encoder.vocab
    table = padded.model.get_parameter(TABLE)
    pieces = encoder.tokenizer.encode(["foxstone"])[0].ids.tolist()
    torch.testing.assert_close(grown.model.get_parameter(TABLE)[new.id("foxstone")], table[pieces].mean(0))


def test_ids_that_moved_are_refused(encoder):
    other = Tokenizer.train([text[::-1] for text in TEXTS], vocab=120)
    assert not is_larger(encoder.tokenizer, other)
    with pytest.raises(InputError, match="old tokens must keep their ids"):
        grow(encoder, other)


def test_a_model_without_a_tokenizer_is_refused(encoder):
    new, _ = encoder.tokenizer.add_tokens(["foxstone"])
    with pytest.raises(InputError, match="without a tokenizer"):
        grow(TextEncoder(encoder.model, None, encoder.recipe), new)


def test_larger_means_larger(encoder):
    new, _ = encoder.tokenizer.add_tokens(["foxstone"])
    assert is_larger(encoder.tokenizer, new)
    assert not is_larger(new, encoder.tokenizer)
    assert not is_larger(new, new)
    assert np.array_equal(encoder.tokenizer.encode(["the fox"])[0].ids, new.encode(["the fox"])[0].ids)
