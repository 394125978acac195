"""What training holds in memory and computes, counted from the shapes of a model without running it.

Shapes: n = rows x length tokens, D width, F inner width of the feed-forward part, H heads, L length, T predicted
tokens, V vocabulary. `keeps` lists what autograd saves in a block with the norm behind each branch; a test holds it
against what torch really saves.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, cast

import torch
from torch import nn

from clozeworks.errors import InputError
from clozeworks.model import Encoder, Model
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.objective import Loss

Precision = Literal["fp32", "bf16"]  # bf16: autocast, with weights and the sums between layers in fp32


@dataclass(frozen=True, slots=True)
class Shape:
    """A model as numbers."""

    depth: int
    width: int
    inner: int
    heads: int
    vocab: int
    positions: int
    shifted: bool  # position ids are a tensor of their own, not one row for all
    drops: bool  # dropout on hidden states
    fused: bool  # no dropout on attention weights: a fused kernel keeps none of them
    pair: bool  # a decision on the pooled first token of each row
    parameters: int
    tensors: int
    blocks: int  # parameters inside the layers; the others are tables and heads
    matrices: int  # parameters that autocast copies to bf16 and keeps for the backward pass

    @staticmethod
    def of(encoder: Encoder, losses: tuple[Loss, ...], where: str = "recipe") -> "Shape":
        block, embed = encoder.stack.block_at(0), encoder.embed
        ffn, mixer = block.ffn, cast(Any, block.mixer)  # what kind of mixer it is, `_attends` finds out
        alike = all(encoder.stack.block_at(layer) == block for layer in range(encoder.stack.depth))
        plain = block.place == "post" and block.cross is None and embed.width in (None, encoder.width)
        plain = plain and encoder.stack.memory == 0 and embed.norm is not None and embed.positions is not None
        plain = plain and embed.dropout == block.dropout
        heads = {type(loss) for loss in losses}
        if not (
            alike and plain and ffn and _attends(mixer)
            and heads in ({MaskedLM}, {MaskedLM, SentenceRelation})
        ):  # fmt: skip
            raise InputError(
                where,
                "layers or losses of another kind",
                "equal layers of plain attention with the norm behind it, and masked tokens, are what is counted here",
                "take such a recipe, for example bert_large, or see `clozeworks show` for any other",
            )
        with torch.device("meta"):
            model = Model(encoder, losses)
        assert ffn is not None
        assert embed.positions is not None
        sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
        blocks = sum(size for name, size in sizes.items() if name.startswith("encoder.stack.blocks."))
        linear = {id(each.weight): each.weight.numel() for each in model.modules() if isinstance(each, nn.Linear)}
        return Shape(
            depth=encoder.stack.depth,
            width=encoder.width,
            inner=ffn.inner,
            heads=mixer.heads,
            vocab=encoder.vocab,
            positions=embed.positions.length,
            shifted=embed.positions.offset > 0,
            drops=block.dropout > 0,
            fused=mixer.dropout == 0,
            pair=SentenceRelation in heads,
            parameters=sum(sizes.values()),
            tensors=len(sizes),
            blocks=blocks,
            matrices=sum(linear.values()) + encoder.vocab * encoder.width,
        )

    @property
    def tables(self) -> int:
        return self.parameters - self.blocks


def _attends(mixer: Any) -> bool:
    """Plain attention: heads, dropout, a bias that is absent, and nothing else that could be set."""
    return {each.name for each in fields(mixer)} == {"heads", "dropout", "bias"} and mixer.bias is None


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes that the forward pass of one micro-batch leaves for the backward pass."""

    embed: int
    layer: int
    depth: int
    head: int
    passing: int  # beside them at the worst moment: the gradient of the logits, and the logits again in bf16

    @property
    def total(self) -> int:
        return self.embed + self.depth * self.layer + self.head


def predicted(rows: int, length: int, hidden: float) -> int:
    return round(hidden * rows * length)


def flops(shape: Shape, rows: int, length: int, hidden: float) -> int:
    """Of one forward pass: matrix products, two for each multiplication and addition."""
    n, width = rows * length, shape.width
    layer = 2 * n * (4 * width * width + 2 * width * shape.inner) + 4 * n * length * width
    head = 2 * predicted(rows, length, hidden) * (width * width + width * shape.vocab)
    pair = 2 * rows * (width * width + 2 * width) if shape.pair else 0
    return shape.depth * layer + head + pair


def keeps(shape: Shape, rows: int, length: int, hidden: float, precision: Precision = "bf16") -> Kept:
    """By exact shapes, for rows without segment numbers; each of those would add 8 bytes a token."""
    n, predictions, size = rows * length, predicted(rows, length, hidden), 4 if precision == "fp32" else 2
    vectors, dropped = n * shape.width, n * shape.width if shape.drops else 0
    scores = n * shape.heads * length
    layer = (
        (3 * 2 if precision == "bf16" else 4) * vectors  # its input; autocast copies it for each of q, k and v
        + 3 * size * vectors  # q, k, v
        + (4 * n * shape.heads if shape.fused else (size + 1) * scores)  # a sum for each row, or weights and their mask
        + size * vectors  # what the heads give
        + size * vectors  # input of the feed-forward part
        + 2 * size * n * shape.inner  # before and after the activation
        + 2 * (4 * vectors + 8 * n + dropped)  # for each norm its input, mean and deviation; what was dropped
    )
    ids = 8 * n + 8 * (n if shape.shifted else length)
    embed = ids + 4 * vectors + 8 * n + dropped
    head = predictions * (8 + 4 * size * shape.width + 8 + 4 * shape.vocab + 8) + 4
    if shape.pair:
        head += rows * (8 + 2 * size * shape.width + 2 * 4 + 8) + 4
    passing = predictions * shape.vocab * (4 + (2 if precision == "bf16" else 0))
    return Kept(embed, layer, shape.depth, head, passing)


def recomputed(shape: Shape, rows: int, length: int, hidden: float, precision: Precision = "bf16") -> int:
    """Bytes kept if each layer keeps only its input, in fp32, and is computed again in the backward pass.

    The layer at hand is then there in full, beside the inputs of all.
    """
    kept = keeps(shape, rows, length, hidden, precision)
    return kept.embed + shape.depth * 4 * rows * length * shape.width + kept.layer + kept.head


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one rank."""

    weights: int
    gradients: int
    moments: int
    copies: int  # what is there only while a pass runs: bf16 weights; sharded, gradients of the same layers too
    activations: int
    passing: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.moments + self.copies + self.activations + self.passing


def memory(shape: Shape, rows: int, length: int, hidden: float, ranks: int, sharded: bool, again: bool) -> Memory:
    """Of a rank that works on `rows` at once; `again`: layers are recomputed.

    Whole on each rank (DDP, gradients as views of the buckets): 16 bytes a parameter, and autocast's copies. Sharded
    (FSDP2, a layer a unit, tables and heads one more): the 16 bytes divided by the ranks; gathered in bf16 are tables,
    heads and two layers (this one and the next), and their gradients wait in fp32 to be sent. Activations are those of
    autocast in both; a sharded model whose sums between layers are bf16 too keeps less.
    """
    count = shape.parameters
    kept = keeps(shape, rows, length, hidden)
    activations = recomputed(shape, rows, length, hidden) if again else kept.total
    if not sharded:
        return Memory(4 * count, 4 * count, 8 * count, 2 * shape.matrices, activations, kept.passing)
    part = -(-count // ranks)
    gathered = shape.tables + 2 * -(-shape.blocks // shape.depth)
    return Memory(4 * part, 4 * part, 8 * part, (2 + 4) * gathered, activations, kept.passing)


def most_rows(room: float, shape: Shape, length: int, hidden: float, ranks: int, sharded: bool, again: bool) -> int:
    """Rows at once that fit into so many bytes."""
    fits = lambda rows: memory(shape, rows, length, hidden, ranks, sharded, again).total <= room  # noqa: E731
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
