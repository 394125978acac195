import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.core.dropout import DropoutKey, dropout, keep, keep_on_host, normal


def drawn(key: DropoutKey, like: torch.Tensor, rate: float = 0.5) -> torch.Tensor:
    return keep(key.seeds, key.starts, key.site, like, rate)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_kept_share_is_one_minus_the_rate_in_every_lane(rate):
    like = torch.empty(400, 1000)
    mask = drawn(DropoutKey.make(1).at(3), like, rate)
    assert mask.float().mean().item() == pytest.approx(1 - rate, abs=2e-3)
    streams = mask.flatten().view(-1, 4).float().mean(0)  # four draws come from one 64-bit word
    assert streams.tolist() == pytest.approx([1 - rate] * 4, abs=4e-3)


def test_a_mask_is_a_function_of_seed_site_and_shape():
    x = torch.randn(7, 33)
    key = DropoutKey.make(0, 5).at("ffn", 3)
    assert torch.equal(dropout(x, 0.3, key), dropout(x, 0.3, DropoutKey.make(0, 5).at("ffn").at(3)))
    for other in (
        DropoutKey.make(0, 6).at("ffn", 3),
        DropoutKey.make(0, 5).at("ffn", 4),
        DropoutKey.make(0, 5).at("mixer", 3),
    ):
        assert not torch.equal(dropout(x, 0.3, key), dropout(x, 0.3, other))


def test_no_key_no_randomness():
    x = torch.randn(5, 5)
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, DropoutKey.make(1)) is x


def test_gradient_is_the_mask_scaled():
    x = torch.randn(50, 50, requires_grad=True)
    y = dropout(x, 0.25, DropoutKey.make(9))
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
    whole = drawn(DropoutKey.make(7, 2, rows=range(rows)), torch.empty(rows, length, width))
    cut = data.draw(st.integers(0, rows))
    parts = [range(cut), range(cut, rows)]
    pieces = [
        drawn(DropoutKey.make(7, 2, rows=part), torch.empty(len(part), length, width)) for part in parts if len(part)
    ]
    assert torch.equal(torch.cat(pieces), whole)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 9), st.booleans(), st.data())
def test_tokens_alone_are_dropped_as_among_all(rows, length, width, by_row, data):
    key = DropoutKey.make(5, rows=range(rows)) if by_row else DropoutKey.make(5)
    whole = drawn(key, torch.empty(rows, length, width)).flatten(0, 1)
    places = torch.tensor(sorted(data.draw(st.sets(st.integers(0, rows * length - 1), min_size=1))))
    alone = drawn(key.tokens(places, rows * length), torch.empty(len(places), width))
    assert torch.equal(alone, whole[places])


def test_the_bits_are_those_of_draws():
    key = DropoutKey.make(3, rows=range(2, 4)).at("here")
    state = counter_rng.fold(key.seeds.numpy().view(np.uint64), key.site)
    words = counter_rng.bits(state[:, None], np.arange(6))
    expected = words.view(np.int16).reshape(2, 3, 8)[..., :7] >= round(0.3 * 65536) - 32768
    assert torch.equal(drawn(key, torch.empty(2, 3, 7), 0.3), torch.from_numpy(expected))


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.sampled_from([0.0, 0.1, 0.5, 0.99]))
def test_numpy_keeps_the_same_on_the_host(units, tokens, width, rate):
    key = DropoutKey.make(3, rows=range(units)).at("here")
    expected = drawn(key, torch.empty(units, 2, tokens, width), rate)
    for state, mask in zip(key.states(), expected, strict=True):
        actual = torch.from_numpy(keep_on_host(state, (2, tokens, width), rate))
        assert torch.equal(actual, mask)
        assert actual.is_contiguous()


def test_numpy_has_the_same_threshold():
    key = DropoutKey.make(8)
    like = torch.empty(1 << 10, 1 << 10)  # some sixteen draws lie on the threshold itself
    assert torch.equal(torch.from_numpy(keep_on_host(key.states()[0], (1 << 10, 1 << 10), 0.1)), drawn(key, like, 0.1))


def test_units_within_a_row_have_keys_of_their_own():
    key = DropoutKey.make(1, rows=range(3))
    seeds = key.within(torch.tensor([0, 4, 9, 10, 19]), 30).seeds
    assert len(seeds.unique()) == 5
    moved = (
        DropoutKey.make(1, rows=range(1, 3)).within(torch.tensor([0, 9]), 20).seeds
    )  # the same places in rows 1 and 2
    assert torch.equal(moved, seeds[3:])


def test_normal_numbers_are_normal_and_those_of_their_key():
    key = DropoutKey.make(4).at("turn")
    x = normal(key, 200_000)
    assert torch.equal(x[:100], normal(key, 100))
    assert not torch.equal(x[:100], normal(DropoutKey.make(4).at("other"), 100))
    assert [float(x.mean()), float(x.std()), float((x**4).mean())] == pytest.approx([0, 1, 3], abs=0.05)
    assert float((x.abs() < 0.6745).float().mean()) == pytest.approx(0.5, abs=0.005)
