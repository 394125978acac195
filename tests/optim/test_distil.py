import pytest

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.optim.distil import Distil, spread
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from clozeworks.train.run_dir import fingerprint


def test_layers_are_spread_from_the_first_to_the_last():
    assert spread(6, 12) == (0, 2, 4, 7, 9, 11)
    assert spread(2, 4) == (0, 3)
    assert spread(12, 12) == tuple(range(12))
    assert spread(1, 12) == (0,)
    assert Distil((3, 1)).layers(2, 4) == (3, 1)


@pytest.mark.parametrize(
    ("distil", "message"),
    [
        (Distil((0, 1, 2)), r"distil\.start = \[0, 1, 2\]: one layer of the teacher for each of 2 is needed"),
        (Distil((0, -1)), r"distil\.start\.1 = -1: 0 or more"),
    ],
)
def test_a_start_that_cannot_be_is_refused(distil, message):
    r = recipe("distilbert_mini")
    r.distil = distil
    with pytest.raises(RecipeError, match=message):
        spec.check(r, r.name)


def test_positions_to_freeze_must_be_there():
    r = recipe("distilbert_mini")
    r.encoder.embed.positions = None
    with pytest.raises(RecipeError, match="there is no table of positions"):
        spec.check(r, r.name)


def test_frozen_positions_are_not_trained():
    r = recipe("distilbert_mini")
    r.encoder.vocab = 50
    frozen = [name for name, parameter in build(r).named_parameters() if not parameter.requires_grad]
    assert frozen == ["encoder.embed.positions.table.weight"]


def test_it_is_part_of_the_fingerprint():
    r = recipe("bert_mini")
    assert spec.to_dict(r)["distil"] is None
    before = fingerprint(r)
    r.distil = Distil()
    assert fingerprint(r) != before
    assert spec.from_dict(spec.to_dict(r)) == r
