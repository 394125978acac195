"""Matrices with many zeros as bits and values: the same bits again, and nothing torn is believed."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from clozeworks.core.errors import InputError
from clozeworks.exchange import tensors
from clozeworks.exchange.weights import sparse


def draw(shape: tuple[int, ...], share: float, kind: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    full = torch.randint(-127, 128, shape, generator=generator).to(kind)
    return torch.where(torch.rand(shape, generator=generator) < share, torch.zeros((), dtype=kind), full)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    share=st.floats(0, 1),
    kind=st.sampled_from([torch.float32, torch.int8, torch.int64]),
    seed=st.integers(0, 99),
)
def test_what_was_packed_comes_back_to_the_bit(shape: tuple[int, ...], share: float, kind: torch.dtype, seed: int):
    given = {"a.weight": draw(shape, share, kind, seed), "b": torch.ones(3)}
    packed = sparse.pack(given)
    back = sparse.unpack(packed, "here")
    assert back.keys() == given.keys()
    assert all(back[name].dtype == each.dtype and torch.equal(back[name], each) for name, each in given.items())
    assert sum(each.nbytes for each in packed.values()) <= sum(each.nbytes for each in given.values()) + 24


def test_minus_zero_is_a_value():
    weight = torch.zeros(8, 8)
    weight[0, 0] = -0.0
    back = sparse.unpack(sparse.pack({"w": weight}), "here")["w"]
    assert torch.equal(back.view(torch.int32), weight.view(torch.int32))


@pytest.mark.parametrize(("kind", "share", "smaller"), [(torch.float32, 0.9, 0.14), (torch.int8, 0.9, 0.24)])
def test_the_file_is_smaller(tmp_path: Path, kind: torch.dtype, share: float, smaller: float):
    weight = {"w": draw((400, 400), share, kind, 0)}
    for name, content in (("whole", weight), ("parts", sparse.pack(weight))):
        tensors.write(tmp_path / name, content)
    assert (tmp_path / "parts").stat().st_size < smaller * (tmp_path / "whole").stat().st_size
    assert torch.equal(tensors.read(tmp_path / "parts")["w"], weight["w"])


@pytest.mark.parametrize(
    "change",
    [
        {"w.shape": torch.tensor([2**31, 2**31])},
        {"w.shape": torch.tensor([-4, -16])},
        {"w.shape": torch.tensor([8, 9])},
        {"w.shape": torch.tensor([8.0, 8.0])},
        {"w.nonzero": torch.full((8,), 255, dtype=torch.uint8)},
        {"w.nonzero": torch.zeros(7, dtype=torch.uint8)},
        {"w.nonzero": torch.zeros(8)},
        {"w.values": torch.ones(65)},
        {"w.values": torch.ones(1, 1)},
        {"w": torch.ones(8, 8)},
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, torch.Tensor]):
    packed = sparse.pack({"w": torch.eye(8)})
    assert packed.keys() == {"w.nonzero", "w.values", "w.shape"}
    save_file({**packed, **change}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="a sparse tensor w that is torn"):
        tensors.read(tmp_path / "model.safetensors")
