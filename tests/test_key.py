import pytest
import torch

from clozeworks.key import Key, dropout, keep


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_kept_share_is_one_minus_the_rate_in_every_lane(rate):
    like = torch.empty(400, 1000)
    mask = keep(Key.make(1).seed, 3, like, rate)
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
        keep, (torch.tensor(3), 4, torch.randn(3, 5), 0.1), test_utils=("test_schema", "test_faketensor")
    )
