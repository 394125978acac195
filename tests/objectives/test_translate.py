"""The source is read whole, the target up to its last token, and only the target is predicted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.core.examples import NOTHING
from clozeworks.data.batches.rows import Source
from clozeworks.objectives import Objective, Translate
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.segments import FullSentences, Pairs
from tests.toys import VOCABULARY, Text

pairs = st.lists(st.lists(st.integers(1, 40), min_size=2, max_size=2), min_size=1, max_size=12).map(Text)


@settings(deadline=None)
@given(pairs)
def test_each_token_of_the_target_and_its_end_are_predicted_once(text: Text):
    segments = Pairs(length=64, target_length=24)
    whole = Source(text, segments, None, VOCABULARY, 0).epoch(0)
    asked = Source(text, segments, Translate(), VOCABULARY, 0).epoch(0)
    for n in range(len(whole.plan)):
        clean, shifted = (epoch.examples(np.array([n])) for epoch in (whole, asked))
        source, target = (clean.tokens[clean.segment == side].tolist() for side in (0, 1))
        assert shifted.tokens.tolist() == [*source, *target[:-1]]
        assert shifted.segment.tolist() == [0] * len(source) + [1] * (len(target) - 1)
        assert shifted.labels.tolist() == [NOTHING] * len(source) + target[1:]
        assert (target[0], target[-1]) == (VOCABULARY.cls, VOCABULARY.sep)


def test_text_of_one_side_is_refused():
    message = r"corruption = Translate: .* examples of FullSentences have one side; use segments=Pairs"
    with pytest.raises(RecipeError, match=message):
        spec.check(Objective(FullSentences(64), Translate(), (NextToken(),)), "objective")
    spec.check(Objective(Pairs(64, 32), Translate(), (NextToken(),)), "objective")
