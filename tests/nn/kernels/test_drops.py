"""What is dropped of pieces is what the key says; on the host it is drawn once and one bit a weight is kept."""

import pytest
import torch

from clozeworks.core.dropout import DropoutKey, keep
from clozeworks.nn.kernels import drops
from clozeworks.nn.kernels.drops import Drops

SHAPES = [(2, 3, 5), (1, 4, 8), (3, 1, 1), (1, 2, 7)]


def made(rate: float = 0.3) -> Drops:
    key = DropoutKey.make(5, rows=range(2)).at("weights")
    return Drops(DropoutKey(key.within(torch.arange(4), 4).seeds, key.site), rate, SHAPES)


def test_a_piece_drops_what_its_seed_says_and_the_same_again():
    mine = made()
    bits = mine.room()
    drawn = [mine.draw(number, bits) for number in range(4)]
    for number, (shape, mask) in enumerate(zip(SHAPES, drawn, strict=True)):
        seed = mine.key.seeds[number : number + 1]
        expected = keep(seed, None, mine.key.site, torch.empty(shape), 0.3)
        assert torch.equal(mask, expected.view(torch.uint8))
        assert torch.equal(mine.again(number, bits), mask)


def test_a_bit_a_weight_is_kept_in_whole_bytes():
    assert made().room().numel() == 4 + 4 + 1 + 2


def test_on_the_way_back_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch):
    mine = made()
    bits = mine.room()
    mask = mine.draw(0, bits)
    monkeypatch.setattr(drops, "keep_on_host", None)
    assert torch.equal(mine.again(0, bits), mask)


def test_elsewhere_the_same_is_drawn_twice_and_nothing_kept():
    mine, other = made(), made()
    other.states = None
    bits, none = mine.room(), other.room()
    assert none.numel() == 0
    for number in range(4):
        mask = mine.draw(number, bits)
        assert torch.equal(other.draw(number, none), mask)
        assert torch.equal(other.again(number, none), mask)
