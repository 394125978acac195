"""Sixteen floats at a time, for compiled kernels: a small matrix product and a transposition, kept in registers.

A loop over short rows is left half empty by the compiler, which must suppose that arrays overlap and that a row may
end anywhere. Written as vectors of sixteen, a processor with narrower registers takes two or four of its own.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
_INDEX = ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, array).data


def _vector_at(builder: Any, data: Any, offset: Any) -> Any:
    return builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer())


def _shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INDEX, LANES), lanes))


def make_product(rows: int, vectors: int) -> Callable[..., None]:
    """The function C = A B for A [rows, n], B [n, 16 vectors] and C [rows, 16 vectors], each a part of a flat array of
    fp32: (a, begin of A, its stride, b, begin of B, its stride, c, begin of C, its stride, n)."""

    @intrinsic
    def product(typing: Any, a: Any, a0: Any, sa: Any, b: Any, b0: Any, sb: Any, c: Any, c0: Any, sc: Any, n: Any):
        """As `make_product` says; what numba asks of an intrinsic is its signature and its code."""

        def _generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            a, a0, sa, b, b0, sb, c, c0, sc, n = given
            a, b, c = (_data(context, builder, signature.args[at], given[at]) for at in (0, 3, 6))
            zero = ir.Constant(_VECTOR, None)
            sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in range(vectors)] for _ in range(rows)]
            for each in (one for row in sums for one in row):
                builder.store(zero, each)
            with cgutils.for_range(builder, n) as loop:
                base = builder.add(b0, builder.mul(loop.index, sb))
                right = []
                for v in range(vectors):
                    offset = builder.add(base, ir.Constant(base.type, v * LANES))
                    right.append(builder.load(_vector_at(builder, b, offset), align=4))
                for r in range(rows):
                    offset = builder.add(builder.add(a0, builder.mul(sa, ir.Constant(sa.type, r))), loop.index)
                    left = builder.insert_element(
                        _UNDEFINED, builder.load(builder.gep(a, [offset])), ir.Constant(_INDEX, 0)
                    )
                    left = _shuffle(builder, left, _UNDEFINED, [0] * LANES)
                    for v in range(vectors):
                        term = builder.fmul(left, right[v], flags=("contract",))
                        builder.store(builder.fadd(builder.load(sums[r][v]), term, flags=("contract",)), sums[r][v])
            for r in range(rows):
                row = builder.add(c0, builder.mul(sc, ir.Constant(sc.type, r)))
                for v in range(vectors):
                    place = _vector_at(builder, c, builder.add(row, ir.Constant(row.type, v * LANES)))
                    builder.store(builder.load(sums[r][v]), place, align=4)
            return context.get_dummy_value()

        return types.void(a, a0, sa, b, b0, sb, c, c0, sc, n), _generate

    return product


@intrinsic
def transpose(typing: Any, a: Any, a0: Any, sa: Any, c: Any, c0: Any, sc: Any):
    """C [16, 16] = A^T, parts of flat arrays of fp32: four rounds in each of which pairs of rows exchange half."""

    def _generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        _, a0, sa, _, c0, sc = given
        a, c = (_data(context, builder, signature.args[at], given[at]) for at in (0, 3))
        rows = [
            builder.load(_vector_at(builder, a, builder.add(a0, builder.mul(sa, ir.Constant(sa.type, r)))), align=4)
            for r in range(LANES)
        ]
        for step in (1, 2, 4, 8):
            low = [lane if not lane & step else LANES + lane - step for lane in range(LANES)]
            high = [lane + step if not lane & step else LANES + lane for lane in range(LANES)]
            for r in (r for r in range(LANES) if not r & step):
                first, second = rows[r], rows[r + step]
                rows[r] = _shuffle(builder, first, second, low)
                rows[r + step] = _shuffle(builder, first, second, high)
        for r, row in enumerate(rows):
            place = builder.add(c0, builder.mul(sc, ir.Constant(sc.type, r)))
            builder.store(row, _vector_at(builder, c, place), align=4)
        return context.get_dummy_value()

    return types.void(a, a0, sa, c, c0, sc), _generate
