"""Encoders of our own: exported exactly, and fine-tuned as what they are."""

from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import RecipeError
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.mixers.attention import Attention
from clozeworks.optim.settings import Phase
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe as named
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.encoder_recipe import PretrainedEncoder
from clozeworks.tasks.heads.crf import CRF
from clozeworks.tasks.summary import Summary, choose_summary
from clozeworks.tasks.tag import Tag
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.recipe import make_finetune_recipe

NAMES = ("cloze_tiny", "cloze_mini", "cloze_small", "cloze_base")


def small(name: str) -> Recipe:
    r = named(name)
    r.encoder.vocab = 120
    return r


@pytest.mark.parametrize("name", NAMES[:2])
def test_transformers_gives_equal_logits(name: str, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM

    r = small(name)
    encoder = TextEncoder(build(r).eval(), None, r)
    cw.save(encoder, tmp_path / "hf", format="hf")
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / "hf").eval()
    assert type(theirs).__name__ == "RoFormerForMaskedLM"
    ids = torch.randint(5, 120, (2, 40), generator=torch.Generator().manual_seed(0))
    ours = encoder.forward(ids).logits
    assert ours is not None
    with torch.no_grad():
        torch.testing.assert_close(ours, theirs(ids).logits, rtol=0, atol=2e-5)


def test_sizes_rise() -> None:
    counts = [cw.count_parameters(small(name)) for name in NAMES]
    assert counts == sorted(counts)


@pytest.mark.parametrize("name", NAMES)
def test_each_masks_more_in_training_than_in_evaluation(name: str) -> None:
    r = named(name)
    assert [phase.mask_rate for phase in r.train.phases] == [0.4]
    assert getattr(r.objective.corruption, "rate", None) == 0.15


def test_what_learned_for_minutes_is_fine_tuned_as_such() -> None:
    r, published = small("cloze_tiny"), named("roberta_mini")
    assert r.brief
    assert not published.brief
    assert choose_summary(r, InputTemplate(), pooled=False).place == "mean"
    assert choose_summary(published, InputTemplate(), pooled=False).place == "first"
    task = Classify(labels=("a", "b"), summary=Summary("mean", None))
    tuned = make_finetune_recipe(r, task, 600)
    mixer = tuned.encoder.stack.block_at(0).mixer
    assert isinstance(mixer, Attention)
    assert (tuned.encoder.embed.dropout, tuned.encoder.stack.block_at(0).dropout, mixer.dropout) == (0.1, 0.1, 0.1)
    assert tuned.train.learning_rate == pytest.approx(5e-4), "half the rate where rows are few"
    assert make_finetune_recipe(r, task, 1000).train.learning_rate == pytest.approx(1e-3)
    assert make_finetune_recipe(small("cloze_mini"), task, 1000).train.learning_rate == pytest.approx(5e-4)
    assert r.encoder.embed.dropout == 0.0, "the encoder's own recipe stays as it was"


def test_its_tags_are_a_chain() -> None:
    """What was pretrained for minutes knows too little of what stands beside a word."""
    chains = [Tag.for_encoder(PretrainedEncoder(named(name), InputTemplate(), False, None)).crf
              for name in ("cloze_mini", "roberta_mini")]  # fmt: skip
    assert chains == [CRF(), None]


def test_a_mask_rate_needs_masking() -> None:
    r = named("gpt_mini")
    r.train.phases = (Phase(1.0, r.objective.segments.length, 0.3),)
    with pytest.raises(RecipeError, match=r"train.phases.0.mask_rate = 0.3: .* has no mask rate"):
        cw.count_parameters(r)


def test_what_was_taught_is_fine_tuned_without_its_teacher() -> None:
    r = small("cloze_mini_distilled")
    task = Classify(labels=("a", "b"), summary=Summary("mean", None))
    tuned = make_finetune_recipe(r, task, 100)
    assert tuned.start == ()
    assert not tuned.taught
