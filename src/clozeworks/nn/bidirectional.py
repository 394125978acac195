"""Two stacks, one that reads from the beginning and one that reads from the end."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clozeworks.core.batch import Hidden
from clozeworks.core.cache import BranchCaches, Cache, RNNState
from clozeworks.core.context import Context, Memory
from clozeworks.core.errors import RecipeError
from clozeworks.core.token_info import DocumentLayout, TokenInfo
from clozeworks.nn.kernels.documents import find_documents
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.stack import Stack, StackLayer


@dataclass(slots=True)
class Bidirectional(Stack):
    """Two stacks of the same shape that never meet: h_l = [forth_l; back_l] (Peters et al. 2018, 3.1).

    Each is a language model of its own, of what comes next and of what came before. Under causal visibility a row is
    read one way, from its end where the batch says that it holds its text so (`Context.backward`): [B, L, D]. Under
    full visibility every document is read both ways and the layers are joined, also the embedding with itself:
    [B, L, 2D]. Which way a row is read decides which weights read it, and nothing else; both cost what one costs.

    Any mixer that can look back alone will do. Of recurrent ones the state is remembered (`memory`), for each way that
    the row was read.
    """

    directions: ClassVar[int] = 2
    resumable: ClassVar[bool] = False

    def check(self, where: str) -> None:
        Stack.check(self, where)
        for mixer in self.mixers():
            if "causal" not in mixer.honours:
                name = type(mixer).__name__
                raise RecipeError(f"{where}.block.mixer", name, "it cannot read one way alone", "use LSTM")
        if self.norm is not None:
            raise RecipeError(f"{where}.norm", "LayerNorm", "the two ways never meet, not even in a norm", "use None")
        if self.memory and not self.stateful:
            raise RecipeError(f"{where}.memory", self.memory, "only a state is remembered of both ways", "use 0")

    def sees(self, mixer: Mixer) -> frozenset[str]:
        return frozenset({"full", "causal"}) & (mixer.honours | {"full"})

    def out_width(self, width: int) -> int:
        return 2 * Stack.out_width(self, width)

    def build(self, width: int) -> "BidirectionalLayer":
        return BidirectionalLayer(self, width)


class BidirectionalLayer(StackLayer):
    """The blocks are those that read from the beginning; `back` has the others."""

    def __init__(self, spec: Bidirectional, width: int):
        super().__init__(spec, width)
        self.back = StackLayer(spec, width)

    def forward(self, x: Tensor, context: Context, layers: bool = False) -> Hidden:
        self.back.recompute = self.recompute
        if context.kind == "full":
            return self.both(x, context, layers)
        if context.kind != "causal":
            raise ValueError(f"two ways of reading are no {context.kind} visibility")
        return self.one_way(x, context, layers)

    def both(self, x: Tensor, context: Context, layers: bool) -> Hidden:
        """Every document both ways, and the layers joined: [B, L, 2D]."""
        own = context.memory  # the same tokens as the queries, of which padding may be as free to look as any
        borders = context.layout or find_documents(own)
        turn = mirrored(borders, x.device)
        turned = x.flatten(0, 1).index_select(0, turn).view_as(x)
        side = TokenInfo.make(own.position, own.document, "causal", own.segment)
        view = context.replace(
            query=side, memory=side, kind="causal", layout=borders, positions=None, capture=None, scratch={}
        )
        backward = view.at("back")
        if context.past is not None:
            view, backward = (_reading(each, context.past, way) for way, each in enumerate((view, backward)))
        forth, back = super().forward(x, view, layers), self.back(turned, backward, layers)
        again = lambda y: y.flatten(0, 1).index_select(0, turn).view_as(y)  # noqa: E731
        joined = tuple(torch.cat([a, again(b)], -1) for a, b in zip(forth.layers, back.layers, strict=True))
        last = torch.cat([forth.last, again(back.last)], -1)
        return Hidden(last, joined, _together(forth.memory, back.memory))

    def one_way(self, x: Tensor, context: Context, layers: bool) -> Hidden:
        """Each row by the stack that it is for."""
        if context.backward is None:
            return super().forward(x, context, layers)
        ways = [(~context.backward).nonzero()[:, 0], context.backward.nonzero()[:, 0]]
        readers = super().forward, self.back
        parts = [
            read(x.index_select(0, rows), _of_rows(view, rows), layers)
            for read, view, rows in zip(readers, (context, context.at("back")), ways, strict=True)
            if len(rows)
        ]
        if len(parts) == 1:
            return parts[0]
        order = torch.cat(ways).argsort()
        merge = lambda tensors: torch.cat(tensors).index_select(0, order)  # noqa: E731
        last = merge([part.last for part in parts])
        kept = tuple(merge(each) for each in zip(*(part.layers for part in parts), strict=True))
        forth, back = (part.memory for part in parts)
        memory = None
        if forth is not None and back is not None:
            pairs = zip(_states(forth), _states(back), strict=True)
            states = tuple(RNNState(merge([a.h, b.h]), merge([a.c, b.c])) for a, b in pairs)
            memory = Memory(states, context.query.tail(0))
        return Hidden(last, kept, memory)


def mirrored(borders: DocumentLayout, device: torch.device) -> Tensor:
    """[B * L] flat offsets: every document from its end to its beginning, at its place."""
    starts, lengths = torch.tensor(borders.starts), torch.tensor(borders.lengths)
    order = starts.argsort()
    starts, lengths = starts[order], lengths[order]
    return ((2 * starts + lengths - 1).repeat_interleave(lengths) - torch.arange(int(lengths.sum()))).to(device)


def _of_rows(context: Context, rows: Tensor) -> Context:
    """The context of some of the rows, whose positions count what was read."""
    side = context.query.each(lambda value: value.index_select(0, rows))
    side = dataclasses.replace(side, position=side.appears)
    key, past, borders = context.key, context.past, context.layout
    if key is not None and len(key.seeds) == len(context.query.position):
        key = dataclasses.replace(key, seeds=key.seeds[rows], starts=None if key.starts is None else key.starts[rows])
    if past is not None:
        states = tuple(state.rows(rows) for state in _states(past))
        past = Memory(states, past.token_info.each(lambda value: value.index_select(0, rows)))
    if borders is not None:
        chosen = {row: number for number, row in enumerate(rows.tolist())}
        own = [
            (chosen[start // borders.width] * borders.width + start % borders.width, length)
            for start, length in zip(borders.starts, borders.lengths, strict=True)
            if start // borders.width in chosen
        ]
        borders = DocumentLayout(tuple(s for s, _ in own), tuple(n for _, n in own), len(rows), borders.width)
    return context.replace(
        query=side, memory=side, key=key, past=past, layout=borders, backward=None, positions=None, scratch={}
    )


def _states(memory: Memory) -> list[RNNState]:
    return [state for state in memory.layers if isinstance(state, RNNState)]


def _reading(context: Context, past: Memory, way: int) -> Context:
    """The view of one way of rows that were read both ways before."""
    layers: list[Cache] = []
    for layer in past.layers:
        assert isinstance(layer, BranchCaches)
        layers.append(layer.parts[way])
    return context.replace(past=Memory(tuple(layers), past.token_info))


def _together(forth: Memory | None, back: Memory | None) -> Memory | None:
    if forth is None or back is None:
        return None
    layers = tuple(BranchCaches(pair) for pair in zip(_states(forth), _states(back), strict=True))
    return Memory(layers, forth.token_info)
