"""Orders along a dimension: ranks, what has a rank, and the first of the largest.

Ranks are counted: they cost the size of the dimension squared, and can be cut along either side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.join import Read
from eindecomp.graph.text.macros import prelude_monoids
from eindecomp.lang.dtypes import BOOL
from eindecomp.lang.scalar import Arg, Tuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from eindecomp.frontends.trace import Trace
    from eindecomp.frontends.views import View


def ranks(trace: Trace, keys: Sequence[View], axis: int, *, largest: bool) -> View:
    """How many elements come before each along a dimension, by keys; of equal ones the first.

    NaN is the largest.
    """
    rank = len(keys[0].dims)
    there = tuple(rank if k == axis else k for k in range(rank))
    places = trace.iota(keys[0].shape[axis], "int64")
    # Reads: each key at another place and here, then both places.
    reads = [Read(key, symbols) for key in keys for symbols in (there, tuple(range(rank)))]
    reads += [Read(places, (rank,)), Read(places, (axis,))]
    names = [_arg(k) for k in range(len(reads))]
    comes = f"{names[-2]} < {names[-1]}"
    for k in reversed(range(len(keys))):
        other, own = names[2 * k], names[2 * k + 1]
        high, low = (other, own) if largest else (own, other)
        is_before = f"({high} > {low} or ({high} != {high} and {low} == {low}))"
        same = f"({other} == {own} or ({other} != {other} and {own} != {own}))"
        comes = f"({is_before} or ({same} and {comes}))"
    return trace.einsum(reads, range(rank), f"int64({comes})", "sum")


def _arg(index: int) -> str:
    return "xyz"[index] if index < 3 else f"x{index}"


def at_rank(trace: Trace, x: View, rank: View, axis: int, count: int) -> View:
    """The elements of the first so many ranks, in their order."""
    dims = len(rank.dims)
    own = tuple(range(dims)) if x.dims and len(x.dims) == dims else (axis,)
    reads = [
        Read(x, own),
        Read(rank, tuple(range(dims))),
        Read(trace.iota(count, "int64"), (dims,)),
    ]
    output = [dims if k == axis else k for k in range(dims)]
    if x.dtype == BOOL:
        return trace.einsum(reads, output, "x and y == z", "any")
    return trace.einsum(reads, output, "where(y == z, x, 0)", "sum", x.dtype)


def first_largest(
    trace: Trace, x: View, axis: int, monoid: Literal["first_max", "first_min"]
) -> View:
    """The place of the largest or smallest element along a dimension, the first of equal ones."""
    rank = len(x.dims)
    values = trace.cast(x, "int8") if x.dtype == BOOL else x
    places = trace.iota(x.shape[axis], "int64")
    output = [k for k in range(rank) if k != axis]
    reads = [Read(values, tuple(range(rank))), Read(places, (axis,))]
    pair = Tuple((Arg(0), Arg(1)))
    return trace.einsum(reads, output, pair, prelude_monoids()[monoid], "int64")
