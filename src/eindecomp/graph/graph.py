"""`Graph`: a computation as named vertices, and the methods that add them.

A vertex names its inputs, so comparing, hashing and printing a graph walk a flat table and never
recurse, however deep it is. A graph only grows: a vertex may read vertices that are already there,
which makes the table's order a topological one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from eindecomp.above import from_above
from eindecomp.errors import GraphError, naming, suggest
from eindecomp.graph.checks import (
    check_tie,
    expect,
    fill_value,
    gather_op,
    label_map,
    monoid_of,
    read_einsum,
    register,
    reshape_op,
    scatter_op,
    slice_op,
    warn_of_lone_labels,
)
from eindecomp.graph.infer import infer
from eindecomp.graph.ops import Concat, Fill, Input, Op
from eindecomp.graph.vertex import Shape, Vertex
from eindecomp.graph.write import Picture, write_scalar, write_vertex
from eindecomp.lang import dtypes
from eindecomp.lang.dtypes import DType
from eindecomp.lang.einsum import EinSum, Labels, canonical_inputs, make_einsum, parse_spec
from eindecomp.lang.monoid import PROD, SUM, Monoid, declaration
from eindecomp.lang.names import CONSTANTS, MAX_LENGTH, check_name
from eindecomp.lang.scalar import Arg, Expr, Number

Tensor = Vertex | str
"""A vertex of a graph, or its name."""


class Graph:
    """A computation: inputs, run-time scalars, vertices, outputs, and ties from run to run.

    It is equal to another with the same vertices, scalars, outputs and ties, and hashes by them:
    one that serves as a key must not be added to any more.

    Examples:
        >>> g = Graph()
        >>> X, Y = g.input("X", {"i": 100, "j": 200}), g.input("Y", {"j": 200, "k": 50})
        >>> g.output(g.einsum("ij,jk->ik", X, Y, join="(x - y)**2", agg="sum", name="Z"))
        >>> print(g)
        input X[i: 100, j: 200]
        input Y[j: 200, k: 50]
        Z[i,k] <- sum (X[i,j] - Y[j,k])**2
        output Z
    """

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
        scalars: Mapping[str, DType],
        avoid: Container[str] = (),
        ties: Mapping[str, str] | None = None,
    ) -> Graph:
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

    # Reading

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
    def scalars(self) -> Mapping[str, DType]:
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
        if not isinstance(other, Graph):
            return NotImplemented
        mine = (self._vertices, list(self._outputs), self._scalars, self._ties)
        return mine == (other._vertices, list(other._outputs), other._scalars, other._ties)

    def __hash__(self) -> int:
        more = frozenset(self._scalars.items()), frozenset(self._ties.items())
        return hash((frozenset(self._vertices.values()), tuple(self._outputs), more))

    def __str__(self) -> str:
        lines = [write_scalar(name, dtype) for name, dtype in self._scalars.items()]
        lines += [declaration(monoid) for monoid in self._monoids.values()]
        lines += [write_vertex(vertex) for vertex in self._vertices.values()]
        if self._outputs:
            lines.append(f"output {', '.join(self._outputs)}")
        lines += [f"tie {name} <- {result}" for name, result in self._ties.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        outputs = ", ".join(self._outputs)
        return f"<Graph of {len(self)} vertices, outputs: {outputs or 'none'}>"

    def draw(self, path: str | Path | None = None, *, folded: bool = True) -> Picture:
        """A picture of the graph: boxes are vertices, lines lead to what reads them.

        Args:
            path: where to write it too, an `.svg` file, such as `"graph.svg"`.
            folded: `True` to draw repeated layers once.

        Examples:
            >>> import eindecomp as ed
            >>> ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z").draw().title
            '1 vertex, 1 input'
        """
        return from_above("show.graph_pictures").draw_graph(self, path, folded=folded)

    def _repr_html_(self) -> str:
        return from_above("show.notebook").graph_html(self)

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
            for name, labels in zip(vertex.inputs, vertex.op.inputs, strict=True):
                sizes |= self[name].sizes_by(labels)
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
        again = Graph.of(self._vertices.values(), self._outputs, self._scalars, ties=self._ties)
        for name, other in zip(self._vertices, again._vertices, strict=True):
            if name != other:
                raise GraphError(f"vertex {other!r} is listed as {name!r}")

    # Adding

    def input(self, name: str, sizes: Mapping[str, int], dtype: object = "float32") -> Vertex:
        """Add a tensor that the user will give.

        Args:
            name: What it is called, such as `"X"`.
            sizes: The size of each of its labels, such as `{"i": 100, "j": 200}`.
            dtype: The type of its items, such as `"float32"` or `np.int64`.
        """
        sizes = label_map(sizes)
        op = Input(tuple(sizes))
        return self.append(Vertex(name, op, (), tuple(sizes.values()), dtypes.dtype(dtype)))

    def scalar(self, name: str, dtype: object = "float32") -> str:
        """Declare a number that the user will give, for joins to read by the name that it returns.

        Args:
            name: What it is called, such as `"lr"`.
            dtype: Its type, such as `"float64"`.
        """
        check_name(name, "scalar")
        if name in self._scalars or name in self._vertices:
            raise GraphError(f"the name {name!r} is taken")
        self._scalars[name] = dtypes.dtype(dtype)
        return name

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

    def einsum(
        self,
        spec: str,
        *inputs: Tensor,
        join: str | Expr | None = None,
        agg: str | Monoid | None = None,
        name: str | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> Vertex:
        """Add an EinSum.

        Args:
            spec: The labels of inputs and result, such as `"ij,jk->ik"` or `"row col -> row"`.
            *inputs: Vertices or their names, such as `X, "Y"`.
            join: How they are combined, such as `"(x - y)**2"`, where a label stands for its own
                number; by default they are multiplied.
            agg: How labels that the result lacks are aggregated, such as `"max"`; by default
                summed.
            name: What the result is called, such as `"Z"`.
            sizes: Those of output labels that no input has, such as `{"n": 3}`.
        """
        spec = expect(spec, str, "a spec string")
        read = read_einsum(self, spec, self._ranked(*inputs)[0], join, label_map(sizes or {}))
        made = self.add_einsum(*read, agg, name, label_map(sizes or {}))
        warn_of_lone_labels(made.op, self.label_sizes(made), lambda told, _: f"{spec}: {told}")
        return made

    def add_einsum(
        self,
        output: Labels,
        operands: Sequence[tuple[str, Labels]],
        join: Expr,
        agg: str | Monoid | None = None,
        name: str | None = None,
        sizes: Mapping[str, int] | None = None,
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

    def fill(
        self, sizes: Mapping[str, int], value: str | Expr | Number, name: str | None = None
    ) -> Vertex:
        """Add a tensor made from its indices.

        Args:
            sizes: The size of each of its labels, such as `{"s": 8, "t": 8}`.
            value: What stands at each place, such as `"s >= t"` or `0`.
            name: What it is called, such as `"mask"`.
        """
        sizes = label_map(sizes)
        op = Fill(tuple(sizes), fill_value(value, sizes, self._scalars))
        return self.add(op, [], name, sizes)

    def gather(self, spec: str, table: Tensor, index: Tensor, name: str | None = None) -> Vertex:
        """Add a lookup.

        Args:
            spec: The labels of table, index and result, such as `"v a, b s -> b s a"`, where the
                label that the result lacks, `v`, is looked up.
            table: Where to look up, such as `"E"`.
            index: The rows to take, such as `"ids"`.
            name: What the result is called, such as `"X"`.
        """
        names, ranks = self._ranked(table, index)
        return self.add(gather_op(expect(spec, str, "a spec string"), ranks), names, name)

    def scatter_add(
        self, spec: str, source: Tensor, index: Tensor, size: int, name: str | None = None
    ) -> Vertex:
        """Add sums into rows.

        Args:
            spec: The labels of source, index and result, such as `"b s a, b s -> v a"`.
            source: What is summed, such as `"D"`.
            index: The row for each, such as `"ids"`.
            size: The number of rows, such as `100`.
            name: What the result is called, such as `"grad_E"`.
        """
        names, ranks = self._ranked(source, index)
        op = scatter_op(expect(spec, str, "a spec string"), ranks)
        return self.add(op, names, name, label_map({op.row_label: size}))

    def concat(self, labels: str, *inputs: Tensor, along: str, name: str | None = None) -> Vertex:
        """Add tensors one after another.

        Args:
            labels: Those of the result, such as `"ij"`.
            *inputs: Vertices or their names, such as `X, "Y"`.
            along: The label along which they follow each other, such as `"j"`.
            name: What the result is called, such as `"Z"`.
        """
        if not inputs:
            raise GraphError("a concat needs at least one input")
        names, ranks = self._ranked(*inputs)
        _, output = parse_spec(f"{labels}->{labels}", ranks[:1])
        return self.add(Concat(output, along), names, name)

    def slice(
        self,
        labels: str,
        source: Tensor,
        ranges: Mapping[str, tuple[int, int]],
        name: str | None = None,
    ) -> Vertex:
        """Add a part of a tensor.

        Args:
            labels: Those of the tensor, such as `"ij"`.
            source: What it is a part of, such as `"X"`.
            ranges: The first index and the end by label, such as `{"j": (2, 10)}`.
            name: What the result is called, such as `"Z"`.
        """
        names, (rank,) = self._ranked(source)
        return self.add(slice_op(labels, rank, ranges, names[0]), names, name)

    def reshape(
        self,
        spec: str,
        source: Tensor,
        sizes: Mapping[str, int] | None = None,
        name: str | None = None,
    ) -> Vertex:
        """Add a split or merge of labels.

        Args:
            spec: The labels before and after, such as `"b (h d) -> b h d"`.
            source: What is reshaped, such as `"X"`.
            sizes: Those that do not follow from the source, such as `{"h": 8}`.
            name: What the result is called, such as `"Z"`.
        """
        own = self._own(source)
        spec = expect(spec, str, "a spec string")
        op = reshape_op(spec, self[own].shape, label_map(sizes or {}), own)
        return self.add(op, [own], name)

    def add(
        self,
        op: Op,
        inputs: Sequence[str],
        name: str | None = None,
        sizes: Mapping[str, int] | None = None,
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

    def append(self, vertex: Vertex) -> Vertex:
        """Add a finished vertex, after checking it against its inputs.

        Args:
            vertex: One of another graph, such as `other["Z"]`.
        """
        for name in vertex.inputs:
            if name not in self._vertices:
                raise GraphError(f"{vertex} reads {name!r}, which does not come before it")
        if not isinstance(vertex.op, Input):
            with naming(vertex.name):
                made = self._infer(vertex.op, vertex.inputs, vertex.sizes)
            if made != (vertex.shape, vertex.dtype):
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
        self, op: Op, inputs: Sequence[str], sizes: Mapping[str, int] | None
    ) -> tuple[Shape, DType]:
        return infer(op, [self[name] for name in inputs], sizes or {}, self._scalars)

    def numbers(self, label: str, size: int, name: str | None = None) -> Vertex:
        """Add the numbers of a label, 0 to its size: what it stands for as a value in a join.

        Args:
            label: Which label, such as `"t"`.
            size: How many numbers, such as `8`.
            name: What the result is called, such as `"T"`.
        """
        own = f"{label}_" if label in CONSTANTS else label
        return self.add(Fill((own,), Arg(0)), [], name or self.fresh(f"T_{label}"), {own: size})

    def _ranked(self, *inputs: Tensor) -> tuple[list[str], tuple[int, ...]]:
        names = [self._own(tensor) for tensor in inputs]
        return names, tuple(len(self[name].shape) for name in names)

    def _own(self, tensor: Tensor) -> str:
        if isinstance(tensor, str):
            return self[tensor].name
        expect(tensor, Vertex, "a tensor or its name")
        if self._vertices.get(tensor.name) != tensor:
            raise GraphError(f"tensor {tensor.name!r} belongs to another graph")
        return tensor.name
