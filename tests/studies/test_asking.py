"""Two words by enumeration: a probability is one, in each order, whoever is asked."""

import dataclasses
import itertools

import pytest
import torch
from torch import Tensor

import clozeworks as cw
from clozeworks.core.batch import from_padded
from clozeworks.core.examples import Vocabulary
from clozeworks.model import Model
from studies.asking import Ask, Masked, Permuted, alone, at_once, in_turn
from studies.independence import recipe_for

SIZE = 13
VOCABULARY = Vocabulary(SIZE, pad=0, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))
ROW = torch.tensor([[2, 7, 11, 5, 6, 12, 9, 3]])
PAIRS = torch.tensor(list(itertools.product(range(SIZE), repeat=2)))
FIRST, SECOND = 3, 5


def model_of(kind: str) -> Model:
    r = recipe_for(kind, seed=0, steps=1, rate=1e-3)
    r.encoder.vocab, r.encoder.init = SIZE, 0.3  # far from uniform
    return cw.build(r)


@pytest.fixture(scope="module", params=["masked", "permuted"])
def ask(request: pytest.FixtureRequest) -> Ask:
    return {"masked": Masked, "permuted": Permuted}[request.param](model_of(request.param), VOCABULARY)


def every() -> tuple[Tensor, Tensor, Tensor]:
    """The row with every two tokens in the two columns."""
    tokens = ROW.repeat(len(PAIRS), 1)
    tokens[:, FIRST], tokens[:, SECOND] = PAIRS[:, 0], PAIRS[:, 1]
    return tokens, torch.full((len(PAIRS),), FIRST), torch.full((len(PAIRS),), SECOND)


def test_all_pairs_together_have_probability_one(ask: Ask):
    tokens, a, b = every()
    for joint in (at_once(ask, tokens, a, b), in_turn(ask, tokens, a, b), in_turn(ask, tokens, b, a)):
        assert float(joint.exp().sum()) == pytest.approx(1, abs=1e-5)
        assert float(joint.exp().max()) > 3 / len(PAIRS)


def test_the_first_in_turn_is_asked_as_at_once_and_the_second_with_it_in_sight(ask: Ask):
    tokens, a, b = every()
    grid = lambda values: values.view(SIZE, SIZE)  # noqa: E731
    once = grid(at_once(ask, tokens, a, b))
    for joint, by in ((grid(in_turn(ask, tokens, a, b)), 1), (grid(in_turn(ask, tokens, b, a)), 0)):
        torch.testing.assert_close(joint.logsumexp(by), once.logsumexp(by), atol=1e-5, rtol=1e-5)
        assert float((joint - once).abs().max()) > 0.1
    a_alone = grid(alone(ask, tokens, a))
    torch.testing.assert_close(a_alone.exp().sum(0), torch.ones(SIZE), atol=1e-5, rtol=1e-5)


def test_at_once_neither_knows_the_other(ask: Ask):
    """log p(a, b) = f(a) + g(b): the differences between rows are those of the first."""
    tokens, a, b = every()
    once = at_once(ask, tokens, a, b).view(SIZE, SIZE)
    torch.testing.assert_close(once - once[:1], (once - once[:1])[:, :1].expand_as(once), atol=1e-5, rtol=1e-4)


def test_rows_have_columns_of_their_own(ask: Ask):
    tokens = torch.cat([ROW, ROW.flip(1)])
    a, b = torch.tensor([1, 4]), torch.tensor([2, 6])
    both = in_turn(ask, tokens, a, b)
    for row in range(2):
        one = slice(row, row + 1)
        torch.testing.assert_close(both[one], in_turn(ask, tokens[one], a[one], b[one]), atol=1e-5, rtol=1e-5)


def test_a_masked_model_is_asked_as_it_is_trained():
    model = model_of("masked")
    hidden = ROW.clone()
    hidden[0, [FIRST, SECOND]] = VOCABULARY.mask
    batch = from_padded(hidden)
    batch.targets, batch.labels = torch.tensor([FIRST, SECOND]), ROW[0, [FIRST, SECOND]]
    joint = at_once(Masked(model, VOCABULARY), ROW, torch.tensor([FIRST]), torch.tensor([SECOND]))
    assert float(joint) == pytest.approx(-float(model(batch).losses["masked_lm"].detach()), abs=1e-5)


@pytest.mark.parametrize("turns", [(1, 2), (2, 1)])
def test_a_permuted_model_is_asked_as_it_is_trained(turns: tuple[int, int]):
    """Both in one pass, as the loss asks them, [CLS] and [SEP] behind them."""
    model = model_of("permuted")
    order = torch.zeros_like(ROW)
    order[0, [0, FIRST, SECOND, -1]] = torch.tensor([3, *turns, 4])
    batch = from_padded(ROW)
    batch.token_info, batch.kind = dataclasses.replace(batch.token_info, appears=order, sees=order), "order"
    batch.targets, batch.labels = torch.tensor([FIRST, SECOND]), ROW[0, [FIRST, SECOND]]
    a, b = torch.tensor([FIRST]), torch.tensor([SECOND])
    joint = in_turn(Permuted(model, VOCABULARY), ROW, *((a, b) if turns == (1, 2) else (b, a)))
    assert float(joint) == pytest.approx(-float(model(batch).losses["permuted_lm"].detach()), abs=1e-5)
