"""A recipe as the numbers that a plan needs, by the library's own estimate (`clozeworks.train.resources.cost`).

The recipe is run on the meta device, so any can be asked: parameters, FLOPs of a forward pass, and the most bytes that
both passes hold at one moment, in fp32. Autocast to bf16 keeps at most that.
"""

import functools
from dataclasses import dataclass

from clozeworks.core.errors import InputError
from clozeworks.recipe import Recipe
from clozeworks.train.resources.cost import MemoryCost, count_arithmetic, measure_memory

LENGTH = 512  # tokens a row, as in both schedules


@dataclass(frozen=True, slots=True)
class Passes:
    """Bytes of activations and temporaries at the worst moment, by rows at once: a line through two that were measured,
    `rows` and twice as many."""

    rows: int
    measured: int
    twice: int

    def at(self, rows: int) -> int:
        return max(0, round(self.measured + (rows - self.rows) * (self.twice - self.measured) / self.rows))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A model as numbers."""

    depth: int
    width: int
    vocab: int
    parameters: int
    tensors: int
    blocks: int  # parameters inside the layers; the others are tables and heads
    moments: int  # numbers that the optimizer keeps for each weight
    forward: float  # FLOPs a token, by each part's definition
    layers: float  # of them inside the layers; a run that recomputes them does this once more
    passes: Passes
    recomputed: Passes  # the same, if only the input of each layer is kept

    @property
    def tables(self) -> int:
        return self.parameters - self.blocks


@functools.cache
def estimate(name: str, micro: int) -> Estimate:
    """Of a recipe by name, around so many rows at once."""
    import clozeworks  # a name leads to its recipe through the public interface alone

    recipe = clozeworks.recipe(name)
    if recipe.longest() != LENGTH:
        needed = f"rows of {LENGTH} tokens are counted"
        raise InputError(name, f"rows of {recipe.longest()} tokens", needed, "take another, for example bert_large")
    costs = {
        (rows, again): measure_memory(_setting(name, rows, again))
        for rows in (micro, 2 * micro) for again in (False, True)
    }  # fmt: skip
    cost, arithmetic = costs[micro, False], count_arithmetic(_setting(name, micro, again=False))
    stacks = [stack for stack in ("encoder.stack", "decoder.stack") if stack in arithmetic]
    return Estimate(
        depth=recipe.encoder.stack.depth,
        width=recipe.encoder.width,
        vocab=recipe.encoder.vocab,
        parameters=cost.parameters,
        tensors=len(cost.sizes),
        blocks=sum(size for name, size in cost.sizes.items() if ".stack." in name),
        moments=cost.kept,
        forward=arithmetic[""],
        layers=sum(arithmetic[stack] for stack in stacks),
        passes=_line(micro, costs, again=False),
        recomputed=_line(micro, costs, again=True),
    )


def _setting(name: str, rows: int, again: bool) -> Recipe:
    """A step of two micro-batches: the second finds the gradients of the first, as nearly every one does."""
    import clozeworks

    recipe = clozeworks.recipe(name)
    recipe.train.micro_tokens, recipe.train.batch_tokens = rows * LENGTH, 2 * rows * LENGTH
    recipe.train.recompute = again
    return recipe


def _line(micro: int, costs: dict[tuple[int, bool], MemoryCost], again: bool) -> Passes:
    """Beside the gradients of all weights, which the estimate counts among the passes."""
    measured, twice = (costs[rows, again].passes - 4 * costs[rows, again].parameters for rows in (micro, 2 * micro))
    return Passes(micro, measured, twice)


# ---- memory of a rank


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one rank at the worst moment."""

    weights: int
    gradients: int
    moments: int
    gathered: int  # of a sharded model, what is there only while a pass runs: bf16 weights and fp32 gradients
    passes: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.moments + self.gathered + self.passes


def estimate_memory(model: Estimate, rows: int, *, ranks: int, sharded: bool, again: bool) -> Memory:
    """Of a rank that works on `rows` at once; `again`: layers are recomputed.

    Whole on each rank (DDP, gradients as views of the buckets): weights, gradients and moments in fp32. Sharded (FSDP2,
    a layer a unit, tables and heads one more): these divided by the ranks; gathered in bf16 are tables, heads and two
    layers (this one and the next), and their gradients wait in fp32 to be sent.
    """
    part = -(-model.parameters // ranks) if sharded else model.parameters
    units = model.tables + 2 * -(-model.blocks // model.depth)
    return Memory(
        weights=4 * part,
        gradients=4 * part,
        moments=4 * model.moments * part,
        gathered=(2 + 4) * units if sharded else 0,
        passes=(model.recomputed if again else model.passes).at(rows),
    )


def most_rows(room: float, model: Estimate, *, ranks: int, sharded: bool, again: bool) -> int:
    """Rows at once that fit into so many bytes."""

    def fits(rows: int) -> bool:
        return estimate_memory(model, rows, ranks=ranks, sharded=sharded, again=again).total <= room

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
