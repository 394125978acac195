"""What every corruption that replaces tokens promises."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.core.errors import RecipeError
from clozeworks.core.examples import ENTITY_INSIDE, ENTITY_START, NOTHING, PHRASE_INSIDE, PHRASE_START, RaggedBatch
from clozeworks.core.spec import check, from_dict, to_dict
from clozeworks.objectives.mask.masking import Masking
from clozeworks.objectives.mask.ngrams import MaskNgrams
from clozeworks.objectives.mask.phrases import MaskPhrases
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.spans import MaskSpans
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.mask.whole_words import MaskWholeWords
from clozeworks.objectives.objective import Objective
from tests.objectives.layouts import VOCABULARY, chosen_of, corrupt, lay, layouts

EVERY: list[Masking] = [
    MaskTokens(),
    MaskTokens(rounding="random", replace=Replace(source="ordinary")),
    MaskTokens(replace=Replace(per="span")),
    MaskWholeWords(),
    MaskNgrams(),
    MaskNgrams(longest=5, rounding="up"),
    MaskSpans(),
    MaskSpans(rounding="nearest", replace=Replace()),
    MaskPhrases(stage="basic"),
    MaskPhrases(),
    MaskPhrases(stage="entity"),
]
kinds = st.sampled_from(EVERY)
rates = st.sampled_from([0.01, 0.15, 0.4, 0.8, 0.999])


def annotate(examples: RaggedBatch, seed: int) -> RaggedBatch:
    """Phrases and entities of random lengths over the ordinary tokens, as stretches may come: cut by piece borders."""
    generator = np.random.default_rng(seed)
    marks = np.zeros(len(examples.tokens), dtype=np.uint8)
    for start, inside in ((PHRASE_START, PHRASE_INSIDE), (ENTITY_START, ENTITY_INSIDE)):
        at = 0
        while at < len(marks):
            size = int(generator.integers(1, 7))
            if generator.random() < 0.5:
                marks[at] |= start
                marks[at + 1 : at + size] |= inside
            at += size
    marks[examples.special] = 0
    return dataclasses.replace(examples, units=marks)


@settings(deadline=None, max_examples=150)
@given(layouts, kinds, rates, st.none() | st.integers(1, 8), st.booleans(), st.integers(0, 5))
def test_nothing_is_lost_invented_or_mislabelled(layout, kind, rate, most, bare, seed):
    kind = dataclasses.replace(kind, rate=rate, most=most)
    clean = annotate(lay(layout, seed, bare), seed)
    before = dataclasses.replace(clean, tokens=clean.tokens.copy())
    hidden = corrupt(kind, clean, seed)
    assert np.array_equal(clean.tokens, before.tokens)
    chosen = hidden.labels != NOTHING
    assert np.array_equal(hidden.tokens[~chosen], clean.tokens[~chosen])
    assert np.array_equal(hidden.labels[chosen], clean.tokens[chosen])
    assert not (chosen & clean.special).any()
    for name in ("first", "segment", "special", "word_starts", "units"):
        assert getattr(hidden, name) is getattr(clean, name)
    assert (hidden.labels.dtype, hidden.tokens.dtype) == (np.int32, np.int32)
    for of_example, special in zip(chosen_of(hidden), np.split(clean.special, clean.first[1:-1]), strict=True):
        assert of_example.any() == (~special).any()  # a prediction wherever there is a token


@settings(deadline=None, max_examples=80)
@given(layouts, kinds, rates, st.integers(0, 5), st.data())
def test_an_example_does_not_depend_on_its_company(layout, kind, rate, seed, data):
    kind = dataclasses.replace(kind, rate=rate)
    clean = annotate(lay(layout), seed)
    keys = counter_rng.fold(seed, np.arange(len(clean)))
    together = kind.corrupt(clean, keys, VOCABULARY)
    at = data.draw(st.integers(0, len(layout) - 1))
    here = slice(clean.first[at], clean.first[at + 1])
    columns = {
        each.name: getattr(clean, each.name)[here]
        for each in dataclasses.fields(clean)
        if each.name not in ("first", "fields") and getattr(clean, each.name) is not None
    }
    first = np.array([0, here.stop - here.start])
    alone = kind.corrupt(RaggedBatch(first=first, **columns), keys[at : at + 1], VOCABULARY)
    assert np.array_equal(together.tokens[here], alone.tokens)
    assert np.array_equal(together.labels[here], alone.labels)
    if together.span is not None:
        assert alone.span is not None
        assert np.array_equal(together.span[here], alone.span)


@pytest.mark.parametrize("kind", EVERY, ids=repr)
def test_another_key_another_choice(kind):
    clean = annotate(lay([[[1, 2, 1, 3] * 25]], times=20), 0)
    first, again, other = (corrupt(kind, clean, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.labels, again.labels)
    assert np.array_equal(first.tokens, again.tokens)
    assert not np.array_equal(first.labels, other.labels)
    assert len({tuple(each.tolist()) for each in chosen_of(first)}) == 20  # twenty equal examples, twenty choices


@pytest.mark.parametrize("kind", EVERY, ids=repr)
def test_the_smallest_examples(kind):
    layout = [[], [[]], [[1]], [[], []], [[6]], [[], [1]]]  # [CLS], [CLS][SEP], one token, two empty pieces, one word
    for bare in (False, True):
        clean = annotate(lay(layout, bare=bare), 1)
        chosen = chosen_of(corrupt(kind, clean))
        assert [bool(each.any()) for each in chosen] == [False, False, True, False, True, True]
    nothing = annotate(lay([]), 0)
    assert len(corrupt(kind, nothing)) == 0


@pytest.mark.parametrize(("length", "count"), [(128, 19), (512, 77)])
@pytest.mark.parametrize("kind", [MaskTokens(), MaskWholeWords(), MaskNgrams(), MaskSpans()], ids=repr)
def test_the_budget_of_the_papers(kind, length, count):
    """Words of one token: every kind can meet its budget."""
    chosen = chosen_of(corrupt(kind, lay([[[1] * (length - 2)]], times=50)))
    assert {int(each.sum()) for each in chosen} == {count}


def test_the_cap():
    for kind in EVERY:
        clean = annotate(lay([[[1] * 500]], times=3), 0)
        assert max(each.sum() for each in chosen_of(corrupt(dataclasses.replace(kind, most=20), clean))) <= 20


@pytest.mark.parametrize("kind", [MaskTokens, MaskWholeWords, MaskNgrams])
def test_neighbours_can_share_one_fate_whatever_was_chosen(kind):
    how = kind(0.5, replace=Replace(source="ordinary", per="span"))
    hidden = corrupt(how, lay([[[1, 2] * 20]], times=200))
    masked = hidden.tokens == VOCABULARY.mask
    both = (hidden.labels[1:] != NOTHING) & (hidden.labels[:-1] != NOTHING)
    assert both.sum() > 1000
    assert np.array_equal(masked[1:][both], masked[:-1][both])
    assert masked.sum() / (hidden.labels != NOTHING).sum() == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("kind", EVERY, ids=repr)
def test_a_spec_is_data(kind):
    check(kind)
    assert from_dict(to_dict(kind)) == kind
    assert kind.needs_counts == (kind.replace.source == "corpus")


@pytest.mark.parametrize(
    "wrong",
    [
        MaskTokens(rate=0.0),
        MaskTokens(rate=1.0),
        MaskWholeWords(most=0),
        MaskNgrams(longest=0),
        MaskSpans(longest=0),
        MaskSpans(ending=0.0),
        MaskTokens(copies=0),
        MaskTokens(replace=Replace(mask=0.9, random=0.2)),
        MaskPhrases(stage="paragraph"),  # pyright: ignore[reportArgumentType]
        MaskTokens(rounding="down"),  # pyright: ignore[reportArgumentType]
    ],
    ids=repr,
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(RecipeError, match="recipe"):
        check(wrong, "recipe")


def test_a_loss_without_its_column_is_told_which_masks_write_it():
    from clozeworks.objectives.losses.masked_lm import MaskedLM
    from clozeworks.objectives.segments import FullSentences

    with pytest.raises(RecipeError, match=r"MaskTokens or .*MaskWholeWords") as refused:
        check(Objective(FullSentences(), None, (MaskedLM(),)))
    assert "=Masking" not in str(refused.value)
