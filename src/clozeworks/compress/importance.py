"""How much each of many parallel parts counts: heads of attention, inner units of a feed-forward layer.

Such a part gives some of the numbers that go into a projection. With a gate xi in front of it, which is 1,

    I = E_x |dL(x) / dxi| = E_x |sum over tokens of a . dL/da|,   a what the part gives (Michel et al. 2019, 3.2)

over examples x. Each is the change of the loss, to first order, if the part went. No weight needs a gradient for it.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clozeworks.compress.data import Data, losses
from clozeworks.core.context import Context
from clozeworks.core.errors import InputError
from clozeworks.exchange.bundle import Bundle
from clozeworks.model import Model
from clozeworks.nn.block import BlockLayer
from clozeworks.nn.ffn import FeedForwardLayer
from clozeworks.nn.reversible import ReversibleLayer

# How modules compute where every activation is asked for.
USUAL: dict[type[nn.Module], tuple[str, Any]] = {FeedForwardLayer: ("chunk", None), ReversibleLayer: ("inverts", False)}


@dataclass(slots=True)
class Gates:
    """What the gradient of each of so many parts says."""

    parts: int
    sums: Tensor | None = None  # [examples, parts] of this batch
    total: Tensor = field(default_factory=lambda: torch.zeros(()))

    def collect(self, x: Tensor, document: Tensor, examples: int, gradient: Tensor) -> None:
        """Add what the tokens of each example say."""
        said = (x * gradient).unflatten(-1, (self.parts, -1)).sum(-1).flatten(0, -2)
        self.sums = said.new_zeros(examples + 1, self.parts) if self.sums is None else self.sums
        self.sums.index_add_(0, torch.where(document < 0, examples, document).flatten(), said)

    def close(self) -> None:
        """A batch is done."""
        if self.sums is not None:
            self.total = self.total + self.sums[:-1].abs().sum(0).cpu()
        self.sums = None


def by_gradient(bundle: Bundle, data: Data, projections: Sequence[tuple[nn.Module, int]]) -> list[Tensor]:
    """I of every part of each (projection, number of parts), float [parts]."""
    gates, now = [Gates(parts) for _, parts in projections], _Batch()

    def watch(gate: Gates) -> Any:
        def enter(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            x = _with_gradient(arguments[0])
            x.register_hook(partial(gate.collect, x.detach(), now.documents(x), now.examples))
            return (x, *arguments[1:])

        return enter

    hooks = [
        projection.register_forward_pre_hook(watch(gate))
        for (projection, _), gate in zip(projections, gates, strict=True)
    ]
    return _measure(bundle, data, gates, now, hooks)


def of_blocks(bundle: Bundle, data: Data, blocks: Sequence[nn.Module]) -> list[float]:
    """I of whole blocks, a what a block adds to its input."""
    gates, now = [Gates(1) for _ in blocks], _Batch()

    def watch(gate: Gates) -> Any:
        def leave(_: nn.Module, arguments: tuple[Any, ...], output: tuple[Any, ...]) -> None:
            x, _, _, view, asked, _ = arguments
            for before, after in ((view.pick(x), output[0]), (asked, output[1])):  # and the second stream
                if after is None or not after.requires_grad or not after.numel() or before.shape != after.shape:
                    continue
                added, document = (after - before).detach(), now.documents(after)
                after.register_hook(partial(gate.collect, added, document, now.examples))

        return leave

    hooks = [block.register_forward_hook(watch(gate)) for block, gate in zip(blocks, gates, strict=True)]
    return [float(each) for each in _measure(bundle, data, gates, now, hooks)]


def _measure(bundle: Bundle, data: Data, gates: list[Gates], now: "_Batch", hooks: list[Any]) -> list[Tensor]:
    """The mean of what gates collect; the hooks that feed them are removed."""
    model, examples = bundle.model, 0
    blocks = [block for block in model.modules() if isinstance(block, BlockLayer)]
    hooks = [*hooks, *(block.register_forward_pre_hook(now.enter) for block in blocks)]
    try:
        with _activations_alone(model), torch.enable_grad():
            for loss, count in losses(model, now.follow(data.batches(bundle)), data.seed):
                examples += count
                if loss.requires_grad:
                    (loss * count).backward()
                for gate in gates:
                    gate.close()
    finally:
        for hook in hooks:
            hook.remove()
    if any(gate.total.ndim == 0 for gate in gates):
        given, needed = "a layer of which no gradient can be read", "importance is measured by it"
        raise InputError(bundle.recipe.name, given, needed, "choose by another measure")
    return [gate.total / max(examples, 1) for gate in gates]


def _with_gradient(x: Tensor) -> Tensor:
    return x if x.requires_grad else x.detach().requires_grad_()


class _Batch:
    """What is being read: its number of examples, and the views of the block that runs."""

    def __init__(self) -> None:
        self.examples = 0
        self.views: list[Context] = []

    def follow(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.examples, self.views = len(batch.firsts), []
            yield batch

    def enter(self, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        self.views = [each for each in arguments if isinstance(each, Context)]
        return (_with_gradient(arguments[0]), *arguments[1:])

    def documents(self, x: Tensor) -> Tensor:
        """Which example each vector of x [..., D] is of; where nobody knows, its row is one."""
        for view in self.views:
            document = view.query.document
            if x.ndim == 2 and view.positions is not None:
                document = document.flatten()[view.positions]
            if document.shape == x.shape[:-1]:
                return document
        rows = torch.arange(x.shape[0], device=x.device) % max(self.examples, 1)
        return rows.view(-1, *[1] * (x.ndim - 2)).expand(x.shape[:-1])


@contextlib.contextmanager
def _activations_alone(model: Model) -> Iterator[None]:
    """Gradients of activations, each as autograd computes it, and of no weight."""
    changed: list[tuple[Any, str, Any, Any]] = [
        (each, "requires_grad", each.requires_grad, False) for each in model.parameters()
    ]
    for module in model.modules():
        for kind, (name, usual) in USUAL.items():
            changed += [(module, name, getattr(module, name), usual)] if isinstance(module, kind) else []
    try:
        for holder, name, _, usual in changed:
            setattr(holder, name, usual)
        yield
    finally:
        for holder, name, value, _ in changed:
            setattr(holder, name, value)


def select(scores: Sequence[Tensor], share: float, scope: str, multiple: int = 1) -> list[list[int]]:
    """Which parts of each group stay, if the least important `share` goes: of each group (`layer`), or of all of them,
    after the scores of a group have been brought to length 1 (`global`). At least one part of each stays, and their
    number is rounded up to a `multiple`, as long as there are so many."""
    scores = [score / score.norm().clamp(min=1e-30) for score in scores]
    orders = [score.argsort(descending=True, stable=True).tolist() for score in scores]
    if scope == "layer":
        counts = [len(score) - round(share * len(score)) for score in scores]
    else:
        flat = torch.cat(list(scores))
        group = torch.cat([torch.full((len(score),), at) for at, score in enumerate(scores)])
        gone = flat.argsort(stable=True)[: round(share * len(flat))]
        counts = [len(score) - int((group[gone] == at).sum()) for at, score in enumerate(scores)]
    rounded = [max(1, -(-count // multiple) * multiple) for count in counts]
    return [sorted(order[: min(count, len(order))]) for order, count in zip(orders, rounded, strict=True)]
