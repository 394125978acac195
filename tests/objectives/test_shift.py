"""Each token is labelled with the one that follows it; the last is a label alone."""

import numpy as np
from hypothesis import given

from clozeworks.core import counter_rng
from clozeworks.core.examples import NOTHING
from clozeworks.objectives.shift import Shift
from tests.objectives.layouts import VOCABULARY, Layout, lay, layouts


@given(layouts)
def test_every_token_but_the_first_is_predicted_once_from_the_one_before(layout: Layout):
    clean = lay(layout)
    shifted = Shift().corrupt(clean, counter_rng.fold(0, np.arange(len(clean))), VOCABULARY)
    assert len(shifted) == len(clean)
    for at in range(len(clean)):
        before = clean.tokens[clean.first[at] : clean.first[at + 1]]
        read = shifted.tokens[shifted.first[at] : shifted.first[at + 1]]
        labels = shifted.labels[shifted.first[at] : shifted.first[at + 1]]
        if len(before) == 1:
            assert (read.tolist(), labels.tolist()) == (before.tolist(), [NOTHING])
        else:
            assert read.tolist() == before[:-1].tolist()
            assert labels.tolist() == before[1:].tolist()
    for name in ("segment", "special", "word_starts"):
        assert len(getattr(shifted, name)) == len(shifted.tokens)


def test_what_was_read_is_left_alone():
    clean = lay([[[1, 2]], [[3]]])
    tokens = clean.tokens.copy()
    Shift().corrupt(clean, counter_rng.fold(0, np.arange(2)), VOCABULARY)
    assert clean.tokens.tolist() == tokens.tolist()
    assert set(clean.labels.tolist()) == {NOTHING}
