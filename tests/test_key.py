import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clozeworks import draws
from clozeworks.key import Key, dropout, keep


def drawn(key: Key, like: torch.Tensor, rate: float = 0.5) -> torch.Tensor:
    return keep(key.seeds, key.starts, key.site, like, rate)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_kept_share_is_one_minus_the_rate_in_every_lane(rate):
    like = torch.empty(400, 1000)
    mask = drawn(Key.make(1).at(3), like, rate)
    assert mask.float().mean().item() == pytest.approx(1 - rate, abs=2e-3)
    lanes = mask.flatten().view(-1, 4).float().mean(0)  # four draws come from one 64-bit word
    assert lanes.tolist() == pytest.approx([1 - rate] * 4, abs=4e-3)


def test_a_mask_is_a_function_of_seed_site_and_shape():
    x = torch.randn(7, 33)
    key = Key.make(0, 5).at("ffn", 3)
    assert torch.equal(dropout(x, 0.3, key), dropout(x, 0.3, Key.make(0, 5).at("ffn").at(3)))
    for other in (Key.make(0, 6).at("ffn", 3), Key.make(0, 5).at("ffn", 4), Key.make(0, 5).at("mixer", 3)):
        assert not torch.equal(dropout(x, 0.3, key), dropout(x, 0.3, other))


def test_no_key_no_randomness():
    x = torch.randn(5, 5)
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, Key.make(1)) is x


def test_gradient_is_the_mask_scaled():
    x = torch.randn(50, 50, requires_grad=True)
    y = dropout(x, 0.25, Key.make(9))
    y.sum().backward()
    kept = y != 0
    assert x.grad is not None
    assert torch.equal(x.grad, kept / 0.75)
    torch.testing.assert_close(y, x * kept / 0.75)


def test_it_compiles_to_one_graph():
    torch.library.opcheck(
        keep, (torch.tensor([3]), None, 4, torch.randn(3, 5), 0.1), test_utils=("test_schema", "test_faketensor")
    )


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 9), st.data())
def test_rows_are_dropped_as_their_numbers_say_whatever_is_beside_them(rows, length, width, data):
    whole = drawn(Key.make(7, 2, rows=range(rows)), torch.empty(rows, length, width))
    cut = data.draw(st.integers(0, rows))
    parts = [range(cut), range(cut, rows)]
    pieces = [drawn(Key.make(7, 2, rows=part), torch.empty(len(part), length, width)) for part in parts if len(part)]
    assert torch.equal(torch.cat(pieces), whole)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 9), st.booleans(), st.data())
def test_tokens_alone_are_dropped_as_among_all(rows, length, width, by_row, data):
    key = Key.make(5, rows=range(rows)) if by_row else Key.make(5)
    whole = drawn(key, torch.empty(rows, length, width)).flatten(0, 1)
    places = torch.tensor(sorted(data.draw(st.sets(st.integers(0, rows * length - 1), min_size=1))))
    alone = drawn(key.tokens(places, rows * length), torch.empty(len(places), width))
    assert torch.equal(alone, whole[places])


def test_the_bits_are_those_of_draws():
    key = Key.make(3, rows=range(2, 4)).at("here")
    state = draws.fold(key.seeds.numpy().view(np.uint64), key.site)
    words = draws.bits(state[:, None], np.arange(6))
    expected = words.view(np.int16).reshape(2, 3, 8)[..., :7] >= round(0.3 * 65536) - 32768
    assert torch.equal(drawn(key, torch.empty(2, 3, 7), 0.3), torch.from_numpy(expected))


def test_units_within_a_row_have_keys_of_their_own():
    key = Key.make(1, rows=range(3))
    seeds = key.within(torch.tensor([0, 4, 9, 10, 19]), 30).seeds
    assert len(seeds.unique()) == 5
    moved = Key.make(1, rows=range(1, 3)).within(torch.tensor([0, 9]), 20).seeds  # the same places in rows 1 and 2
    assert torch.equal(moved, seeds[3:])
