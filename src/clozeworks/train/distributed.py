"""Data parallel training: every process has a replica of the model, or every process a part (a shard) of it.

Joined through the environment variables that torchrun sets. Losses are sums divided by counts of the whole group, so
gradients are summed, where torch by itself would average them. What lives on the host (counts, positions, a request
to stop) goes over gloo, whatever the device, so nothing of it waits for a GPU. Values go as JSON, never as a pickle.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from clozeworks.core.errors import InputError
from clozeworks.core.process_group import LostError, ProcessGroup, Value, squares
from clozeworks.train.stop import SIGNALS

PATIENCE = timedelta(minutes=30)  # for a process that does not answer: an evaluation or a save may take long
_GONE = re.compile(r"[Cc]onnection (closed|reset|refused)|[Bb]roken pipe|[Tt]imed? ?out|remote process exited|NCCL")


def join(way: Literal["replicate", "shard"], device: str) -> ProcessGroup:
    """The process group that the environment describes."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    for name in names:
        if name not in os.environ or (name != "MASTER_ADDR" and not os.environ[name].isdecimal()):
            given = os.environ.get(name, "not set")
            raise InputError(name, given, "a process of several needs to know it", "start it with torchrun")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    near = int(os.environ.get("LOCAL_RANK", rank))
    if size == 1:
        return ProcessGroup()
    cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if cuda:
        if ":" in device or near >= torch.cuda.device_count():
            given = f"{device} for process {near} of this machine, which has {torch.cuda.device_count()} GPUs"
            raise InputError("--device", given, "each process takes a GPU of its own", "use --device cuda or fewer")
        torch.cuda.set_device(near)
    with lost():
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", rank=rank, world_size=size, timeout=PATIENCE)
    return (Shards if way == "shard" else Replicas)(rank, size, near)


@contextlib.contextmanager
def lost() -> Iterator[None]:
    """Turn what torch says when others are gone into `LostError`."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        if isinstance(error, LostError) or not (isinstance(error, dist.DistError) or _GONE.search(str(error))):
            raise
        raise LostError(str(error).splitlines()[0]) from error


@dataclass(slots=True)
class Several(ProcessGroup):
    """What replicas and shards have in common."""

    _stopping: int = 0

    @property
    def stopping(self) -> int:
        return self._stopping

    def together(self) -> contextlib.AbstractContextManager[None]:
        return lost()

    def device(self, name: str) -> str:
        return f"cuda:{self.local_rank}" if name == "cuda" else name

    def totals(self, counts: list[int]) -> list[int]:
        """The request to stop is sent along: all know of it in the same step."""
        requests = [int(self.asked() == number) for number in SIGNALS]
        numbers = torch.tensor([*counts, *requests], dtype=torch.int64)
        dist.all_reduce(numbers)
        *totals, interrupted, terminated = numbers.tolist()
        self._stopping = SIGNALS[1] if terminated else SIGNALS[0] if interrupted else 0
        return totals

    def joined(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        sizes = self._gathered(torch.tensor([len(numbers)]))
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.int64)
        padded[: len(numbers)] = torch.tensor(numbers, dtype=torch.int64)
        parts = self._gathered(padded)
        return tuple(n for part, size in zip(parts, sizes, strict=True) for n in part[: int(size)].tolist())

    def rows(self, tensor: Tensor) -> Tensor:
        counts = self.joined((len(tensor),))
        mine = torch.zeros(max(counts), *tensor.shape[1:], dtype=tensor.dtype)
        mine[: len(tensor)] = tensor.cpu()
        flat = mine.view(torch.uint8)  # whatever the type, gloo knows bytes
        parts = [torch.zeros_like(flat) for _ in counts] if self.main else None
        dist.gather(flat, parts, dst=0)
        pairs = zip(parts or [flat], counts, strict=False)
        return torch.cat([part.view(tensor.dtype)[:count] for part, count in pairs])

    def first(self, compute: Callable[[], Value]) -> Value:
        message = json.dumps(compute()).encode() if self.main else b""
        size = torch.tensor([len(message)])
        dist.broadcast(size, 0)
        content = torch.zeros(int(size), dtype=torch.uint8)
        if self.main:
            content[:] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        dist.broadcast(content, 0)
        return json.loads(bytes(content.numpy()))

    def wait(self) -> None:
        dist.all_reduce(torch.zeros(1))  # over gloo; a barrier would wait for the GPU, too

    def leave(self) -> None:
        self.wait()  # who leaves first would close connections that others still use
        dist.destroy_process_group()

    def _gathered(self, tensor: Tensor) -> list[Tensor]:
        parts = [torch.zeros_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor)
        return parts


@dataclass(slots=True)
class Replicas(Several):
    """The whole model in every process; gradients are summed while the backward pass runs."""

    _spread: list[DistributedDataParallel] = field(default_factory=list)

    @property
    def factor(self) -> int:
        """Torch averages. A hook that adds instead would run Python in the threads of gloo, which can lock up."""
        return self.size

    @contextlib.contextmanager
    def running(self, model: nn.Module, last: bool):
        if not self._spread or self._spread[0].module is not model:
            self._spread[:] = [DistributedDataParallel(model, gradient_as_bucket_view=True)]
        with contextlib.nullcontext() if last else self._spread[0].no_sync():
            yield self._spread[0]

    def settled(self, means: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
        dist.all_reduce(means)
        return means, norm

    def leave(self) -> None:
        self._spread.clear()  # before what it communicates through
        Several.leave(self)


@dataclass(slots=True)
class Shards(Several):
    """Some rows of every tensor in each process; a block's are gathered while it computes.

    Where blocks share Parameters, or compute back what went into them, the whole model is gathered at once. So is
    always what stands outside the blocks: a head may read the table of words, which is the embedding's. Gradients are
    scattered after each pass, which keeps only a part of them in memory.
    """

    @property
    def sharded(self) -> bool:
        return True

    def place(self, model: nn.Module) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        show_tensors_of_outputs()
        mesh = init_device_mesh(next(model.parameters()).device.type, (self.size,))
        for block in blocks_of(model):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        assert isinstance(model, FSDPModule)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # gloo has no sum with a factor

    def scatter(self, model: nn.Module) -> None:
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def settled(self, means: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
        numbers = torch.cat([means.double(), squares(norm)[None]])
        dist.all_reduce(numbers)
        return numbers[:-1].float(), numbers[-1].sqrt().to(norm.dtype)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of every stack, each a group of its own; none where one Parameter stands in several of them, or where
    a stack goes through its parts by itself on the way back."""
    groups: list[nn.Module] = []
    for module in model.modules():
        blocks = getattr(module, "blocks", None)
        if isinstance(blocks, nn.ModuleList):
            if getattr(module, "inverts", False):
                return []
            groups += list(blocks)
    owners = [id(parameter) for block in groups for parameter in block.parameters()]
    return groups if len(owners) == len(set(owners)) else []


def show_tensors_of_outputs() -> None:
    """Let torch find the losses in a model's output: before their backward pass the root's parameters are gathered."""
    from torch.utils import _pytree

    from clozeworks.model import Output

    if Output not in _pytree.SUPPORTED_NODES:
        _pytree.register_pytree_node(
            Output,
            lambda output: ([output.losses, output.metrics], output.hidden),
            lambda values, hidden: Output(hidden, *values),  # pyright: ignore[reportArgumentType]
        )
