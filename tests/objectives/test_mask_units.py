import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.objectives.mask.units import annotated, cut, joined, single, words
from tests.objectives.layouts import lay, layouts

SETTINGS = settings(deadline=None, max_examples=100)


@SETTINGS
@given(layouts, st.booleans(), st.integers(0, 20))
def test_units_are_all_ordinary_tokens_each_once(layout, bare, seed):
    """Whatever begins where: a piece may begin within a word, an annotation may stop anywhere."""
    examples = lay(layout, bare=bare)
    generator = np.random.default_rng(seed)
    begins = generator.random(len(examples.tokens)) < 0.3
    marks = generator.integers(0, 16, len(begins)).astype(np.uint8)
    for units in (single(examples), words(examples), cut(examples, begins), annotated(examples, marks, 4, 8)):
        tokens = [at + k for at, size in zip(units.at, units.sizes, strict=True) for k in range(size)]
        assert tokens == np.flatnonzero(~examples.special).tolist()
        assert (units.sizes > 0).all()
        owner = np.repeat(np.arange(len(examples)), units.counts)
        last = units.at + units.sizes - 1
        assert np.array_equal(examples.example[units.at], owner)
        assert np.array_equal(examples.example[last], owner)
        assert np.array_equal(examples.segment[last], examples.segment[units.at])


@SETTINGS
@given(layouts, st.booleans(), st.integers(0, 20))
def test_a_unit_begins_where_told_or_after_a_border(layout, bare, seed):
    examples = lay(layout, bare=bare)
    begins = np.random.default_rng(seed).random(len(examples.tokens)) < 0.3
    at = set(cut(examples, begins).at.tolist())
    for token in np.flatnonzero(~examples.special).tolist():
        border = token in examples.first or examples.special[token - 1]
        border = border or examples.segment[token] != examples.segment[token - 1]
        assert (token in at) == bool(begins[token] or border)


@SETTINGS
@given(layouts, st.booleans())
def test_units_are_joined_within_a_piece_alone(layout, bare):
    examples = lay(layout, bare=bare)
    units = words(examples)
    after = joined(units, examples.segment)
    for unit, follows in enumerate(after.tolist()):
        if unit + 1 == len(after):
            assert not follows
        else:
            here, there = units.at[unit], units.at[unit + 1]
            near = here + units.sizes[unit] == there
            same = (
                examples.segment[here] == examples.segment[there] and examples.example[here] == examples.example[there]
            )
            assert follows == (near and same)
