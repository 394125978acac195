"""The most that training holds at one moment, and the rows that leave room for it.

Any of several moments can be the worst: the way through the last layer; the head, which makes logits a piece at a time
with all layers kept behind it; the turn, with gradients of all hidden states; the way back through the mixing of the
last layer; where layers are recomputed, the one before it, there once more in full; and, if the vocabulary is large and
the rows are few, the gradients of the table at the end. Tests add up all tensors that are alive in both passes and
find 1 % more or less at most: biases, indices, gradients of single matrices. The optimizer's own temporaries, and
what kernels take inside, are not counted.
"""

from dataclasses import dataclass

from clozeworks.objectives.losses.cross_entropy import BUDGET
from studies.scale.footprint import Precision, Shape, asked, keeps, mixing, number_size, predicted, recomputed


@dataclass(frozen=True, slots=True)
class Peak:
    """A height that training reaches: bytes beside weights, gradients and what the optimizer keeps."""

    kept: int  # for the backward pass
    passing: int  # what the computation at hand makes and drops
    copies: int  # weights in bf16

    @property
    def total(self) -> int:
        return self.kept + self.passing + self.copies


def peaks(
    shape: Shape, rows: int, length: int, hidden: float, precision: Precision = "bf16", again: bool = False
) -> tuple[Peak, ...]:
    """The candidates; `again`: layers are recomputed."""
    at = (shape, rows, length, hidden, precision, again)
    found = (_ahead(*at), _head(*at), _turn(*at), _back(*at), _end(*at))
    return (*found, _full(*at)) if again and shape.depth > 1 else found


def _ahead(shape: Shape, rows: int, length: int, hidden: float, precision: Precision, again: bool) -> Peak:
    """The last layer on the way forward: its weights of attention, or its vectors put back among all."""
    kept, n, size = keeps(shape, rows, length, hidden, precision), rows * length, number_size(precision)
    vectors, scores = n * shape.width, n * shape.heads * length
    copies = 2 * _matrices(shape, shape.depth) if precision == "bf16" else 0
    scattered = 8 * vectors + asked(shape, rows, length, hidden) * (8 + 4 * shape.width)
    weighed = 0 if shape.fused else 2 * size * scores + 5 * size * vectors  # beside what the mixing keeps
    if again:
        weighed += 0 if shape.fused else (size + 1) * scores + 3 * size * vectors
        before = kept.embed + shape.depth * 4 * vectors
        return Peak(before, max(weighed, scattered) + _tiles(shape, n), copies)
    if shape.fused:
        return Peak(kept.embed + kept.layers, scattered, copies)
    before = kept.embed + (shape.depth - 1) * kept.layer + mixing(shape, n, length, precision)
    return Peak(before, weighed + _tiles(shape, n), copies)


def _head(shape: Shape, rows: int, length: int, hidden: float, precision: Precision, again: bool) -> Peak:
    """Beside what the head keeps: its input, logits of a piece, copies in bf16.

    Or, where the vocabulary is small beside the width, the gradients once more when they are multiplied.
    """
    predictions, vocab, width = predicted(rows, length, hidden), shape.vocab, shape.width
    shapes = (shape, rows, length, hidden, precision)
    size, copied = number_size(precision), 2 if precision == "bf16" else 0
    first = min(predictions, max(1, BUDGET // (4 * vocab)))
    gradients = 4 * vocab * first + copied * vocab * (first + width) + size * first * width
    logits = (4 + copied) * vocab * first
    given = size * predictions * width + copied * vocab * (width + 1)  # table and bias
    multiplied = 4 * vocab * (width + 1) + size * predictions * width
    return Peak(
        recomputed(*shapes) if again else keeps(*shapes).total,
        max(given + max(gradients, logits), multiplied) + _held(shape, rows * length),
        copied * shape.matrices,
    )


def _turn(shape: Shape, rows: int, length: int, hidden: float, precision: Precision, again: bool) -> Peak:
    """Gradients of the hidden states, as large as all of them: one of each head, and their sum."""
    kept, vectors = keeps(shape, rows, length, hidden, precision), rows * length * shape.width
    every = kept.embed + (shape.depth * 4 * vectors if again else kept.layers)
    read = asked(shape, rows, length, hidden) * (8 + 4 * shape.width)
    copies = 0 if again or precision == "fp32" else 2 * _matrices(shape, shape.depth)
    made = (3 if shape.pair else 2) * 4 * vectors
    return Peak(every + read + _table(shape), made + _held(shape, rows * length), copies)


def _back(shape: Shape, rows: int, length: int, hidden: float, precision: Precision, again: bool) -> Peak:
    """Gradients in the mixing of the last layer: of the sum around it, its vectors and its weights of attention.

    Of the head is left the gradient of the table, which waits for that of the embedding.
    """
    kept, n, size = keeps(shape, rows, length, hidden, precision), rows * length, number_size(precision)
    vectors, scores = n * shape.width, n * shape.heads * length
    own = mixing(shape, n, length, precision) + (size * vectors if shape.fused else 0)
    if again and precision == "bf16":
        own += 4 * vectors  # in fp32 its input is among what it keeps
    before = kept.embed + (shape.depth - 1) * (4 * vectors if again else kept.layer)
    # The gradient of the heads and those of q, k and v: where there are tiles, as they are and as tiles.
    made = 4 * vectors + (4 * size * vectors if shape.fused else 8 * size * vectors + 3 * size * scores)
    left = _matrices(shape, 1 if again else shape.depth) - shape.width * (shape.width + 2 * shape.inner)
    return Peak(before + own + _table(shape), made + _held(shape, n), 2 * left if precision == "bf16" else 0)


def _full(shape: Shape, rows: int, length: int, hidden: float, precision: Precision, again: bool) -> Peak:
    """The last layer but one at the end of its second computation, or at the start of its way back."""
    kept, n, size = keeps(shape, rows, length, hidden, precision), rows * length, number_size(precision)
    vectors, mixed = n * shape.width, precision == "bf16"
    before = kept.embed + (shape.depth - 1) * 4 * vectors + kept.layer - (0 if mixed else 4 * vectors)
    # The gradient that waits, both branches, what is dropped; in bf16 also what the branch is added to, and it in fp32.
    joined = (4 + 2 * size + 4 + (4 if mixed else 0) + (4 if mixed and shape.drops else 0)) * vectors
    freed = (4 + (1 if shape.drops else 0)) * vectors  # what the norm kept
    branch = size * vectors if mixed or shape.drops else 0  # else it is the gradient that waits
    inner = 4 * vectors + branch + size * n * shape.inner + 4 * shape.width * shape.inner - freed
    return Peak(before + _table(shape), max(joined, inner) + _held(shape, n), 2 * _matrices(shape, 1) if mixed else 0)


def _end(shape: Shape, rows: int, length: int, hidden: float, precision: Precision, again: bool) -> Peak:
    """Both gradients of the table, and their sum."""
    n = rows * length
    return Peak(8 * n, 3 * _table(shape) + _held(shape, n), 0)


def _held(shape: Shape, n: int) -> int:
    """Hidden states, which the output of the model holds to the end."""
    return 4 * n * shape.width + _tiles(shape, n)


def _tiles(shape: Shape, n: int) -> int:
    """Where tiles of attention take each head of each token from, and put it back."""
    return 0 if shape.fused else 16 * n * shape.heads


def _table(shape: Shape) -> int:
    return 4 * shape.vocab * shape.width


def _matrices(shape: Shape, layers: int) -> int:
    return layers * shape.width * (4 * shape.width + 2 * shape.inner)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one rank at the worst moment."""

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
    found = peaks(shape, rows, length, hidden, again=again)
    if not sharded:
        worst, count = max(found, key=lambda each: each.total), shape.parameters
        return Memory(4 * count, 4 * count, 8 * count, worst.copies, worst.kept, worst.passing)
    worst, part = max(found, key=lambda each: each.kept + each.passing), -(-shape.parameters // ranks)
    gathered = shape.tables + 2 * -(-shape.blocks // shape.depth)
    return Memory(4 * part, 4 * part, 8 * part, (2 + 4) * gathered, worst.kept, worst.passing)


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
