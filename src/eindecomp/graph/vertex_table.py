"""`VertexTable`: the vertices of a graph by name, each after its inputs.

A vertex names its inputs, so comparing, hashing and printing a graph walk a flat table and never
recurse, however deep it is. A table only grows: a vertex may read vertices that are already there,
which makes the table's order a topological one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Self

from eindecomp.errors import GraphError, naming, suggest
from eindecomp.graph.checks import check_tie, expect, monoid_of, register
from eindecomp.graph.infer import infer
from eindecomp.graph.ops import Fill, Input, Op, Window
from eindecomp.graph.vertex import Shape, Vertex, reading_through
from eindecomp.lang import dtypes
from eindecomp.lang.dtypes import DType, ScalarTypes
from eindecomp.lang.einsum import EinSum, Labels, Operand, Sizes, canonical_inputs, make_einsum
from eindecomp.lang.monoid import PROD, SUM, Monoid
from eindecomp.lang.names import CONSTANTS, MAX_LENGTH
from eindecomp.lang.scalar import Arg, Expr

Tensor = Vertex | str
"""A vertex of a graph, or its name."""


class VertexTable:
    """The vertices of a graph, its run-time scalars and outputs, and ties from run to run."""

    __slots__ = ("_avoid", "_counts", "_monoids", "_outputs", "_scalars", "_ties", "_vertices")

    def __init__(self) -> None:
        self._vertices: dict[str, Vertex] = {}
        self._scalars: dict[str, DType] = {}
        self._monoids: dict[str, Monoid] = {}
        self._outputs: dict[str, None] = {}
        self._ties: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._avoid: Container[str] = ()

    @classmethod
    def of(
        cls,
        vertices: Iterable[Vertex],
        outputs: Iterable[str],
        scalars: ScalarTypes,
        avoid: Container[str] = (),
        ties: Mapping[str, str] | None = None,
    ) -> Self:
        """Build a graph from finished vertices, in topological order.

        Args:
            vertices: Those of another graph, such as `other.vertices.values()`.
            outputs: The names of its outputs, such as `["Z"]`.
            scalars: The run-time scalars and their types, such as `other.scalars`.
            avoid: Names that `fresh` must not make up, for vertices still to come, such as
                `{"T_1"}`.
            ties: The results that inputs are tied to, such as `{"W": "new_W"}`.
        """
        graph = cls()
        graph._avoid = avoid
        graph._scalars.update(scalars)
        for vertex in vertices:
            graph.append(vertex)
        graph.end(outputs, ties or {})
        return graph

    @property
    def vertices(self) -> Mapping[str, Vertex]:
        """All vertices by name, each after its inputs."""
        return self._vertices

    @property
    def inputs(self) -> tuple[Vertex, ...]:
        """The vertices whose arrays the user gives."""
        return tuple(v for v in self._vertices.values() if isinstance(v.op, Input))

    @property
    def outputs(self) -> tuple[Vertex, ...]:
        """The vertices whose arrays the user gets."""
        return tuple(map(self._vertices.__getitem__, self._outputs))

    @property
    def ties(self) -> Mapping[str, str]:
        """The inputs that are what the last run left of a result, each with that result."""
        return self._ties

    @property
    def scalars(self) -> ScalarTypes:
        """The run-time scalars and their types."""
        return self._scalars

    @property
    def monoids(self) -> Mapping[str, Monoid]:
        """The user's own aggregations that vertices use, by name."""
        return self._monoids

    def __getitem__(self, name: str) -> Vertex:
        if name not in self._vertices:
            raise GraphError(f"the graph has no tensor {name!r}{suggest(name, self._vertices)}")
        return self._vertices[name]

    def __contains__(self, tensor: object) -> bool:
        if isinstance(tensor, Vertex):
            return self._vertices.get(tensor.name) == tensor
        return tensor in self._vertices

    def __iter__(self) -> Iterator[str]:
        """The names of all vertices, each after those of its inputs."""
        return iter(self._vertices)

    def __len__(self) -> int:
        return len(self._vertices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VertexTable):
            return NotImplemented
        mine = (self._vertices, list(self._outputs), self._scalars, self._ties)
        return mine == (other._vertices, list(other._outputs), other._scalars, other._ties)

    def __hash__(self) -> int:
        more = frozenset(self._scalars.items()), frozenset(self._ties.items())
        return hash((frozenset(self._vertices.values()), tuple(self._outputs), more))

    def users(self) -> dict[str, list[str]]:
        """For every vertex the vertices that read it, each once, in topological order."""
        readers: dict[str, list[str]] = {name: [] for name in self._vertices}
        for vertex in self._vertices.values():
            for name in dict.fromkeys(vertex.inputs):
                readers[name].append(vertex.name)
        return readers

    def reads(self) -> dict[str, int]:
        """How often every vertex is read; one vertex may read it under several lists of labels."""
        counts = Counter(name for vertex in self._vertices.values() for name in vertex.inputs)
        return {name: counts[name] for name in self._vertices}

    def label_sizes(self, vertex: Vertex) -> dict[str, int]:
        """The sizes of all labels of a vertex, those that it aggregates among them.

        Args:
            vertex: One of this graph, such as `graph["Z"]`.
        """
        sizes = vertex.sizes
        if isinstance(vertex.op, EinSum):
            windows = vertex.windows or (None,) * len(vertex.inputs)
            for name, labels, own in zip(vertex.inputs, vertex.op.inputs, windows, strict=True):
                sizes |= self[name].sizes_by(labels) if own is None else own.by_label
        return sizes

    def fresh(self, stem: str) -> str:
        """A name that no tensor or scalar has yet: the stem, or it with a number.

        Args:
            stem: How it begins, such as `"T"`.
        """
        name = stem = stem[: MAX_LENGTH - 12]
        while name in self._vertices or name in self._scalars or name in self._avoid:
            self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{self._counts[stem]}"
        return name

    def verify(self) -> None:
        """Check the whole graph again: names, order, shapes, types, outputs."""
        again = self.of(self._vertices.values(), self._outputs, self._scalars, ties=self._ties)
        for name, other in zip(self._vertices, again._vertices, strict=True):
            if name != other:
                raise GraphError(f"vertex {other!r} is listed as {name!r}")

    def output(self, *tensors: Tensor) -> None:
        """Mark tensors as outputs.

        Args:
            *tensors: Vertices or their names, such as `"Z"`.
        """
        for tensor in tensors:
            name = self._own(tensor)
            if name in self._outputs:
                raise GraphError(f"{name!r} is an output already")
            self._outputs[name] = None

    def tie(self, tensor: Tensor, result: Tensor) -> None:
        """Say that an input is what the last run left of an output, as weights are in training.

        Both then lie in the same place, so that nothing moves between two runs.

        Args:
            tensor: The input, such as `"W"`.
            result: The output that becomes it, such as `"new_W"`.
        """
        name, of = (
            self._own(t) if isinstance(t, Vertex) else expect(t, str, "a tensor or its name")
            for t in (tensor, result)
        )
        check_tie(self._vertices, self._outputs, self._ties, name, of)
        self._ties[name] = of

    def end(self, outputs: Iterable[str], ties: Mapping[str, str]) -> None:
        """Mark outputs and tie inputs, as those of another graph that this one is made of.

        Args:
            outputs: The names of the outputs, such as `["new_W"]`.
            ties: The results that inputs are tied to, such as `{"W": "new_W"}`.
        """
        self.output(*outputs)
        for name, result in ties.items():
            self.tie(name, result)

    def add_einsum(
        self,
        output: Labels,
        operands: Sequence[Operand],
        join: Expr,
        agg: str | Monoid | None = None,
        name: str | None = None,
        sizes: Sizes | None = None,
    ) -> Vertex:
        """Add an EinSum of parsed parts.

        Args:
            output: The labels of the result, such as `("i",)`.
            operands: Names with labels, which `join` reads, such as `[("X", ("i", "j"))]`.
            join: How they are combined, such as `Arg(0)`.
            agg: How labels that the result lacks are aggregated, such as `"max"`; by default
                summed.
            name: What the result is called, such as `"Z"`.
            sizes: Those of output labels that no input has, such as `{"n": 3}`.
        """
        with naming(name):
            join, operands = canonical_inputs(join, operands)
            labels = tuple(labels for _, labels in operands)
            names = [operand for operand, _ in operands]
            monoid = monoid_of(agg, self._monoids)
            if {label for part in labels for label in part} <= set(output) and monoid.is_plain:
                op = make_einsum(labels, output, join, None)
                # Even with nothing to aggregate, a sum that is asked for counts truth values.
                counts = agg is not None and monoid in (SUM, PROD)
                if not counts or self._infer(op, names, sizes)[1] != dtypes.BOOL:
                    monoid = None
            return self.add(make_einsum(labels, output, join, monoid), names, name, sizes)

    def add(
        self, op: Op, inputs: Sequence[str], name: str | None = None, sizes: Sizes | None = None
    ) -> Vertex:
        """Add a vertex of any kind, finding its shape and type.

        Args:
            op: What makes it, such as an `ed.EinSum`.
            inputs: The names of what it reads, such as `["X"]`.
            name: What it is called, such as `"Z"`; by default a fresh name.
            sizes: Those of labels that no input has, such as `{"n": 3}`.
        """
        with naming(name):
            shape, dtype = self._infer(op, inputs, sizes)
            name = self.fresh("T") if name is None else name
            return self._store(Vertex(name, op, tuple(inputs), shape, dtype))

    def read_through(self, reader: Vertex, windows: Collection[str]) -> Vertex:
        """Let the vertex that was added last read what windows read that nothing else does.

        Args:
            reader: That vertex, such as `graph["Z"]`.
            windows: The names of vertices of its own, such as `["Z_1"]`.
        """
        own = {name: self[name] for name in windows if isinstance(self[name].op, Window)}
        if own:
            del self._vertices[reader.name]
            reader = reading_through(reader, own)
            for name in {*own} - {*reader.inputs}:
                del self._vertices[name]
            self._store(reader)
        return reader

    def numbers(self, label: str, size: int, name: str | None = None) -> Vertex:
        """Add the numbers of a label, 0 to its size: what it stands for as a value in a join.

        Args:
            label: Which label, such as `"t"`.
            size: How many numbers, such as `8`.
            name: What the result is called, such as `"T"`.
        """
        own = f"{label}_" if label in CONSTANTS else label
        return self.add(Fill((own,), Arg(0)), [], name or self.fresh(f"T_{label}"), {own: size})

    def append(self, vertex: Vertex) -> Vertex:
        """Add a finished vertex, after checking it against its inputs.

        It may have the type in which its values accumulate, or partial results of it travel.

        Args:
            vertex: One of another graph, such as `other["Z"]`.
        """
        for name in vertex.inputs:
            if name not in self._vertices:
                raise GraphError(f"{vertex} reads {name!r}, which does not come before it")
        if not isinstance(vertex.op, Input):
            with naming(vertex.name):
                made = self._infer(vertex.op, vertex.inputs, vertex.sizes, vertex.windows)
            shape, dtype = made
            fits = dtypes.widen(vertex.dtype) == dtypes.widen(dtype)
            if vertex.shape != shape or not (fits or vertex.dtype == vertex.reduce_dtype):
                raise GraphError(
                    f"{vertex} has shape {vertex.shape} and dtype {vertex.dtype}, but its inputs "
                    f"make it {made[0]} and {made[1]}"
                )
        return self._store(vertex)

    def _store(self, vertex: Vertex) -> Vertex:
        if vertex.name in self._vertices or vertex.name in self._scalars:
            what = "by another statement or by a vertex of a macro"
            raise GraphError(f"the name {vertex.name!r} is taken, {what}")
        if isinstance(vertex.op, EinSum) and vertex.op.agg is not None:
            register(vertex.op.agg, self._monoids)
        self._vertices[vertex.name] = vertex
        return vertex

    def _infer(
        self,
        op: Op,
        inputs: Sequence[str],
        sizes: Sizes | None,
        windows: Sequence[Window | None] = (),
    ) -> tuple[Shape, DType]:
        return infer(op, [self[name] for name in inputs], sizes or {}, self._scalars, windows)

    def _own(self, tensor: Tensor) -> str:
        if isinstance(tensor, str):
            return self[tensor].name
        expect(tensor, Vertex, "a tensor or its name")
        if self._vertices.get(tensor.name) != tensor:
            raise GraphError(f"tensor {tensor.name!r} belongs to another graph")
        return tensor.name
