"""The most bytes that a step's tensors take at one moment, found on the meta device: shapes flow, nothing is allocated.

Every operation of the forward and the backward pass is seen as it is made, with what it makes and what dies: logits and
their gradient, temporaries, weights of attention, and whatever a part computes again instead of keeping it.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clozeworks.core.batch import Batch
from clozeworks.core.dropout import DropoutKey
from clozeworks.model import Model
from clozeworks.train.teacher import Teacher


def measure_peak(model: Model, batches: Sequence[Batch], teacher: Teacher | None = None) -> int:
    """Bytes of activations, gradients and temporaries at the worst moment of these micro-batches of one step."""
    meter = Meter()
    meter.ignore(model.parameters())
    if teacher is not None:
        meter.ignore(teacher.model.parameters())
    with meter, Fused():
        for number, batch in enumerate(batches):
            output = model(batch if teacher is None else teacher(batch), DropoutKey.make(0, 0, number).to("meta"))
            torch.stack(list(output.losses.values())).sum().backward()
    return meter.peak


class Meter(TorchDispatchMode):
    """Adds up the storages that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.alive, self.peak = 0, 0
        self.known: dict[int, weakref.finalize | None] = {}

    def ignore(self, tensors: Any) -> None:
        for tensor in tensors:
            self.known[tensor.untyped_storage()._cdata] = None

    def __torch_dispatch__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.is_meta:
                self.see(tensor.untyped_storage())
        return made

    def see(self, storage: torch.UntypedStorage) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address not in self.known:
            self.alive += size
            self.peak = max(self.peak, self.alive)
            self.known[address] = weakref.finalize(storage, self.forget, address, size)

    def forget(self, address: int, size: int) -> None:
        self.alive -= size
        del self.known[address]


class Fused(TorchFunctionMode):
    """Torch's fused attention as a processor runs it; on the meta device it would be taken apart and kept in pieces. So
    it is by a processor too where the mask is learnt."""

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        mask = kwargs.get("attn_mask")
        if func is F.scaled_dot_product_attention and not (mask is not None and mask.requires_grad):
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                *args, is_causal=kwargs.get("is_causal", False), attn_mask=mask
            )[0]
        return func(*args, **kwargs)
