"""The kernel of a vertex: an EinSum, or one that moves data or sums rows into a table.

JAX's arrays cannot be written to, so a kernel here has no output to compute into, as those of
`kernels.library` have. An engine traces them within a program of its own and compiles all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from eindecomp.errors import InputError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Op, Reshape, ScatterAdd, Slice
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.jax.einsum import EinSumKernel, aligned, einsum_kernel
from eindecomp.kernels.jax.functions import cast
from eindecomp.kernels.tile_arrays import lent_sizes
from eindecomp.lang.dtypes import INT64, DType, widen
from eindecomp.lang.einsum import EinSum, Labels

if TYPE_CHECKING:
    import jax

    from eindecomp.kernels.jax.einsum import States


@dataclass(frozen=True, slots=True)
class MoveKernel:
    """A gather, scatter, concatenation, slice or reshape, with results of type `out`."""

    op: Op
    out: DType

    @property
    def sums(self) -> bool:
        """Parts of a table are added."""
        return True

    def result(self, operands: Sequence[Any], scalars: Sequence[object], shape: Any) -> States:
        """A tile."""
        del scalars
        return (self.finished((self._moved(operands, shape),)),)

    def states(self, operands: Sequence[Any], scalars: Sequence[object], shape: Any) -> States:
        """A part of a sum."""
        del scalars
        return (cast(self._moved(operands, shape), widen(self.out)),)

    def combined(self, a: States, b: States) -> States:
        """The sum of two parts."""
        return (a[0] + b[0],)

    def finished(self, states: States) -> jax.Array:
        """The sum in the result's type."""
        return cast(states[0], self.out)

    def index_range(self, operands: Sequence[Any], shape: Sequence[int]) -> jax.Array | None:
        """The least and the largest index, and how many rows there are."""
        match self.op:
            case Gather(axis=axis):
                rows = operands[0].shape[axis]
            case ScatterAdd(axis=axis):
                rows = shape[axis]
            case _:
                return None
        index = operands[1]
        limits = np.iinfo(index.dtype.name)
        low, high = index.min(initial=limits.max), index.max(initial=limits.min)
        if index.dtype == np.uint64:
            high = jnp.minimum(high, np.uint64(2**63 - 1))
        is_none = index.size == 0
        ends = (0, -1) if is_none else (low, high)
        return jnp.stack([jnp.asarray(end).astype(INT64) for end in (*ends, rows)])

    def _moved(self, operands: Sequence[Any], shape: Sequence[int]) -> jax.Array:
        match self.op:
            case Gather() as op:
                return _gather(op, operands[0], operands[1])
            case ScatterAdd() as op:
                wide = widen(self.out)
                return _scatter_add(op, operands[0], operands[1], shape[op.axis], wide)
            case Concat() as op:
                return jnp.concatenate([cast(x, self.out) for x in operands], op.axis)
            case Slice() as op:
                gone = tuple(k for k, window in enumerate(op.ranges) if isinstance(window, int))
                return operands[0].squeeze(gone) if gone else operands[0]
            case Reshape() as op:
                return _reshape(op, operands[0])
            case _:
                raise AssertionError(f"{self.op} moves nothing")


TracedKernel = EinSumKernel | MoveKernel
"""What a vertex computes on tiles, given the shape of the tile."""


def kernel_of(graph: Graph, vertex: Vertex, precision: str = "highest") -> TracedKernel:
    """What computes tiles of a vertex, which is neither an input nor a fill."""
    op = vertex.op
    if isinstance(op, EinSum):
        types = tuple(graph[name].dtype for name in vertex.inputs)
        lent, scalars = lent_sizes(graph, vertex, op), tuple(graph.scalars.items())
        return einsum_kernel(op, types, vertex.dtype, scalars, lent, precision)
    if isinstance(op, Input | Fill):
        raise InputError(f"{vertex} is not computed from tiles of others: it has no kernel")
    return MoveKernel(op, vertex.dtype)


def _gather(op: Gather, table: jax.Array, index: jax.Array) -> jax.Array:
    shape = [size for k, size in enumerate(table.shape) if k != op.axis]
    sizes = dict(zip(op.table, shape, strict=True)) | dict(zip(op.index, index.shape, strict=True))
    if not table.size:  # there is no row to read
        return jnp.zeros([sizes[label] for label in op.output], table.dtype)
    if set(op.table).isdisjoint(op.index):
        found = jnp.take(table, index, axis=op.axis, mode="clip")
        labels = (*op.table[: op.axis], *op.index, *op.table[op.axis :])
        return aligned(found, labels, op.output)
    place: list[jax.Array] = [_along(label, op.output, sizes[label]) for label in op.table]
    place.insert(op.axis, aligned(index, op.index, op.output))
    return table.at[tuple(place)].get(mode="clip", wrap_negative_indices=False)


def _scatter_add(
    op: ScatterAdd, source: jax.Array, index: jax.Array, rows: int, wide: DType
) -> jax.Array:
    sizes = dict(zip(op.source, source.shape, strict=True))
    sizes |= dict(zip(op.index, index.shape, strict=True))
    shared = tuple(label for label in op.table if label in op.index)
    whole = tuple(label for label in op.table if label not in op.index)
    space = (*op.index, *whole)
    added, own = cast(source, wide), op.source
    alone = [k for k, label in enumerate(own) if label not in space]
    if alone:
        added = lax.reduce(added, np.zeros((), wide), lax.add, alone)
        own = tuple(label for label in own if label in space)
    values = jnp.broadcast_to(aligned(added, own, space), [sizes[label] for label in space])
    place = (index, *(_along(k, op.index, sizes[k]) for k in shared))
    total = jnp.zeros([rows, *(sizes[label] for label in (*shared, *whole))], wide)
    if total.size and values.size:
        total = total.at[place].add(values, mode="drop", wrap_negative_indices=False)
    return aligned(total, (op.row_label, *shared, *whole), op.output)


def _reshape(op: Reshape, source: jax.Array) -> jax.Array:
    """A tile is cut along labels that are outermost in their groups; inner ones are whole."""
    sizes = dict(op.sizes)
    for group, size in zip(op.input, source.shape, strict=True):
        sizes[group[0]] = size // max(prod(sizes[label] for label in group[1:]), 1)
    before = [label for group in op.input for label in group]
    after = [label for group in op.groups for label in group]
    split = source.reshape([sizes[label] for label in before])
    turned = split.transpose([before.index(label) for label in after])
    return turned.reshape([prod(sizes[label] for label in group) for group in op.groups])


def _along(label: str, space: Labels, size: int) -> jax.Array:
    """0, 1, 2, … along one label of a space."""
    return aligned(jnp.arange(size), (label,), space)
