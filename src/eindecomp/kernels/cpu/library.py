"""`CpuLibrary`: the kernel library for NumPy's arrays.

EinSums are in `einsum.py`; vertices that move data, sum rows into a table, or are made from their
own indices are here. The reference shares no code with this module, so that each checks the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Op, Reshape, ScatterAdd, Window
from eindecomp.graph.shown import Shown
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.convolutions import convolution_of
from eindecomp.kernels.cpu.borders import BorderKernel
from eindecomp.kernels.cpu.convolution import ConvolutionKernel
from eindecomp.kernels.cpu.einsum import einsum_kernel
from eindecomp.kernels.cpu.fork_join import HELPERS
from eindecomp.kernels.cpu.windows import view
from eindecomp.kernels.library import Range, Scalars, Tile, TileKernel
from eindecomp.kernels.point_program import fill_function
from eindecomp.kernels.tile_arrays import einsum_arguments, reshaped
from eindecomp.lang.dtypes import Array, DType, ScalarItems, ScalarTypes, ScalarValues, widen
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.numpy_backend import NUMPY


class CpuLibrary:
    """Products and contractions by BLAS or blocks of our own, all else by generated loops."""

    name = "numpy"

    def kernel(self, graph: Graph, vertex: Vertex) -> TileKernel:
        """The kernel of a vertex."""
        op = vertex.op
        if isinstance(op, EinSum):
            arguments = einsum_arguments(graph, vertex, op)
            plain = einsum_kernel(*arguments)
            known = convolution_of(vertex, arguments[1])
            if known is not None:
                return ConvolutionKernel(known, plain)
            indices = (index for window in vertex.windows if window for index in window.index)
            is_bounded = all(index.outside is None for index in indices)
            return plain if is_bounded else BorderKernel(op, plain)
        if isinstance(op, Input | Fill):
            raise InputError(f"{vertex} is not computed from tiles of others: it has no kernel")
        return move_kernel(op, vertex.dtype)

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """A new array, of any contents."""
        return np.empty(shape, dtype)

    def fill(
        self, op: Fill, out: Array, box: Sequence[Range], scalars: ScalarValues, types: ScalarTypes
    ) -> None:
        """Make a box of a fill's tensor: along each dimension the indices from low to high."""
        index: list[Array] = [
            np.arange(low, high).reshape([-1 if k == axis else 1 for k in range(len(box))])
            for axis, (low, high) in enumerate(box)
        ]
        value, names, _ = _compiled(op, tuple(types.items()))
        with np.errstate(all="ignore"):
            made = np.asarray(value(*index, *(scalars[name] for name in names)))
            out[...] = made.astype(out.dtype)

    def copy(self, target: Array, source: Array) -> None:
        """Copy elements from one array to another."""
        np.copyto(target, source)

    def window(self, tile: Array, shown: Shown) -> Array:
        """A view of the tile, or of a copy with what lies outside beside it."""
        return view(tile, shown)

    def from_numpy(self, array: Array) -> Array:
        """The array itself."""
        return array

    def to_numpy(self, array: Array) -> Array:
        """The array itself."""
        return array


@lru_cache(maxsize=256)
def _compiled(op: Fill, types: ScalarItems) -> Any:
    return fill_function(op, dict(types), NUMPY)


@dataclass(frozen=True)
class MoveKernel:
    """A gather, scatter, concatenation, slice or reshape."""

    op: Op
    out: DType

    @property
    def state(self) -> tuple[DType, ...]:
        """The type in which partial results are held."""
        return (widen(self.out),)

    def whole(self, operands: Sequence[Any], out: Array, scalars: Scalars = ()) -> None:
        """Compute a tile into `out`."""
        del scalars
        match self.op:
            case Gather() as op:
                _gather(op, operands[0], operands[1], out)
            case ScatterAdd() as op:
                _scatter_add(op, operands[0], operands[1], out)
            case Concat() as op:
                np.concatenate(operands, axis=op.axis, out=out, casting="unsafe")
            case Window():
                out[...] = operands[0]
            case Reshape() as op:
                if out.size:  # of nothing, the operand does not tell how it is cut
                    out[...] = reshaped(op, operands[0], np.transpose)
            case _:
                raise AssertionError(f"{self.op} moves nothing")

    def wholes(self, tiles: Sequence[Tile], scalars: Scalars = ()) -> None:
        """Compute several tiles at once."""
        HELPERS.run([partial(self.whole, operands, out, scalars) for operands, out in tiles])

    def partial(
        self, operands: Sequence[Any], state: Sequence[Array], scalars: Scalars = ()
    ) -> None:
        """Compute a part of a sum."""
        self.whole(operands, state[0], scalars)

    def combine(self, into: Sequence[Array], other: Sequence[Array]) -> None:
        """Add another part, in place."""
        np.add(into[0], other[0], out=into[0])

    def finish(self, state: Sequence[Array], out: Array) -> None:
        """Write the sum where it belongs."""
        out[...] = state[0]


move_kernel = lru_cache(maxsize=2**12)(MoveKernel)
"""The kernel of a move for results of type `out`."""


def _gather(op: Gather, table: Array, index: Array, out: Array) -> None:
    check_index(index, table.shape[op.axis])
    if set(op.table).isdisjoint(op.index):
        # `np.take` would copy all of a table that is not contiguous.
        rows = table[(*([slice(None)] * op.axis), index)]
        labels = (*op.table[: op.axis], *op.index, *op.table[op.axis :])
        out[...] = rows.transpose([labels.index(label) for label in op.output])
        return
    place = [_along(label, op.output, out.shape) for label in op.table]
    rows = _spread(index, op.index, op.output)
    out[...] = table[(*place[: op.axis], rows, *place[op.axis :])]


def _scatter_add(op: ScatterAdd, source: Array, index: Array, out: Array) -> None:
    check_index(index, out.shape[op.axis])
    if set(op.source) == {*op.index, *op.table} and set(op.table).isdisjoint(op.index):
        _add_rows(op, source, index, out)
        return
    space = tuple(dict.fromkeys((*op.source, *op.index)))
    laid = (_spread(index, op.index, space), _spread(source, op.source, space))
    rows, added = np.broadcast_arrays(*laid)
    place = [_along(label, space, rows.shape) for label in op.table]
    total = np.zeros(out.shape, widen(out.dtype))
    np.add.at(total, (*place[: op.axis], rows, *place[op.axis :]), added.astype(total.dtype))
    out[...] = total


def _add_rows(op: ScatterAdd, source: Array, index: Array, out: Array) -> None:
    """A scatter of whole rows, as the product with a sparse matrix of a one in every column.

    It adds in the same order as `np.add.at`, twenty times as fast.
    """
    from scipy.sparse import csc_array  # takes a while to import, which most programs do without

    rows = source.transpose([op.source.index(label) for label in (*op.index, *op.table)])
    shape, wide = rows.shape[index.ndim :], widen(out.dtype)
    added = rows.reshape(index.size, prod(shape)).astype(wide, copy=False)
    ones, starts = np.ones(index.size, wide), np.arange(index.size + 1)
    onto: Any = csc_array((ones, index.reshape(-1), starts), shape=(out.shape[op.axis], index.size))
    total: Array = onto @ added
    out[...] = np.moveaxis(total.reshape(out.shape[op.axis], *shape), 0, op.axis)


def _along(label: str, space: Labels, shape: Sequence[int]) -> Array:
    """0, 1, 2, … along one label of a space."""
    at = space.index(label)
    return np.arange(shape[at]).reshape([-1 if k == at else 1 for k in range(len(space))])


def _spread(array: Array, labels: Labels, space: Labels) -> Array:
    """An array with a dimension for each label of a space, of size 1 where it has none."""
    order = [labels.index(label) for label in space if label in labels]
    sizes = dict(zip(labels, array.shape, strict=True))
    return array.transpose(order).reshape([sizes.get(label, 1) for label in space])


def check_index(index: Array, size: int) -> None:
    """Raise if an index is out of range for a table of `size` rows."""
    if index.size and (index.min() < 0 or index.max() >= size):
        bad = index.min() if index.min() < 0 else index.max()
        raise InputError(f"index {bad} is outside 0 to {size - 1}")
