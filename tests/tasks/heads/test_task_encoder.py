"""Recurrent layers of a task's own, and where a model's features come in."""

import pytest
import torch

from clozeworks.core.batch import Hidden
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.model import initialise
from clozeworks.tasks.heads.task_encoder import TaskEncoder, TaskEncoderLayer
from tests.toys import batch_of, packed

FIRST, WIDTH, VOCAB = 5, 7, 20
ROWS = [[3, 4], [5]]


def case(spec: TaskEncoder) -> tuple[TaskEncoderLayer, Hidden, torch.Tensor]:
    torch.manual_seed(0)
    module = spec.build(WIDTH, FIRST, VOCAB)
    initialise(module, 0.3, 0)
    first = torch.randn(2, 7, FIRST)
    return module, Hidden(first, (first,)), torch.randn(2, 7, WIDTH)


@pytest.mark.parametrize("places", [("between",), ("input",), ("output",), ("input", "output"), ()])
def test_features_come_in_where_they_are_asked_for(places):
    spec = TaskEncoder(cells=6, words=3, features=places, dropout=0.0)
    check(spec)
    module, hidden, features = case(spec)
    batch = batch_of(packed(ROWS, 7), torch.randint(0, VOCAB, (2, 7)))
    out = module(hidden, features, batch)
    assert out.shape == (2, 7, spec.out_width(WIDTH))
    assert module.projections[0].in_features == FIRST + 3 + WIDTH * ("input" in places)
    assert module.projections[1].in_features == 12 + WIDTH * ("between" in places)
    assert torch.equal(out[..., 12:], features[..., : out.shape[-1] - 12])
    again = module(hidden, features.flip(-1), batch)
    assert torch.allclose(out[..., :12], again[..., :12]) == (places in (("output",), ()))


def test_by_hand_between():
    spec = TaskEncoder(cells=6, words=0, dropout=0.0)
    module, hidden, features = case(spec)
    context, tokens = packed(ROWS, 7), torch.zeros(2, 7, dtype=torch.long)
    one = module.readers[0](module.projections[0](hidden.layers[0]), packed(ROWS, 7)).last
    two = module.readers[1](module.projections[1](torch.cat([one, features], -1)), packed(ROWS, 7)).last
    torch.testing.assert_close(module(hidden, features, batch_of(context, tokens)), two)


def test_packed_is_as_alone():
    module, hidden, features = case(TaskEncoder(cells=6, words=3))
    tokens = torch.randint(0, VOCAB, (2, 7))
    whole = module(hidden, features, batch_of(packed(ROWS, 7), tokens))
    part = slice(3, 7)
    alone = Hidden(hidden.last[:1, part], (hidden.last[:1, part],))
    result = module(alone, features[:1, part], batch_of(packed([[4]], 4), tokens[:1, part]))
    torch.testing.assert_close(whole[:1, part], result, atol=2e-6, rtol=1e-5)


def test_a_word_that_came_later_has_no_vector_here():
    module, hidden, features = case(TaskEncoder(cells=6, words=3, dropout=0.0))
    tokens = torch.full((2, 7), VOCAB + 5)
    result = module(hidden, features, batch_of(packed(ROWS, 7), tokens))
    with torch.no_grad():
        module.words.weight.zero_()
    torch.testing.assert_close(result, module(hidden, features, batch_of(packed(ROWS, 7), tokens % VOCAB)))


def test_what_is_dropped_is_keyed():
    module, hidden, features = case(TaskEncoder(cells=6, dropout=0.5))
    batch = batch_of(packed(ROWS, 7), torch.zeros(2, 7, dtype=torch.long))
    plain = module(hidden, features, batch)
    hidden.key = DropoutKey.make(1, rows=range(2))
    assert not torch.allclose(plain, module(hidden, features, batch))
    assert torch.equal(module(hidden, features, batch), module(hidden, features, batch))


@pytest.mark.parametrize(
    "part", [TaskEncoder(0), TaskEncoder(words=-1), TaskEncoder(dropout=1.0), TaskEncoder(features=("input", "input"))]
)
def test_what_cannot_be_is_refused(part):
    with pytest.raises(RecipeError):
        check(part)
