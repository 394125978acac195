"""What training keeps for the backward pass and computes, counted from the shapes of a model without running it.

`keeps` lists what autograd saves in blocks with the norm behind each branch, and in the heads; tests hold it against
what torch really saves, to the byte.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, cast

import torch
from torch import nn

from clozeworks.core.errors import InputError
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
    matrices: int  # parameters whose copies in bf16 autocast keeps for the backward pass

    @staticmethod
    def of(encoder: Encoder, losses: tuple[Loss, ...], where: str = "recipe") -> "Shape":
        block, embed = encoder.stack.block_at(0), encoder.embed
        ffn, mixer = block.ffn, cast(Any, block.mixer)  # what kind of mixer it is, `_attends` finds out
        alike = all(encoder.stack.block_at(layer) == block for layer in range(encoder.stack.depth))
        plain = block.place == "post" and block.cross is None and embed.width in (None, encoder.width)
        plain = plain and encoder.stack.memory == 0 and embed.norm is not None and hasattr(embed.positions, "length")
        plain = plain and embed.dropout == block.dropout and not embed.project and embed.words is None
        plain = plain and not embed.scale and encoder.stack.dropout == 0 and ffn is not None and ffn.dropout == 0
        plain = plain and ffn is not None and ffn.chunk is None
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
        positions = cast(Any, embed.positions)
        sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
        blocks = sum(size for name, size in sizes.items() if name.startswith("encoder.stack.blocks."))
        linear = {id(each.weight): each.weight.numel() for each in model.modules() if isinstance(each, nn.Linear)}
        return Shape(
            depth=encoder.stack.depth,
            width=encoder.width,
            inner=ffn.inner,
            heads=mixer.heads,
            vocab=encoder.vocab,
            positions=positions.length,
            shifted=positions.offset > 0,
            drops=block.dropout > 0,
            fused=mixer.dropout == 0,
            pair=SentenceRelation in heads,
            parameters=sum(sizes.values()),
            tensors=len(sizes),
            blocks=blocks,
            matrices=sum(linear.values()),
        )

    @property
    def tables(self) -> int:
        return self.parameters - self.blocks


def _attends(mixer: Any) -> bool:
    """Plain attention: heads, dropout, a bias that is absent, and nothing else that could be set."""
    known = {"heads", "dropout", "bias", "affine", "window"}
    named = {each.name for each in fields(mixer)} == known
    return named and mixer.bias is None and mixer.affine and mixer.window is None


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes that the forward pass of one micro-batch leaves for the backward pass."""

    embed: int
    layer: int
    last: int  # the layer after whose mixing only the tokens that a loss reads go on
    depth: int
    head: int  # with the gradients of table and bias, which are made together with the loss

    @property
    def layers(self) -> int:
        return (self.depth - 1) * self.layer + self.last

    @property
    def total(self) -> int:
        return self.embed + self.layers + self.head


def predicted(rows: int, length: int, hidden: float) -> int:
    return round(hidden * rows * length)


def asked(shape: Shape, rows: int, length: int, hidden: float) -> int:
    """Tokens that a loss reads: the predicted ones, and the first of each row, which is never predicted."""
    return predicted(rows, length, hidden) + (rows if shape.pair else 0)


def layer_flops(shape: Shape, rows: int, length: int, hidden: float) -> int:
    """Of all layers in one forward pass; a run that recomputes them does this once more."""
    n, width = rows * length, shape.width
    before = 2 * n * 3 * width * width + 4 * n * length * width  # q, k, v and their products
    each = 2 * (width * width + 2 * width * shape.inner)  # a token that goes on after the mixing
    return shape.depth * before + ((shape.depth - 1) * n + asked(shape, rows, length, hidden)) * each


def flops(shape: Shape, rows: int, length: int, hidden: float) -> int:
    """Of one forward pass: matrix products, two for each multiplication and addition.

    The head makes its gradients then and there; those are counted with the backward pass, which is twice this.
    """
    width = shape.width
    head = 2 * predicted(rows, length, hidden) * (width * width + width * shape.vocab)
    pair = 2 * rows * (width * width + 2 * width) if shape.pair else 0
    return layer_flops(shape, rows, length, hidden) + head + pair


def number_size(precision: Precision) -> int:
    """Bytes of a number in a product."""
    return 4 if precision == "fp32" else 2


def mixing(shape: Shape, n: int, length: int, precision: Precision) -> int:
    """What a layer keeps up to the vectors that the heads give."""
    size, vectors, scores = number_size(precision), n * shape.width, n * shape.heads * length
    return (
        (3 * 2 if precision == "bf16" else 4) * vectors  # its input; autocast copies it for each of q, k and v
        + 3 * size * vectors  # q, k, v
        + (4 * n * shape.heads if shape.fused else (size + 1) * scores)  # a sum for each row, or weights and their mask
    )


def after(shape: Shape, tokens: int, precision: Precision) -> int:
    """What a layer keeps of the tokens that go on after the mixing."""
    size, vectors = number_size(precision), tokens * shape.width
    dropped = vectors if shape.drops else 0
    return (
        size * vectors  # what the heads give
        + size * vectors  # input of the feed-forward part
        + 2 * size * tokens * shape.inner  # before and after the activation
        + 2 * (4 * vectors + 8 * tokens + dropped)  # for each norm its input, mean and deviation; what was dropped
    )


def keeps(shape: Shape, rows: int, length: int, hidden: float, precision: Precision = "bf16") -> Kept:
    """By exact shapes, for rows without segment numbers; each of those would add 8 bytes a token."""
    n, read, predictions = rows * length, asked(shape, rows, length, hidden), predicted(rows, length, hidden)
    size, vectors, width = number_size(precision), n * shape.width, shape.width
    before = mixing(shape, n, length, precision)
    last = before + after(shape, read, precision)
    if shape.fused:
        last += size * vectors  # the fused kernel keeps what it gives, of all tokens
    ids = 8 * n + 8 * (n if shape.shifted else length)
    embed = ids + 4 * vectors + 8 * n + (vectors if shape.drops else 0)
    head = read * (8 + 4 * width)  # vectors that are read, and where they are
    head += predictions * (8 + 3 * size * width + 8)  # before the product with the table
    head += predictions * size * width + 4 * shape.vocab * (width + 1)  # gradients of its input, table and bias
    if shape.pair:
        head += rows * (8 + 2 * size * width + 2 * 4 + 8) + 4
    return Kept(embed, before + after(shape, n, precision), last, shape.depth, head)


def recomputed(shape: Shape, rows: int, length: int, hidden: float, precision: Precision = "bf16") -> int:
    """Bytes kept between the passes if of each layer there is only its input, in fp32."""
    kept = keeps(shape, rows, length, hidden, precision)
    return kept.embed + shape.depth * 4 * rows * length * shape.width + kept.head
