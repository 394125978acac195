"""Texts side by side: the same vectors as padded ones, whatever the batch, and no text lost."""

import numpy as np
import pytest
import torch

from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference import text_encoder
from clozeworks.inference.packing import can_pack, pack_by_length
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.recipe import build
from clozeworks.recipes import named, recipe

WORDS = "the fox sees a red stone near old tree small hen eats under large house and runs".split()  # noqa: SIM905
TEXTS = [" ".join(np.random.default_rng(n).choice(WORDS, (n * 7) % 30)) for n in range(60)]


def make(name: str) -> TextEncoder:
    tokenizer = Tokenizer.train(TEXTS, vocab=90)
    r = recipe(name)
    r.encoder.vocab, r.encoder.init = tokenizer.size, 0.08
    return TextEncoder(build(r).eval(), tokenizer, r)


@pytest.mark.parametrize("pool", ["mean", "first", "max"])
@pytest.mark.parametrize("name", ["bert_tiny", "roberta_mini", "gpt_mini", "albert_mini"])
def test_packed_equals_padded(name, pool, monkeypatch):
    encoder = make(name)
    assert can_pack(encoder.recipe.encoder.stack)
    packed = [encoder.encode(TEXTS, pool, batch_tokens) for batch_tokens in (1, 300, 100_000)]
    monkeypatch.setattr(text_encoder, "can_pack", lambda stack: False)
    padded = encoder.encode(TEXTS, pool)
    for vectors in packed:
        np.testing.assert_allclose(vectors, padded, atol=2e-5)


def test_pools_of_texts_are_put_back_in_order(monkeypatch):
    encoder = make("bert_tiny")
    whole = encoder.encode(TEXTS)
    monkeypatch.setattr(text_encoder, "POOL", 7)
    np.testing.assert_allclose(encoder.encode(TEXTS), whole, atol=2e-5)
    assert encoder.encode([]).shape == (0, encoder.model.encoder.width)


def test_the_pooler_reads_first_tokens(monkeypatch):
    encoder = make("bert_tiny")
    packed = encoder.encode(TEXTS, "pooled")
    monkeypatch.setattr(text_encoder, "can_pack", lambda stack: False)
    np.testing.assert_allclose(packed, encoder.encode(TEXTS, "pooled"), atol=2e-5)


def test_every_row_once_and_none_over_its_budget():
    rows = [[1] * (1 + n % 13) for n in range(50)]
    seen = []
    for chosen, batch in pack_by_length(rows, 40, "full"):
        assert batch.tokens.shape[1] <= 40
        assert batch.layout.lengths == tuple(len(rows[n]) for n in chosen)
        assert batch.layout.runs is not None
        seen += chosen
    assert sorted(seen) == list(range(50))
    ((chosen, batch),) = pack_by_length([[1] * 100], 40, "full")
    assert batch.tokens.shape == (1, 100)


def test_models_whose_rows_depend_on_one_another_are_padded():
    names = {name for name, make in named().items() if name.endswith("_mini") and can_pack(make().encoder.stack)}
    assert {"bert_mini", "roberta_mini"} <= names
    assert not names & {"longformer_mini", "transformer_xl_mini", "xlnet_mini", "reformer_mini", "elmo_mini"}


def test_nothing_is_remembered_for_gradients():
    encoder = make("bert_tiny")
    rows = [[2, 5, 6, 3], [2, 7, 3]]
    for _, pooled in encoder._pooled(rows, "mean", 100):
        assert not pooled.requires_grad
    assert torch.is_grad_enabled()
