"""`gather`, in all forms: rows at indices, windows at starts, and both along several dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from eindecomp.frontends.jax.primitives.shapes import clamped
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.operations import counts_along, flat_index

if TYPE_CHECKING:
    from eindecomp.frontends.views import View


@dataclass(slots=True)
class _Lookup:
    """A gather under way: what is left of the operand, and what its dimensions are by now."""

    op: Equation
    array: View
    axes: list[Axis]
    shared: dict[int, int]
    """Dimensions of the operand that are dimensions of the indices as well."""

    def slice(self, dim: int, start: int, size: int) -> None:
        """Keep a range of a dimension of the operand."""
        place = self.axes.index(Axis(False, dim))
        self.array = self.op.trace.slice(self.array, place, start, start + size)

    def take(self, dim: int, index: View, size: int) -> None:
        """Look up along one dimension of the operand, a window of `size` at every index."""
        trace, place = self.op.trace, self.axes.index(Axis(False, dim))
        own = [Axis(True, k) for k in range(len(index.dims))]
        if size > 1:
            index = trace.map("x + y", trace.unsqueeze(index, len(own)), trace.iota(size, "int64"))
            own.append(Axis(False, dim))
        pairs = [
            (k, own.index(axis))
            for k, axis in enumerate(map(self.known_as, self.axes))
            if axis in own and k != place
        ]
        self.array = trace.take(self.array, place, index, pairs)
        new = [axis for k, axis in enumerate(own) if k not in {b for _, b in pairs}]
        before = [self.known_as(axis) for axis in self.axes]
        self.axes = [*before[:place], *new, *before[place + 1 :]]

    def known_as(self, axis: Axis) -> Axis:
        """What a dimension is called once the indices have it, too."""
        if not axis.of_indices and axis.place in self.shared:
            return Axis(True, self.shared[axis.place])
        return axis

    def merge(self, dims: list[int]) -> None:
        """Make dimensions of the operand one, under the name of the first."""
        wanted = [Axis(False, dim) for dim in dims]
        order = [axis for axis in self.axes if axis not in wanted] + wanted
        trace = self.op.trace
        array = trace.transpose(self.array, [self.axes.index(axis) for axis in order])
        rest = array.shape[: len(order) - len(dims)]
        self.array = trace.reshape(array, (*rest, prod(array.shape[len(rest) :])))
        self.axes = order[: len(order) - len(dims) + 1]


@primitive("gather")
def _gather(op: Equation, x: View, indices: View) -> View:
    numbers = op.params["dimension_numbers"]
    sizes = [int(size) for size in op.params["slice_sizes"]]
    batch = len(indices.dims) - 1
    shared = dict(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    lookup = _Lookup(op, x, [Axis(False, k) for k in range(len(x.dims))], shared)
    starts: dict[int, View] = {}
    looked_up = [int(dim) for dim in numbers.start_index_map]
    _vote(op, x, indices, looked_up)
    for dim, index in zip(looked_up, columns(op, indices), strict=True):
        _note_start(lookup, starts, dim, index, sizes[dim])
    for dim, size in enumerate(sizes):
        if dim not in looked_up and dim not in shared and size < x.shape[dim]:
            lookup.slice(dim, 0, size)
    if len(starts) > 1 and all(sizes[dim] == 1 for dim in starts):
        dims = sorted(starts)
        lengths = [lookup.array.shape[lookup.axes.index(Axis(False, dim))] for dim in dims]
        lookup.merge(dims)
        starts = {dims[0]: flat_index(op.trace, [starts[dim] for dim in dims], lengths)}
    for dim, index in starts.items():
        lookup.take(dim, index, sizes[dim])
    axes = [lookup.known_as(axis) for axis in lookup.axes]
    kept = [
        Axis(False, k)
        for k in range(len(x.dims))
        if k not in numbers.collapsed_slice_dims and k not in shared
    ]
    places = iter(range(batch))
    rest = iter(kept)
    wanted = [
        next(rest) if k in numbers.offset_dims else Axis(True, next(places))
        for k in range(len(op.shape))
    ]
    return op.trace.expand(arranged(op, lookup.array, axes, wanted), op.shape)


def _note_start(lookup: _Lookup, starts: dict[int, View], dim: int, index: View, size: int) -> None:
    """Slice where an index is one number; else keep it as it is looked up."""
    op, whole = lookup.op, lookup.array.shape[lookup.axes.index(Axis(False, dim))]
    last = whole - size
    if not last and size > 1:
        return  # a window as long as the dimension starts at 0
    clip = "CLIP" in str(op.params["mode"])
    if index.number is not None:
        at = int(index.number.real)
        if not clip and not 0 <= at <= last:
            op.refuse(f"index {at} is out of range for a dimension of {whole}")
        lookup.slice(dim, min(max(at, 0), last), size)
        return
    along = counts_along(op.trace, index) if size == 1 else None
    if along is not None and index.shape[along] <= whole and along not in lookup.shared.values():
        lookup.slice(dim, 0, index.shape[along])
        lookup.shared[dim] = along
        return
    starts[dim] = clamped(op, index, last) if clip else index


def _vote(op: Equation, x: View, indices: View, dims: list[int]) -> None:
    """Suggest names for the rows of a table: the vocabulary of an embedding."""
    if len(x.dims) == 2 and dims == [0]:
        op.trace.vote(x, ["v", "a"])
        own = ["b", "s"] if len(indices.dims) == 3 else ["s"] if len(indices.dims) == 2 else []
        if own:
            op.trace.vote(indices, [*own, None])


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """A dimension by what it is: of the operand, or of the indices."""

    of_indices: bool
    place: int


def columns(op: Equation, indices: View) -> list[View]:
    """The array of indices along its last dimension, as whose parts it was put together if so."""
    last = len(indices.dims) - 1
    place, parts = op.pieces.get(indices, (None, ()))
    if place == last and all(part.shape[last] == 1 for part in parts):
        return [op.trace.squeeze(part, [last]) for part in parts]
    return [op.trace.index(indices, last, k) for k in range(indices.shape[last])]


def arranged(op: Equation, array: View, axes: list[Axis], wanted: list[Axis]) -> View:
    """An array with dimensions in the order wanted, without others, which are of size 1."""
    gone = [k for k, axis in enumerate(axes) if axis not in wanted]
    array = op.trace.squeeze(array, gone)
    left = [axis for axis in axes if axis in wanted]
    for axis in wanted:
        if axis not in left:
            left.append(axis)
            array = op.trace.unsqueeze(array, len(array.dims))
    return op.trace.transpose(array, [left.index(axis) for axis in wanted])
