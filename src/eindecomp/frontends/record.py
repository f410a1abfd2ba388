"""`Record`: the graph that grows while a model is imported, and what is known of its dimensions."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from eindecomp.frontends.label_names import LabelNames
from eindecomp.frontends.views import Factor, View
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Reshape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.ops import Op
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.monoid import Monoid
    from eindecomp.lang.scalar import Expr

    Operand = tuple[str, tuple[str, ...]]


class Record:
    """Vertices under makeshift labels, with the class of every dimension."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.names = LabelNames()
        self.stem = "T"
        """What the vertices that come next are called."""
        self.local: dict[str, dict[str, int]] = {}
        """Of every vertex the class of each label."""
        self.final: Mapping[str, str] = {}
        """What every vertex is called in the graph that is handed out."""

    def dims(self, name: str) -> tuple[int, ...]:
        """The classes of a vertex's dimensions."""
        local = self.local[name]
        return tuple(local[label] for label in self.graph[name].labels)

    def input(self, name: str, shape: Sequence[int], dtype: object) -> View:
        """An array that the user gives."""
        sizes = {f"l{axis}": size for axis, size in enumerate(shape)}
        return self._noted(self.graph.input(name, sizes, dtype), {}, sizes)

    def fill(self, shape: Sequence[int], value: Expr) -> View:
        """An array made from its indices."""
        sizes = {f"l{axis}": size for axis, size in enumerate(shape)}
        return self.add(Fill(tuple(sizes), value), [], {}, sizes)

    def add(
        self,
        op: Op,
        inputs: Sequence[str],
        known: Mapping[str, int],
        sizes: Mapping[str, int] | None = None,
    ) -> View:
        """A vertex of any kind; `known` are the classes of labels that come from its inputs."""
        made = self.graph.add(op, inputs, self.graph.fresh(self.stem), sizes)
        return self._noted(made, known, sizes or {})

    def einsum(
        self,
        output: tuple[str, ...],
        operands: Sequence[Operand],
        join: Expr,
        agg: str | Monoid | None,
        sizes: Mapping[str, int] | None = None,
    ) -> View:
        """A vertex that is an EinSum; dimensions under one label are of one class from now on."""
        made = self.graph.add_einsum(
            output, operands, join, agg, self.graph.fresh(self.stem), sizes
        )
        known: dict[str, int] = {}
        for name, labels in operands:
            for label, dim in zip(labels, self.dims(name), strict=True):
                known[label] = self.names.same(known[label], dim) if label in known else dim
        return self._noted(made, known, sizes or {})

    def _noted(self, vertex: Vertex, known: Mapping[str, int], sizes: Mapping[str, int]) -> View:
        local = dict(known)
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

    def vote(
        self, array: View, names: Sequence[str | tuple[str, ...] | None], strength: int = 2
    ) -> None:
        """Suggest names for the dimensions of an array, or for the factors of one."""
        if array.number is not None:
            return
        classes = self.dims(array.vertex)
        for dim, given in zip(array.dims, names, strict=True):
            own = given if isinstance(given, tuple) else (given,)
            for factor, name in zip(dim, own, strict=False):
                if name is not None and len(dim) <= len(own) and factor.axis is not None:
                    self.names.vote(classes[factor.axis], name, strength)


def whole(vertex: Vertex) -> View:
    """A vertex as it lies."""
    dims = tuple((Factor(size, axis),) for axis, size in enumerate(vertex.shape))
    return View(vertex.name, dims, vertex.dtype)
