"""Heads that know how frequent words are before they learn anything."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.evaluate.heldout import batches, measure
from clozeworks.metrics.frequencies import unigram_baseline
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.shift import Shift
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe as named
from clozeworks.starts.prior import FrequencyPrior
from clozeworks.train.pretrain import fit_to_data, open_data
from clozeworks.train.pretraining_batches import PretrainingBatches
from clozeworks.train.startup.setup import Start, set_up
from tests.labels import collect_labels


def begins(recipe: Recipe, data: list[tuple[Path, float]], run: Path, **how: object):
    corpora, tokenizer = open_data(data)
    recipe = fit_to_data(recipe, tokenizer)
    batches = PretrainingBatches(recipe, corpora, tokenizer.vocabulary())
    return set_up(run, recipe, tokenizer, batches, device="cpu", start=Start(**how))  # pyright: ignore[reportArgumentType]


def small(name: str) -> Recipe:
    r = named(name)
    r.encoder.width, r.encoder.init = 16, 1e-8  # so that nothing but the bias says anything
    r.objective.losses, r.start = r.objective.losses[:1], (FrequencyPrior(),)
    r.objective.segments.length = 16
    return r


@pytest.mark.parametrize("name", ["roberta_mini", "xlnet_mini", "awd_lstm_mini", "elmo_mini"])
def test_before_the_first_step_a_model_is_as_good_as_frequencies(data: Path, tmp_path: Path, name: str):
    setup = begins(small(name), [(data, 1.0)], tmp_path / "run")
    setting = (Corpus.open(data, "heldout"), setup.recipe.objective, setup.tokenizer.vocabulary())
    baseline = unigram_baseline(Corpus.open(data).unigram(), collect_labels(batches(*setting)))
    losses = measure(setup.model, batches(*setting))
    loss = setup.recipe.objective.losses[0]
    assert losses[loss.name] == pytest.approx(baseline["unigram_loss"], abs=1e-4)


def test_corpora_count_as_they_are_mixed(data: Path, tmp_path: Path):
    text = tmp_path / "other.txt"
    text.write_text("\n\n".join(["the fox and the hen"] * 40))
    prepare([text], tmp_path / "other", tokenizer=data, heldout=0.0)
    setup = begins(small("roberta_mini"), [(data, 3.0), (tmp_path / "other", 1.0)], tmp_path / "run")
    one, two = (Corpus.open(path).unigram() for path in (data, tmp_path / "other"))
    share = (0.75 * one / one.sum() + 0.25 * two / two.sum()) * (one.sum() + two.sum()) + 1
    head = setup.model.head("masked_lm")
    assert head is not None
    np.testing.assert_allclose(head.get_parameter("bias").detach().exp(), share / share.sum(), rtol=1e-5)


def test_weights_that_were_learned_before_stay(data: Path, tmp_path: Path):
    source = build(begins(small("roberta_mini"), [(data, 1.0)], tmp_path / "one").recipe)
    setup = begins(small("roberta_mini"), [(data, 1.0)], tmp_path / "two", source=source)
    head = setup.model.head("masked_lm")
    assert head is not None
    assert torch.equal(head.get_parameter("bias"), torch.zeros(source.encoder.embed.words.vocab))


def test_a_head_without_a_bias_is_refused():
    r = small("roberta_mini")
    for loss in (NextToken(), MaskedLM(plain=True)):
        with pytest.raises(RecipeError, match="a bias of words is what begins so"):
            FrequencyPrior().check_model("start.0", r.architecture, Objective(r.objective.segments, Shift(), (loss,)))
    r.objective.losses = (MaskedLM(plain=True),)
    with pytest.raises(RecipeError, match=r"start\.0 = FrequencyPrior"):
        spec.check(r, "r")
