"""`Trace`: a graph made from operations on arrays without labels, as frameworks record them.

An importer calls a method for every operation that it finds. Arrays are views of vertices
(`draft.py`); an operation aligns them dimension by dimension, and only where dimensions are cut
differently is a vertex reshaped (`join.py`, `arrange.py`). Labels get their names in the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from eindecomp.errors import GraphError
from eindecomp.frontends import arrange
from eindecomp.frontends.draft import Dim, DimFactor, Draft, View, distinct, size_of, transposed
from eindecomp.frontends.formulas import as_formula, cast_number, constant, formula
from eindecomp.frontends.input_names import free_name
from eindecomp.frontends.join import Indexed, joined, joined_type
from eindecomp.frontends.windows import Along
from eindecomp.graph.checks import join_of
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input, Reshape, relabel
from eindecomp.graph.patterns.attention import find_attention
from eindecomp.graph.vertex import Vertex
from eindecomp.lang import dtypes
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.scalar import Arg, Expr, Number, call


class Trace:
    """Adds vertices for operations on arrays, and ends as a graph.

    >>> trace = Trace()
    >>> x, y = trace.input("x", (2, 1), "float32"), trace.input("y", (3,), "float32")
    >>> z = trace.map("x * y", x, trace.cast(y, "float64"))
    >>> z.shape, z.dtype
    ((2, 3), dtype('float64'))
    """

    def __init__(self) -> None:
        self._draft = Draft()
        self.final_names: Mapping[str, str] = {}
        """What the vertices of views are called in the graph, once that is finished."""

    def begin(self, stem: str) -> None:
        """Call the vertices that come next by this name, with numbers."""
        self._draft.stem = stem

    def vote(
        self, array: View, names: Sequence[str | tuple[str, ...] | None], strength: int = 2
    ) -> None:
        """Suggest names for dimensions: 1 is a guess, 2 what an operation knows, 3 a fact.

        A tuple has names for the factors of a dimension that is a product.
        """
        if array.number is not None:
            return
        classes = self._draft.dims(array.vertex)
        for dim, given in zip(array.dims, names, strict=True):
            own = given if isinstance(given, tuple) else (given,)
            for factor, name in zip(dim, own, strict=False):
                if name is not None and len(dim) <= len(own) and factor.axis is not None:
                    self._draft.names.vote(classes[factor.axis], name, strength)

    @property
    def count(self) -> int:
        """How many vertices there are so far."""
        return len(self._draft.graph)

    def since(self, count: int) -> tuple[str, ...]:
        """The vertices added after the first `count`, under their present names."""
        return tuple(islice(self._draft.graph, count, None))

    def finish(self, outputs: Mapping[str, View], keep: Collection[str] = ()) -> Graph:
        """The graph that computes these outputs, with the inputs in `keep` even if unused."""
        draft = self._draft
        renamed: dict[str, str] = {}
        for name, array in outputs.items():
            renamed[_vertex_of(draft, array, renamed)] = name
        names = {name: free_name(name, outputs) for name in draft.graph if name not in renamed}
        self.final_names = names | renamed
        _name_attention(draft)
        labels = draft.names.chosen()
        used = {*renamed, *keep}
        for vertex in reversed([*draft.graph.vertices.values()]):
            if vertex.name in used:
                used.update(vertex.inputs)
        vertices = [
            _readable(draft, vertex, labels, self.final_names)
            for vertex in draft.graph.vertices.values()
            if vertex.name in used
        ]
        return Graph.of(vertices, outputs, draft.graph.scalars)

    # Arrays from nothing

    def input(self, name: str, shape: Sequence[int], dtype: object) -> View:
        """An array that the user gives."""
        sizes = {f"l{axis}": size for axis, size in enumerate(shape)}
        return self._draft.noted(self._draft.graph.input(name, sizes, dtype), [], sizes)

    def number(self, value: Number, dtype: object, shape: Sequence[int] = ()) -> View:
        """One number, repeated to a shape."""
        dims = tuple((DimFactor(size),) if size != 1 else () for size in shape)
        to = dtypes.dtype(dtype)
        return View("", dims, to, cast_number(value, to))

    def constant(self, values: object) -> View | None:
        """An array of known values as a formula of its indices, if a short one is found."""
        return constant(self._draft, np.asarray(values))

    def formula(self, array: View) -> Expr | None:
        """The elements of an array as a formula of its indices, if they depend on nothing else."""
        return as_formula(self._draft, array)

    def iota(self, size: int, dtype: object, start: Number = 0, step: Number = 1) -> View:
        """The numbers from `start` on in steps, as many as `size`."""
        value: Expr = Arg(0)
        value = value if step == 1 else call("mul", value, step)
        value = value if start == 0 else call("add", value, start)
        return self.cast(formula(self._draft, (size,), value), dtype)

    # Element by element, and aggregations

    def map(self, join: str | Expr, *arrays: View, dtype: object = None) -> View:
        """A function of elements; arrays broadcast as in NumPy, the result is cast to `dtype`."""
        rank = max((len(array.dims) for array in arrays), default=0)
        reads = [Indexed(array, tuple(range(rank - len(array.dims), rank))) for array in arrays]
        return self.einsum(reads, range(rank), join, None, dtype)

    def reduce(
        self,
        array: View,
        axes: Sequence[int],
        agg: str | Monoid,
        *,
        join: str | Expr | None = None,
        keep: bool = False,
        dtype: object = None,
    ) -> View:
        """An aggregation over dimensions, which go, or are kept with size 1."""
        rank = len(array.dims)
        gone = {axis % rank for axis in axes}
        kept = [axis for axis in range(rank) if axis not in gone]
        made = self.einsum([Indexed(array, tuple(range(rank)))], kept, join, agg, dtype)
        for axis in sorted(gone) if keep else ():
            made = self.unsqueeze(made, axis)
        return made

    def einsum(
        self,
        reads: Sequence[Indexed],
        output: Sequence[int],
        join: str | Expr | None = None,
        agg: str | Monoid | None = "sum",
        dtype: object = None,
    ) -> View:
        """An EinSum over symbols: equal ones are aligned, those not in `output` are aggregated."""
        expr = join_of(join, len(reads), (), ())
        if dtype is not None and agg is None:
            to = dtypes.dtype(dtype)
            expr = expr if joined_type(reads, expr) == to else call(to.name, expr)
        made = joined(self._draft, reads, output, expr, agg)
        return made if dtype is None else self.cast(made, dtype)

    def cast(self, array: View, dtype: object) -> View:
        """The same values in another type."""
        to = dtypes.dtype(dtype)
        if array.dtype == to:
            return array
        if array.number is not None:
            return replace(array, dtype=to, number=cast_number(array.number, to))
        return self.map(call(to.name, Arg(0)), array)

    # The same elements otherwise

    def transpose(self, array: View, order: Sequence[int]) -> View:
        """The array with its dimensions in another order."""
        return transposed(array, order)

    def unsqueeze(self, array: View, place: int) -> View:
        """The array with one more dimension, of size 1."""
        return replace(array, dims=(*array.dims[:place], (), *array.dims[place:]))

    def squeeze(self, array: View, places: Sequence[int]) -> View:
        """The array without these dimensions of size 1."""
        for place in sorted(places, reverse=True):
            array = arrange.without_axis(self._draft, array, place)
            array = replace(array, dims=(*array.dims[:place], *array.dims[place + 1 :]))
        return array

    def expand(self, array: View, shape: Sequence[int]) -> View:
        """The array repeated up to a shape, along dimensions of size 1 and new ones in front."""
        lacking = len(shape) - len(array.dims)
        for own, size in enumerate(shape, -lacking):
            if own >= 0 and size != 1 and size_of(array.dims[own]) == 1:
                array = arrange.without_axis(self._draft, array, own)
        dims: list[Dim] = []
        for dim, size in zip(((),) * lacking + array.dims, shape, strict=True):
            if size_of(dim) not in (1, size):
                raise GraphError(
                    f"an array of shape {array.shape} does not expand to {tuple(shape)}"
                )
            dims.append(dim if size_of(dim) == size else (DimFactor(size),))
        return replace(array, dims=tuple(dims))

    def reshape(self, array: View, shape: Sequence[int]) -> View:
        """The same elements in the same order in another shape."""
        return arrange.reshaped(self._draft, array, shape)

    # Elements moved

    def slice(self, array: View, place: int, start: int, stop: int, step: int = 1) -> View:
        """The elements from `start` to `stop` along a dimension; a step may be negative."""
        if step == 1:
            return arrange.sliced(self._draft, array, place, start, max(start, stop))
        count = len(range(start, stop, step))
        return self.seen(array, {place: Along((count,), (step,), start)})

    def seen(self, array: View, by: Mapping[int, Along]) -> View:
        """The array with some dimensions read at computed places, in whose stead others come."""
        return arrange.seen(self._draft, array, by)

    def index(self, array: View, place: int, index: int) -> View:
        """The elements at one index along a dimension, which goes."""
        return self.squeeze(arrange.sliced(self._draft, array, place, index, index + 1), [place])

    def concat(self, arrays: Sequence[View], place: int) -> View:
        """Arrays one after another along a dimension."""
        return arrange.concatenated(self._draft, arrays, place)

    def take(self, table: View, place: int, index: View, shared: arrange.Pairs = ()) -> View:
        """The elements at indices along a dimension, which those of the index replace.

        `shared` are pairs of a dimension of the table and one of the index that are the same.
        """
        return arrange.gathered(self._draft, table, place, index, shared)

    def added_at(self, rows: View, index: View, size: int, kept: Sequence[int]) -> View:
        """Rows summed into zeros at indices along a new first dimension of `size`.

        Rows have the dimensions of the index first; those in `kept` stay.
        """
        return arrange.added_at(self._draft, rows, index, size, kept)


def _vertex_of(draft: Draft, array: View, taken: Collection[str]) -> str:
    """A vertex of an output's shape that is not an input, nor another output."""
    array = arrange.settled(draft, array)
    vertex = draft.graph[array.vertex]
    if array.vertex not in taken and not isinstance(vertex.op, Input):
        return array.vertex
    own = tuple(f"o{k}" for k in range(len(vertex.shape)))
    return draft.einsum(own, [(vertex.name, own)], Arg(0), None).vertex


def _readable(draft: Draft, vertex: Vertex, labels: list[str], names: Mapping[str, str]) -> Vertex:
    """A vertex under its final name, labels and inputs."""
    local = draft.local[vertex.name]
    if isinstance(vertex.op, Reshape):  # whose output's labels are made of these
        own = [label for label, _ in vertex.op.sizes]
    else:
        own = [*dict.fromkeys((*vertex.op.output, *local))]
    chosen = distinct(labels[local[label]] for label in own)
    op = relabel(vertex.op, dict(zip(own, chosen, strict=True)).__getitem__)
    inputs = tuple(names[name] for name in vertex.inputs)
    return replace(vertex, name=names[vertex.name], op=op, inputs=inputs)


def _name_attention(draft: Draft) -> None:
    """Suggest names for the dimensions of every attention of a graph."""
    for pattern in find_attention(draft.graph):
        part = pattern.parts[0]
        names = dict.fromkeys(pattern.queries, ("s", 2)) | {part.key: ("t", 2)}
        names |= dict.fromkeys((*pattern.inner, *pattern.values), ("d", 2))
        names |= dict.fromkeys(pattern.batch, ("h", 1)) | dict.fromkeys(pattern.groups, ("g", 1))
        for read in (pattern.q, part.k, part.v):
            classes = dict(zip(read.labels, draft.dims(read.name), strict=True))
            for label, (name, strength) in names.items():
                if label in classes:
                    draft.names.vote(classes[label], name, strength)
