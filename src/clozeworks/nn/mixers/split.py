"""Two mixers beside each other, each on channels of its own."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count
from clozeworks.core.cache import BranchCaches, Cache
from clozeworks.core.context import AttentionCapture, Context
from clozeworks.core.errors import RecipeError
from clozeworks.nn.mixer import Mixer, MixerLayer


@dataclass(slots=True)
class Split(Mixer):
    """Long and short range apart (Wu et al. 2020, 4): each branch mixes its own contiguous part of the channels.

    [x_1; x_2; ...] -> [branch_1(x_1); branch_2(x_2); ...]

    Nothing mixes the branches here: that is the feed-forward part's work. `widths` are those of the branches, None:
    equal ones. It can do what all of its branches can.

    [B, L, D] -> [B, L, D]: out = [branch_1(x_1); ...; branch_n(x_n)], as wide as the outputs of the branches together.
    Cost is the sum over the branches at their widths.
    """

    branches: tuple[Mixer, ...]
    widths: tuple[Count, ...] | None = None

    @property
    def honours(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset.intersection(*(branch.honours for branch in self.branches))

    @property
    def takes(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset.intersection(*(branch.takes for branch in self.branches))

    def check(self, where: str) -> None:
        if len(self.branches) < 2:
            given = len(self.branches)
            raise RecipeError(f"{where}.branches", given, "at least two branches are needed", "give another mixer")
        for number, branch in enumerate(self.branches):
            if branch.across:
                needed = "it reads the source by itself, which is wider than a branch"
                raise RecipeError(
                    f"{where}.branches.{number}", type(branch).__name__, needed, "use it alone in a block"
                )
        if self.widths is None:
            return
        if len(self.widths) != len(self.branches):
            needed = f"a width of 1 or more is needed for each of {len(self.branches)} branches"
            raise RecipeError(f"{where}.widths", list(self.widths), needed, "use None for equal ones")

    def fit(self, where: str, width: int) -> None:
        count = len(self.branches)
        if self.widths is None and width % count:
            needed = f"width {width} is not divisible by the number of branches"
            raise RecipeError(f"{where}.branches", count, needed, f"use a width of {-(-width // count) * count}")
        if self.widths is not None and sum(self.widths) != width:
            needed = f"they are {sum(self.widths)} together, and the width is {width}"
            raise RecipeError(f"{where}.widths", list(self.widths), needed, "use None for equal ones")
        for number, (branch, own) in enumerate(zip(self.branches, self.each(width), strict=True)):
            branch.fit(f"{where}.branches.{number}", own)

    def out_width(self, width: int) -> int:
        return sum(branch.out_width(own) for branch, own in zip(self.branches, self.each(width), strict=True))

    def each(self, width: int) -> tuple[int, ...]:
        """The width of each branch."""
        return self.widths or (width // len(self.branches),) * len(self.branches)

    def build(self, width: int) -> "SplitLayer":
        widths = self.each(width)
        layers = [branch.build(own) for branch, own in zip(self.branches, widths, strict=True)]
        return SplitLayer(layers, widths)


class SplitLayer(MixerLayer):
    """The branches of `Split`, each on its share of the width."""

    def __init__(self, branches: Sequence[MixerLayer], widths: tuple[int, ...]):
        super().__init__()
        self.branches, self.widths = nn.ModuleList(branches), list(widths)

    def extend(self, past: Cache | None, x: Tensor) -> BranchCaches:
        parts = self._parts(past)
        return BranchCaches(
            tuple(b.extend(part, own) for b, part, own in zip(self._each(), parts, self._cut(x), strict=True))
        )

    def forward(self, query: Tensor, memory: Tensor | Cache | None, context: Context) -> tuple[Tensor, Cache | None]:
        rows = self._cut(memory) if isinstance(memory, Tensor) else self._parts(memory)
        mixed, carries, captures = [], [], []
        for number, (branch, own, part) in enumerate(zip(self._each(), self._cut(query), rows, strict=True)):
            view = _view(context, number)
            out, carry = branch(own, part, view)
            mixed.append(context.pick(out))
            carries.append(carry)
            captures.append(view.capture)
        _gather(context.capture, captures)
        joined = torch.cat(mixed, -1)
        if not context.carry or any(carry is None for carry in carries):
            return joined, None
        return joined, memory if isinstance(memory, Cache) else BranchCaches(tuple(carries))

    def _each(self) -> Sequence[MixerLayer]:
        return cast(Sequence[MixerLayer], self.branches)

    def _cut(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(self.widths, -1)

    def _parts(self, carry: Cache | None) -> Sequence[Cache | None]:
        if carry is None:
            return [None] * len(self.widths)
        assert isinstance(carry, BranchCaches)
        return carry.parts


def _view(context: Context, number: int) -> Context:
    """The context of a branch: it draws and keeps apart, since another branch may have other widths and heads."""
    scratch = context.scratch.setdefault(f"branch.{number}", {})
    capture = None if context.capture is None else dataclasses.replace(context.capture, captured={})
    return context.at(f"branch.{number}").replace(scratch=scratch, capture=capture)


def _gather(capture: AttentionCapture | None, branches: Sequence[AttentionCapture | None]) -> None:
    """What was kept of the branches that have such a thing, their heads after each other."""
    if capture is None:
        return
    for kind in capture.wants:
        kept = [
            value for each in branches if each for name, value in each.captured.items() if name.startswith(f"{kind}.")
        ]
        if kept:
            capture.keep(kind, torch.cat(kept, 1))
