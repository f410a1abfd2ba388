"""Sorting, by counting for each element how many come before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.frontends.join import Read
from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from eindecomp.frontends.torch.operation import Operation
    from eindecomp.frontends.views import View

_TIE = "(x3 < x2 and (x1 == x0 or (x1 != x1 and x0 != x0)))"
_BEFORE = {
    True: f"x1 > x0 or (x1 != x1 and x0 == x0) or {_TIE}",
    False: f"x1 < x0 or (x0 != x0 and x1 == x1) or {_TIE}",
}
"""Whether element x1 at index x3 comes before x0 at x2, NaN being the largest."""


def _sorted(op: Operation, x: View, dim: int, count: int, descending: bool) -> list[View]:
    """The first elements in order, and where they were."""
    if not x.dims:
        return [x, op.trace.number(0, "int64")]
    place = dim % len(x.dims)
    every = tuple(range(len(x.dims)))
    other, rank = len(every), len(every) + 1
    inner = tuple(other if k == place else k for k in every)
    numbers = op.trace.iota(x.shape[place], "int64")
    reads = [Read(x, every), Read(x, inner), Read(numbers, (place,)), Read(numbers, (other,))]
    join = _BEFORE[descending]
    for k, letter in enumerate("xyz"):
        join = join.replace(f"x{k}", letter)
    ranks = op.trace.einsum(reads, every, f"int64({join})", "sum", "int64")
    wanted = Read(op.trace.iota(count, "int64"), (rank,))
    output = [rank if k == place else k for k in every]
    found: list[View] = []
    for source, symbols in ((x, every), (numbers, (place,))):
        parts = [Read(source, symbols), Read(ranks, every), wanted]
        zero = "false" if source.dtype.name == "bool" else "0"
        agg = "any" if source.dtype.name == "bool" else "sum"
        made = op.trace.einsum(parts, output, f"where(y == z, x, {zero})", agg, source.dtype)
        found.append(made)
    return found


@operator("aten.sort")
def sort(op: Operation, x: View, dim: int = -1, descending: bool = False, **_: Any) -> list[View]:
    """All elements in order, and where they were."""
    size = x.shape[dim] if x.dims else 1
    return _sorted(op, x, dim, size, descending)


@operator("aten.argsort")
def argsort(op: Operation, x: View, dim: int = -1, descending: bool = False, **_: Any) -> View:
    """Where the elements are, in order."""
    return _sorted(op, x, dim, x.shape[dim] if x.dims else 1, descending)[1]


@operator("aten.topk")
def topk(
    op: Operation, x: View, k: int, dim: int = -1, largest: bool = True, **_: Any
) -> list[View]:
    """The largest or smallest elements, and where they were."""
    return _sorted(op, x, dim, k, largest)
