"""Sorting, by counting for each element how many come before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.frontends.operations.orders import at_rank, ranks
from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View


def _sorted(op: Operation, x: View, dim: int, count: int, descending: bool) -> list[View]:
    """The first elements in order, and where they were."""
    if not x.dims:
        return [x, op.trace.number(0, "int64")]
    place = dim % len(x.dims)
    rank = ranks(op.trace, [x], place, largest=descending)
    numbers = op.trace.iota(x.shape[place], "int64")
    return [at_rank(op.trace, source, rank, place, count) for source in (x, numbers)]


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
