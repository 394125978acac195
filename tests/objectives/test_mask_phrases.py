import dataclasses

import numpy as np
import pytest

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import ENTITY_INSIDE, ENTITY_START, PHRASE_INSIDE, PHRASE_START, RaggedBatch
from clozeworks.objectives.mask.phrases import MaskPhrases
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.mask.whole_words import MaskWholeWords
from tests.objectives.layouts import budget_of, chosen_of, corrupt, lay

# Tokens 1 .. 14 between [CLS] and [SEP], words of 1, 2, 3, ...; phrases 1-3 and 4-6 side by side, entity 4-5.
WORDS = [1, 2, 3, 1, 2, 1, 4]
PHRASES, ENTITIES = [(1, 4), (4, 7)], [(4, 6)]
UNITS = {
    "basic": [(at, at + 1) for at in range(1, 15)],
    "phrase": [(1, 4), (4, 7), (7, 8), (8, 10), (10, 11), (11, 15)],
    "entity": [(1, 2), (2, 4), (4, 6), (6, 7), (7, 8), (8, 10), (10, 11), (11, 15)],
}


def annotated(examples: int) -> RaggedBatch:
    clean = lay([[WORDS]], times=examples)
    marks = np.zeros((examples, 16), dtype=np.uint8)
    for begin, end in PHRASES:
        marks[:, begin] |= PHRASE_START
        marks[:, begin + 1 : end] |= PHRASE_INSIDE
    for begin, end in ENTITIES:
        marks[:, begin] |= ENTITY_START
        marks[:, begin + 1 : end] |= ENTITY_INSIDE
    return dataclasses.replace(clean, units=marks.reshape(-1))


@pytest.mark.parametrize("stage", ["basic", "phrase", "entity"])
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_units_are_hidden_whole_until_none_fits(stage, rate):
    hidden = corrupt(MaskPhrases(rate, stage=stage), annotated(400))
    seen = set()
    for chosen in chosen_of(hidden):
        taken = [(begin, end) for begin, end in UNITS[stage] if chosen[begin]]
        assert sum(end - begin for begin, end in taken) == chosen.sum()
        assert all(chosen[begin:end].all() for begin, end in taken)
        left = budget_of([WORDS], rate) - chosen.sum()
        passed = [end - begin for begin, end in UNITS[stage] if (begin, end) not in taken]
        assert left == 0 or (left > 0 and min(passed) > left)
        seen |= set(taken)
    assert seen == {(begin, end) for begin, end in UNITS[stage] if end - begin <= budget_of([WORDS], rate)}


def test_a_phrase_cut_by_a_piece_is_two_units():
    clean = lay([[[1, 1, 1], [1, 1, 1]]], times=300)
    marks = np.tile(np.array([0, 0, 1, 2, 0, 2, 2, 0, 0], dtype=np.uint8), 300)  # 2-3 | 5-6, its [SEP] between
    hidden = corrupt(MaskPhrases(0.4), dataclasses.replace(clean, units=marks))
    pairs = {(bool(row[2]), bool(row[3]), bool(row[5]), bool(row[6])) for row in chosen_of(hidden)}
    assert {(True, True, False, False), (False, False, True, True)} <= pairs
    assert all(pair[0] == pair[1] and pair[2] == pair[3] for pair in pairs)


def test_basic_is_single_tokens_and_no_annotation_is_whole_words():
    clean = annotated(50)
    assert np.array_equal(corrupt(MaskPhrases(stage="basic"), clean).tokens, corrupt(MaskTokens(), clean).tokens)
    bare = dataclasses.replace(clean, units=np.zeros_like(clean.special, dtype=np.uint8))
    assert np.array_equal(corrupt(MaskPhrases(), bare).tokens, corrupt(MaskWholeWords(), bare).tokens)


@pytest.mark.parametrize(("stage", "field"), [("phrase", "phrases"), ("entity", "entities")])
def test_text_without_annotation_is_refused(stage, field):
    with pytest.raises(InputError, match=f'"{field}": '):
        corrupt(MaskPhrases(stage=stage), lay([[WORDS]]))
    assert len(corrupt(MaskPhrases(stage="basic"), lay([[WORDS]]))) == 1


# ---- a share of annotated units


def test_a_share_decides_the_kind_of_the_first_unit():
    """Two entities among twelve units: a sixth of the first ones without a share, half of them with 0.5."""
    clean = lay([[[1] * 12]], times=6000)
    marks = np.zeros((6000, 14), dtype=np.uint8)
    marks[:, [3, 9]] = ENTITY_START
    clean = dataclasses.replace(clean, units=marks.reshape(-1))
    for share, expected in ((None, 1 / 6), (0.5, 0.5), (0.9, 0.9), (0.0, 0.0), (1.0, 1.0)):
        one = MaskPhrases(stage="entity", share=share, most=1)
        first = np.array(chosen_of(corrupt(one, clean)))
        assert first.sum() == 6000
        assert first[:, [3, 9]].sum() / 6000 == pytest.approx(expected, abs=0.025)
        assert first[:, 3].sum() == pytest.approx(first[:, 9].sum(), abs=250)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("rate", [0.15, 0.4, 0.9])
def test_with_a_share_units_are_still_hidden_whole_until_none_fits(share, rate):
    hidden = corrupt(MaskPhrases(rate, stage="entity", share=share), annotated(300))
    for chosen in chosen_of(hidden):
        taken = [(begin, end) for begin, end in UNITS["entity"] if chosen[begin]]
        assert sum(end - begin for begin, end in taken) == chosen.sum()
        left = budget_of([WORDS], rate) - chosen.sum()
        passed = [end - begin for begin, end in UNITS["entity"] if (begin, end) not in taken]
        assert left == 0 or (left > 0 and min(passed) > left)


def test_a_share_goes_by_the_example_alone():
    """Examples of other lengths beside it change nothing."""
    clean = dataclasses.replace(lay([[[1] * 9], [[1] * 40], [[2] * 5]]), units=None)
    marks = np.zeros(len(clean.tokens), dtype=np.uint8)
    marks[[2, 5, 20, 30, 55]] = ENTITY_START
    together = corrupt(MaskPhrases(0.5, stage="entity", share=0.5), dataclasses.replace(clean, units=marks))
    alone = dataclasses.replace(lay([[[1] * 9]]), units=marks[:11])
    assert np.array_equal(
        chosen_of(together)[0], chosen_of(corrupt(MaskPhrases(0.5, stage="entity", share=0.5), alone))[0]
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (MaskPhrases(share=1.5), r"a number in \[0, 1\]"),
        (MaskPhrases(share=-0.1), r"a number in \[0, 1\]"),
        (MaskPhrases(stage="basic", share=0.5), "for the stages phrase and entity"),
    ],
)
def test_a_share_is_a_chance_of_annotated_units(given: MaskPhrases, message: str):
    with pytest.raises(RecipeError, match=message):
        spec.check(given, "corruption")
