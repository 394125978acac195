"""Two streams: one knows every token, the other asks what a token is without having seen it."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.core.context import Context
from clozeworks.core.dropout import dropout
from clozeworks.core.errors import RecipeError
from clozeworks.nn.init import CustomInit
from clozeworks.nn.stack import Stack, StackLayer


@dataclass(slots=True)
class TwoStream(Stack):
    """A stack that predicts in any order: h as in `Stack`, and g, which asks at the targets (Yang et al. 2019, 2.3).

    g_0 = one learned vector;  g_l(t) = block_l(query g_{l-1}(t), keys and values [memory; h_{l-1}] before t in order)

    Both streams have the same weights, and keys and values are projected once for both. h sees order <= its own, g sees
    order < its own, so g at t knows where t stands and never what it is. `Hidden.last` is h, `Hidden.asked` [T, D] is g
    in the order of the targets. Without targets (sentence vectors, fine-tuning) there is h alone, as in `Stack`.

    g costs as much as h does for T tokens instead of B L: a sixth more at the usual share of targets. The last block
    gives h only where somebody reads it, which in pretraining is nowhere. `dropout` is that of g_0 too. A target that
    may see nothing attends to nothing; the published classes then let it attend to everything, itself included.
    """

    streams: ClassVar[int] = 2
    resumable: ClassVar[bool] = False

    def check(self, where: str) -> None:
        Stack.check(self, where)
        blocks = self.block if isinstance(self.block, tuple) else (self.block,)
        for block in blocks:
            if "carry" not in block.mixer.takes or "order" not in block.mixer.honours:
                name = type(block.mixer).__name__
                needed = f"{name} cannot look at the rows of another stream in a given order"
                raise RecipeError(f"{where}.block.mixer", name, needed, "use Attention")
            if block.cross is not None:
                needed = "the second stream has no source to look at"
                raise RecipeError(f"{where}.block.cross", type(block.cross).__name__, needed, "use None")

    def build(self, width: int) -> "TwoStreamLayer":
        return TwoStreamLayer(self, width)


class TwoStreamLayer(StackLayer, CustomInit):
    """Weights of `TwoStream`: those of `Stack`, and the vector that the second stream begins as."""

    def __init__(self, spec: TwoStream, width: int):
        super().__init__(spec, width)
        self.blank = nn.Parameter(torch.zeros(width))  # what every question begins as

    def ask(self, context: Context) -> tuple[Tensor | None, Context | None]:
        if context.targets is None:
            return None, None
        asking, _ = context.once("questions", lambda: questions(context))
        g = self.blank.expand(*asking.query.position.shape, -1).contiguous()
        return dropout(g, self.dropout, context.at("asked").key), asking

    def answer(self, asked: Tensor, context: Context) -> Tensor:
        _, cells = context.scratch["questions"]
        asked = asked if self.norm is None else self.norm(asked)
        return dropout(asked, self.dropout, context.at("answered").key).flatten(0, 1).index_select(0, cells)


def questions(context: Context) -> tuple[Context, Tensor]:
    """The targets as a grid [B, P], row b of which asks in row b of the batch: what each may see, and the flat offset
    of each target in it. Rows with fewer targets are filled up with their first token, which nobody reads."""
    targets, (rows, length) = context.targets, context.query.position.shape
    assert targets is not None
    row, column = targets // length, targets % length
    counts = row.new_zeros(rows).index_add_(0, row, torch.ones_like(row))
    by_row = row.argsort(stable=True)
    place = torch.empty_like(row)
    place[by_row] = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row[by_row]]
    most = -(-len(row) // rows) if counts.is_meta else int(counts.max())  # a meta tensor has no values
    cells = row * max(most, 1) + place
    grid = row.new_zeros(rows * max(most, 1)).index_copy_(0, cells, column).view(rows, -1)
    query = context.query.take(grid)
    query = dataclasses.replace(query, sees=query.appears - 1)
    view = context.replace(query=query, kind="order", offset=None, layout=None, positions=None, capture=None)
    return view.replace(scratch={}), cells
