"""Held-out figures: exact means, masks that never change, a baseline one can work out by hand."""

import copy
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.text.documents import Document
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate.heldout import batches, evaluate, fewer_streams, measure
from clozeworks.metrics.frequencies import unigram_baseline
from clozeworks.objectives.losses.masked_lm import MaskedLMLayer
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import DocSentences, Stream
from clozeworks.objectives.shift import Shift
from clozeworks.recipe import Recipe, build
from clozeworks.recipes.bert import bert_tiny
from clozeworks.train.pretrain import fit_to_data
from tests.labels import collect_labels


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw, text = random.Random(4), "the a red fox dog hen runs sleeps sees near old tree"
    sentence = lambda: " ".join(draw.choices(text.split(), k=draw.randint(4, 12))) + " ."  # noqa: E731
    out = tmp_path_factory.mktemp("prepared") / "data"
    texts = [Document(sentences=[sentence() for _ in range(draw.randint(3, 9))]) for _ in range(120)]
    prepare(texts, out, vocab=400, heldout=0.3)
    return out


@pytest.fixture(scope="module")
def recipe(data: Path) -> Recipe:
    r = bert_tiny()
    r.objective.segments.length = 32
    return fit_to_data(r, Tokenizer.load(data))


@pytest.fixture(scope="module")
def setting(data: Path, recipe: Recipe):
    return Corpus.open(data, "heldout"), recipe.objective, Tokenizer.load(data).vocabulary()


def test_the_size_of_a_batch_changes_no_figure(recipe: Recipe, setting):
    model = build(recipe)
    metrics = [evaluate(model, *setting, batch_tokens=size) for size in (32, 256, 100_000)]
    assert metrics[0].keys() == {"loss", "masked_lm", "sentence_pair", "masked_accuracy", "pair_accuracy",
                                 "perplexity", "count"}  # fmt: skip
    for other in metrics[1:]:
        assert other == pytest.approx(metrics[0], rel=1e-5)
    assert metrics[0]["perplexity"] == pytest.approx(math.exp(metrics[0]["masked_lm"]))
    assert metrics[0]["loss"] == pytest.approx(metrics[0]["masked_lm"] + metrics[0]["sentence_pair"])


def test_means_are_over_predictions_not_over_batches(recipe: Recipe, setting):
    model = build(recipe)
    right = total = 0
    for batch in batches(*setting, batch_tokens=32):
        with torch.no_grad():
            hidden = model.encoder(batch.tokens, batch.token_info, batch.context(), batch.firsts)
            head = model.heads["masked_lm"]
            assert isinstance(head, MaskedLMLayer)
            guess = head.logits(hidden.at(batch)).argmax(-1)
        assert batch.labels is not None
        right, total = right + int((guess == batch.labels).sum()), total + len(batch.labels)
    metrics = evaluate(model, *setting)
    assert metrics["count"] == total
    assert metrics["masked_accuracy"] == pytest.approx(right / total)


def test_masks_never_change(setting):
    one, two = (list(batches(*setting, batch_tokens=64)) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.tokens, b.tokens)
    other = list(batches(*setting, seed=1, batch_tokens=64))
    assert any(a.tokens.shape != b.tokens.shape or not torch.equal(a.tokens, b.tokens) for a, b in zip(one, other))  # noqa: B905


def test_a_limit_leaves_out_rows_whatever_the_batch(setting):
    examples = lambda **how: [i for batch in batches(*setting, **how) for i in batch.index]  # noqa: E731
    whole = examples(batch_tokens=64)
    some = examples(batch_tokens=64, limit_tokens=320)
    assert some == examples(batch_tokens=10_000, limit_tokens=320) == whole[: len(some)]
    assert 0 < len(some) < len(whole)
    assert len(examples(limit_tokens=1)) >= 1


def test_measuring_leaves_the_model_as_it_was(recipe: Recipe, setting):
    model = build(recipe)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    measure(model, batches(*setting))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_unigram_baseline_by_hand():
    # add-one: 1/10, 6/10, 3/10; the mode is token 1
    metrics = unigram_baseline(np.array([0, 5, 2]), np.array([1, 1, 2, 0]))
    expected = -(2 * math.log(0.6) + math.log(0.3) + math.log(0.1)) / 4
    assert metrics == pytest.approx({"unigram_loss": expected, "unigram_accuracy": 0.5})


def test_the_baseline_predicts_the_same_tokens_as_the_model(data: Path, recipe: Recipe, setting):
    labels = collect_labels(batches(*setting))
    assert len(labels) == evaluate(build(recipe), *setting)["count"]
    metrics = unigram_baseline(Corpus.open(data).unigram(), labels)
    assert 1.0 < metrics["unigram_loss"] < math.log(recipe.encoder.vocab)
    assert 0.05 < metrics["unigram_accuracy"] < 0.5


def test_held_out_text_is_not_shredded():
    """Streams are halved until each has 32 rows; other segments stay as they are."""
    segments = Stream(16, 12)
    assert [fewer_streams(segments, tokens).streams for tokens in (12 * 512, 12 * 512 - 1, 3 * 512, 600, 20)] == [
        12, 6, 3, 1, 1
    ]  # fmt: skip
    assert fewer_streams(segments, 10**6) is segments
    other = DocSentences(16)
    assert fewer_streams(other, 20) is other


def test_a_model_with_memory_carries_it_through_the_held_out_text(recipe: Recipe, data: Path):
    """In rows of any length it finds what one long row shows, where one layer remembers everything."""
    r = copy.deepcopy(recipe)
    r.objective = Objective(Stream(16, 2), Shift(), (NextToken(),))
    r.encoder.embed.positions, r.encoder.pooler, r.encoder.stack.depth, r.encoder.stack.memory = None, None, 1, 10**6
    model, text, vocabulary = build(r), Corpus.open(data, "heldout"), Tokenizer.load(data).vocabulary()
    streams = lambda length: Objective(Stream(length, 1), Shift(), (NextToken(),))  # noqa: E731
    whole = evaluate(model, text, streams(10**5), vocabulary)
    assert whole["count"] == int(text.sentences[-1]) + len(text.documents) - 2, "every token but the first"
    for length in (64, 100):
        assert evaluate(model, text, streams(length), vocabulary) == pytest.approx(whole, rel=1e-5)
    again = evaluate(model, text, streams(64), vocabulary)
    assert again == evaluate(model, text, streams(64), vocabulary), "each time from nothing"
    model.encoder.stack.memory = 0
    assert evaluate(model, text, streams(64), vocabulary)["loss"] != pytest.approx(whole["loss"], rel=1e-5)
