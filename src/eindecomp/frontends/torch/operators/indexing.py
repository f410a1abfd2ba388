"""Looking elements up by their indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.frontends.join import Read
from eindecomp.frontends.torch.registry import operator
from eindecomp.lang.dtypes import BOOL
from eindecomp.lang.scalar import Arg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View


@operator("aten.embedding")
def embedding(op: Operation, weight: View, indices: View, **_: Any) -> View:
    """Rows of a table."""
    op.trace.vote(weight, ("v", "a"))
    if len(indices.dims) == 2:
        op.trace.vote(indices, ("b", "s"))
    return op.trace.take(weight, 0, indices)


@operator("aten.index_select")
def index_select(op: Operation, x: View, dim: int, index: View) -> View:
    """What lies at some indices along a dimension."""
    if not x.dims:
        return x
    row = index if index.dims else op.trace.unsqueeze(index, 0)
    return op.trace.take(x, dim % len(x.dims), row)


@operator("aten.gather")
def gather(op: Operation, x: View, dim: int, index: View, **_: Any) -> View:
    """The element at an index along a dimension, for every place of the others."""
    if not x.dims:
        return op.trace.expand(x, index.shape)
    place = dim % len(x.dims)
    for k, size in enumerate(index.shape):
        x = x if k == place else op.trace.slice(x, k, 0, size)
    return op.trace.take_along(x, place, index, [(k, k) for k in range(len(x.dims)) if k != place])


def from_end(op: Operation, index: View, size: int) -> View:
    """Indices that count from the end if they are negative."""
    return op.trace.map(f"where(x < 0, x + {size}, x)", op.trace.cast(index, "int64"))


def flat_index(op: Operation, indices: Sequence[View], sizes: Sequence[int]) -> View:
    """One index in the place of several, of dimensions that are merged."""
    found = from_end(op, indices[0], sizes[0])
    for index, size in zip(indices[1:], sizes[1:], strict=True):
        found = op.trace.map(f"x * {size} + y", found, from_end(op, index, size))
    return found


@operator("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(op: Operation, x: View, indices: Sequence[View | None]) -> View:
    """What lies at indices of several dimensions at once, which they align."""
    at = {k: i for k, i in enumerate(indices) if i is not None}
    if any(i.dtype == BOOL for i in at.values()):
        raise op.refuse("selects by a mask: how many elements come out depends on the data")
    dims = [*at]
    rank = max(len(i.dims) for i in at.values())
    together = op.shape[dims[0] : dims[0] + rank]
    adjacent = dims == [*range(dims[0], dims[0] + len(dims))]
    shape = together if adjacent else op.shape[:rank]
    wide = {k: op.trace.expand(from_end(op, i, x.shape[k]), shape) for k, i in at.items()}
    rest = [k for k in range(len(x.dims)) if k not in at]
    made = _looked_up(op, x, wide, rest, rank)
    if not adjacent or not dims[0]:
        return made
    order = [*range(rank, rank + dims[0]), *range(rank), *range(rank + dims[0], len(made.dims))]
    return op.trace.transpose(made, order)


def _looked_up(op: Operation, x: View, at: dict[int, View], rest: Sequence[int], rank: int) -> View:
    """The elements with the dimensions of the indices first, then the rest of x's."""
    shape = (*next(iter(at.values())).shape, *(x.shape[k] for k in rest))
    for k in sorted(at, reverse=True):
        if (row := at[k].number) is not None:
            x = op.trace.index(x, k, int(row.real))
            at = {j - (j > k): i for j, i in at.items() if j != k}
            rest = [j - (j > k) for j in rest]
    along = _aligned(op, x, at)
    others = [k for k in at if k not in along]
    kept = [*along, *rest]
    # Symbols 0 … rank - 1 are the dimensions of the indices, those after them the rest of x's.
    symbols = {**along, **{k: rank + n for n, k in enumerate(rest)}}
    output = [*range(rank), *(rank + n for n in range(len(rest)))]
    if not others:
        reads = [Read(x, tuple(symbols[k] for k in range(len(x.dims))))]
        return op.trace.expand(op.trace.einsum(reads, output, None, None), shape)
    sizes = [x.shape[k] for k in others]
    table = op.trace.transpose(x, [*others, *kept])
    count = 1
    for size in sizes:
        count *= size
    table = op.trace.reshape(table, (count, *(x.shape[k] for k in kept)))
    index = flat_index(op, [at[k] for k in others], sizes)
    shared = [(1 + kept.index(k), dim) for k, dim in along.items()]
    found = op.trace.take_along(table, 0, index, shared)
    new = [k for k in range(rank) if k not in along.values()]
    shown = [*new, *(symbols[k] for k in kept)]
    return op.trace.transpose(found, [shown.index(s) for s in output])


def _aligned(op: Operation, x: View, at: dict[int, View]) -> dict[int, int]:
    """Dimensions of x that are read in order along a dimension of the indices, and which."""
    found: dict[int, int] = {}
    for k, index in at.items():
        match op.trace.formula(index):
            case Arg(dim) if index.shape[dim] == x.shape[k] and dim not in found.values():
                found[k] = dim
            case _:
                continue
    return found


@operator("aten.one_hot")
def one_hot(op: Operation, x: View, **_: Any) -> View:
    """1 at the class, 0 elsewhere."""
    classes = op.trace.iota(op.shape[-1], "int64")
    wide = op.trace.unsqueeze(x, len(x.dims))
    return op.trace.map("x == y", wide, classes, dtype=op.dtype)
