"""What a step reads: batches as the model was trained on them."""

import numpy as np
import pytest
import torch

from clozeworks.compress import Data
from clozeworks.compress.data import TokenizedTexts, losses
from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from tests.compress import models


def test_texts_in_memory_are_those_that_would_be_prepared(tmp_path):
    bundle = models.make_model("bert_tiny")
    prepare(iter(models.documents()), tmp_path / "data", tokenizer=bundle.tokenizer, heldout=0)
    corpus = Corpus.open(tmp_path / "data")
    texts = TokenizedTexts(models.documents(), bundle.tokenizer, 10**6)
    assert np.array_equal(corpus.sentences, texts.sentences)
    assert np.array_equal(corpus.documents, texts.documents)
    whole = np.array([0]), np.array([len(corpus)])
    assert np.array_equal(corpus.take(*whole).tokens, texts.take(*whole).tokens)
    assert np.array_equal(corpus.take(*whole).word_starts, texts.take(*whole).word_starts)
    assert np.array_equal(corpus.unigram(), texts.unigram())


def test_no_more_is_read_than_was_asked_for():
    bundle = models.make_model("bert_tiny")
    data = Data(texts=models.documents(400), tokens=600)
    read = sum(batch.real for batch in data.batches(bundle))
    assert 300 < read <= 600
    table = Data(table=models.make_table("classify"), tokens=10)
    assert len(list(table.batches(models.make_task("classify")))) == 1


def test_the_same_seed_reads_the_same():
    bundle = models.make_model("bert_tiny")
    first, again, other = (Data(texts=models.documents(), seed=seed, tokens=512) for seed in (1, 1, 2))
    tokens = [next(each.batches(bundle)).tokens for each in (first, again, other)]
    assert torch.equal(tokens[0], tokens[1])
    assert not torch.equal(tokens[0], tokens[2])


def test_the_loss_of_a_batch_is_that_of_training():
    bundle = models.make_task("classify")
    batch = next(models.make_data("classify").batches(bundle))
    loss, count = next(losses(bundle.model, iter([batch])))
    assert count == len(batch.firsts)
    assert float(loss.detach()) == pytest.approx(
        float(bundle.model(batch).losses["classify"].detach()) / count, rel=1e-5
    )


@pytest.mark.parametrize("name", ["gpt_mini", "adaptive_span_mini", "bert_tiny", "elmo_mini"])
def test_a_model_without_a_loss_reads_as_it_was_trained(name: str):
    bundle = models.make_model(name)
    bundle.recipe.objective.losses = ()
    bare = models.build_model(bundle.recipe, bundle.tokenizer)
    batch = next(models.make_data(name).batches(bare))
    assert batch.kind == bare.recipe.reading
    loss, _ = next(losses(bare.model, iter([batch])))
    assert loss.isfinite()
    assert loss.requires_grad


def test_refusals():
    writer = models.make_model("transformer_mini")
    writer.recipe.objective.losses = ()
    with pytest.raises(InputError, match="give labelled rows"):
        next(models.make_data("transformer_mini").batches(writer))
    bundle = models.make_model("bert_tiny")
    with pytest.raises(InputError, match="nothing to read"):
        next(Data(texts=["  "]).batches(bundle))
    bundle.tokenizer = None
    with pytest.raises(InputError, match="a model without a tokenizer"):
        next(Data(texts=["fox"]).batches(bundle))
