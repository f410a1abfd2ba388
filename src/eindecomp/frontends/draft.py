"""Arrays as views of a vertex, and `Draft`: the graph that grows while a model is imported.

Arrays of frameworks have no labels. A dimension of one is a product of *factors*, outermost first.
A factor is an axis of the vertex or, where it has no axis, a repetition. So transposing, adding and
dropping dimensions of size 1, expanding, merging dimensions, and splitting what is repeated take no
vertex. The draft knows which dimensions operations align, and names them in the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import prod
from operator import mul

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Op, Reshape
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import DType
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.scalar import Expr, Number

Operand = tuple[str, Sequence[str | None]]
"""A vertex, and a label for each of its dimensions; None for one that is not in the result."""
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DimFactor:
    """An axis of a vertex, or without one a repetition."""

    size: int
    axis: int | None = None


Dim = tuple[DimFactor, ...]


def size_of(dim: Dim) -> int:
    """The size of a dimension.

    >>> size_of((DimFactor(2, 0), DimFactor(3)))
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


def with_dim(array: View, place: int, dim: Dim) -> View:
    """The array with another dimension at a place."""
    return replace(array, dims=(*array.dims[:place], dim, *array.dims[place + 1 :]))


def transposed(array: View, order: Sequence[int]) -> View:
    """The array with its dimensions in another order."""
    return replace(array, dims=tuple(array.dims[k] for k in order))


def common_factors(dims: Sequence[Dim]) -> tuple[int, ...] | None:
    """The sizes into which dimensions of one size can all be cut; None if their cuts do not nest.

    >>> common_factors([(DimFactor(32, 0),), (DimFactor(8, 0), DimFactor(4))])
    (8, 4)
    """
    ends = {end for dim in dims for end in accumulate((f.size for f in reversed(dim)), mul)}
    steps = [*pairwise([1, *sorted(ends - {1})])]
    if any(end % below for below, end in steps):
        return None
    return tuple(end // below for below, end in reversed(steps))


class Draft:
    """Vertices under makeshift labels, with the class of every dimension."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.names = LabelNames()
        self.stem = "T"
        """What the vertices that come next are called."""
        self.local: dict[str, dict[str, int]] = {}
        """For each vertex, the class of each of its labels."""

    def dims(self, name: str) -> tuple[int, ...]:
        """The classes of a vertex's dimensions."""
        local = self.local[name]
        return tuple(local[label] for label in self.graph[name].labels)

    def fill(self, shape: Sequence[int], value: Expr) -> View:
        """An array made from its indices."""
        sizes = {f"l{axis}": size for axis, size in enumerate(shape)}
        return self.add(Fill(tuple(sizes), value), [], sizes)

    def add(self, op: Op, operands: Sequence[Operand], sizes: Sizes | None = None) -> View:
        """A vertex of any kind; dimensions under one label are of one class from now on."""
        names = [name for name, _ in operands]
        made = self.graph.add(op, names, self.graph.fresh(self.stem), sizes)
        return self.noted(made, operands, sizes or {})

    def einsum(
        self,
        output: tuple[str, ...],
        reads: Sequence[tuple[str, tuple[str, ...]]],
        join: Expr,
        agg: str | Monoid | None,
        sizes: Sizes | None = None,
    ) -> View:
        """A vertex that is an EinSum; dimensions under one label are of one class from now on."""
        made = self.graph.add_einsum(output, reads, join, agg, self.graph.fresh(self.stem), sizes)
        return self.noted(made, reads, sizes or {})

    def noted(self, vertex: Vertex, operands: Sequence[Operand], sizes: Sizes) -> View:
        """A vertex that was added, with the classes of its dimensions."""
        local: dict[str, int] = {}
        for name, labels in operands:
            for label, dim in zip(labels, self.dims(name), strict=True):
                if label is not None:
                    local[label] = self.names.same(local[label], dim) if label in local else dim
        for label, size in {**sizes, **vertex.sizes}.items():
            if label not in local:
                local[label] = self.names.new(size)
        if isinstance(vertex.op, Reshape):
            self._note_products(vertex.op, local)
        self.local[vertex.name] = local
        return whole(vertex)

    def _note_products(self, op: Reshape, local: dict[str, int]) -> None:
        """Name what a reshape merges after its factors, if nothing else does."""
        sizes = dict(op.sizes)
        for label, group in zip(op.output, op.groups, strict=True):
            if len(group) > 1:
                local[label] = self.names.new(prod(sizes[part] for part in group))
                self.names.split(local[label], [local[part] for part in group])


def whole(vertex: Vertex) -> View:
    """A vertex as it lies."""
    dims = tuple((DimFactor(size, axis),) for axis, size in enumerate(vertex.shape))
    return View(vertex.name, dims, vertex.dtype)


_SECOND = {"s": "t", "t": "u", "i": "j", "j": "k", "k": "l"}
_UNKNOWN = "n"


class LabelNames:
    """Readable labels: what the dimensions of an imported graph are called, from how they are used.

    Dimensions that operations align are one *class*. Operations vote for names: an embedding knows
    which dimension is the vocabulary, an attention which are the heads. A class takes the name with
    the strongest vote; where two dimensions of one vertex would be called alike, as queries and
    keys of one sequence, the second takes the next name.
    """

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._sizes: list[int] = []
        self._votes: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        self._splits: dict[int, tuple[int, ...]] = {}
        self._count = 0

    def new(self, size: int) -> int:
        """A new dimension, about which nothing is known yet."""
        self._parent.append(len(self._parent))
        self._sizes.append(size)
        return len(self._parent) - 1

    def same(self, first: int, second: int) -> int:
        """Note that two dimensions are aligned."""
        first, second = self._root(first), self._root(second)
        if first != second:
            first, second = min(first, second), max(first, second)
            self._parent[second] = first
            self._votes[first] += self._votes.pop(second, [])
        return first

    def vote(self, dim: int, name: str, strength: int) -> None:
        """Suggest a name for a dimension; the strongest wins, of equal ones the first."""
        self._count += 1
        self._votes[self._root(dim)].append((-strength, self._count, name))

    def split(self, dim: int, parts: Sequence[int]) -> None:
        """Note that a dimension is the product of others, after which it is called if need be."""
        self._splits.setdefault(dim, tuple(parts))

    def _root(self, dim: int) -> int:
        while self._parent[dim] != dim:
            self._parent[dim] = self._parent[self._parent[dim]]
            dim = self._parent[dim]
        return dim

    def chosen(self) -> list[str]:
        """The name of every dimension; equal names have equal sizes.

        A product that nothing else names is named after its factors, hence after those.
        """
        names: dict[int, str] = {}
        products: dict[int, tuple[int, ...]] = {}
        for dim, parts in self._splits.items():
            root = self._root(dim)
            if not self._votes[root] or min(self._votes[root])[0] > -2:
                products.setdefault(root, parts)
        taken: dict[str, dict[int, str]] = defaultdict(dict)

        def name_of(root: int) -> str:
            if root in names:
                return names[root]
            names[root] = min(self._votes[root])[2] if self._votes[root] else _UNKNOWN
            parts = products.get(root)
            stem = "_".join(name_of(self._root(part)) for part in parts) if parts else names[root]
            by_size, size = taken[stem], self._sizes[root]
            if size not in by_size:
                by_size[size] = stem if not by_size else f"{stem}{len(by_size) + 1}"
            names[root] = by_size[size]
            return names[root]

        roots = {self._root(dim) for dim in range(len(self._parent))}
        for root in sorted(roots, key=lambda root: (root in products, root)):
            name_of(root)
        return [names[self._root(dim)] for dim in range(len(self._parent))]


def distinct(names: Iterable[str]) -> list[str]:
    """The names, changed where an earlier one is the same.

    >>> distinct(["b", "s", "s", "s"])
    ['b', 's', 't', 'u']
    """
    taken: list[str] = []
    for name in names:
        stem, count = name, 1
        while name in taken:
            count += 1
            name = _SECOND.get(name) or f"{stem}_{count}"
        taken.append(name)
    return taken
