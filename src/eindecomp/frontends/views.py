"""Arrays without labels: views of a vertex, as frameworks have them.

A dimension of an array is a product of *factors*, outermost first. A factor is an axis of the
vertex or, where it has no axis, a repetition. So transposing, adding and dropping dimensions of
size 1, expanding, merging dimensions, and splitting what is repeated take no vertex.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from eindecomp.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.scalar import Number


@dataclass(frozen=True, slots=True)
class Factor:
    """An axis of a vertex, or without one a repetition."""

    size: int
    axis: int | None = None


Dim = tuple[Factor, ...]


def size_of(dim: Dim) -> int:
    """The size of a dimension.

    >>> size_of((Factor(2, 0), Factor(3)))
    6
    """
    return prod(factor.size for factor in dim)


def has_axis(dim: Dim) -> bool:
    """Whether a dimension is more than repetitions."""
    return any(factor.axis is not None for factor in dim)


@dataclass(frozen=True, slots=True)
class View:
    """An array: a vertex seen with dimensions of its own, or one number repeated."""

    vertex: str
    dims: tuple[Dim, ...]
    dtype: DType
    number: Number | None = None
    """The value of all elements, where there is no vertex."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of every dimension."""
        return tuple(map(size_of, self.dims))

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the vertex in the order in which the dimensions show them."""
        return tuple(f.axis for dim in self.dims for f in dim if f.axis is not None)

    @property
    def is_whole(self) -> bool:
        """Whether it is the vertex as it lies: every dimension is one axis, in order."""
        return self.number is None and [*self.dims] == [
            (Factor(size, axis),) for axis, size in enumerate(self.shape)
        ]


def transposed(array: View, order: Sequence[int]) -> View:
    """The same with its dimensions in another order."""
    return replace(array, dims=tuple(array.dims[k] for k in order))


def with_ones(array: View, places: Sequence[int]) -> View:
    """The same with dimensions of size 1 at these places of the result."""
    dims = [*array.dims]
    for place in sorted(places):
        dims.insert(place, ())
    return replace(array, dims=tuple(dims))


def expanded(array: View, shape: Sequence[int]) -> View:
    """The same with dimensions of size 1, and new ones in front, repeated up to a shape."""
    lacking = len(shape) - len(array.dims)
    dims: list[Dim] = []
    for dim, size in zip(((),) * lacking + array.dims, shape, strict=True):
        if size_of(dim) == size:
            dims.append(dim)
        elif size_of(dim) == 1 and not has_axis(dim):
            dims.append((Factor(size),))
        else:
            raise GraphError(f"an array of shape {array.shape} does not expand to {tuple(shape)}")
    return replace(array, dims=tuple(dims))


def common_factors(dims: Sequence[Dim]) -> tuple[int, ...] | None:
    """The sizes into which dimensions of one size can all be cut; None if their cuts do not nest.

    >>> common_factors([(Factor(32, 0),), (Factor(8, 0), Factor(4))])
    (8, 4)
    """
    ends: set[int] = set()
    for dim in dims:
        inner = 1
        for factor in reversed(dim):
            inner *= factor.size
            ends.add(inner)
    ordered = sorted(ends - {1})
    found: list[int] = []
    below = 1
    for end in ordered:
        if end % below:
            return None
        found.append(end // below)
        below = end
    return tuple(reversed(found))
