"""What a recipe builds."""

import pytest

from clozeworks.core.errors import RecipeError
from clozeworks.recipe import build, count_parameters
from clozeworks.recipes import recipe


def test_weights_that_would_all_begin_as_zero_are_refused():
    r = recipe("bert_tiny")
    r.encoder.vocab, r.encoder.init = 30, 0.0
    with pytest.raises(RecipeError, match=r"bert_tiny\.encoder\.init = 0: fresh weights would all be 0.*use 0\.02"):
        build(r)
    assert count_parameters(r) > 0, "what brings its weights may say so"
