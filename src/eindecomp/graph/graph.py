"""`Graph`: a computation as named vertices, and the methods that add them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from eindecomp.above import from_above
from eindecomp.errors import GraphError
from eindecomp.graph.checks import (
    expect,
    fill_value,
    gather_op,
    join_of,
    label_map,
    reshape_op,
    scatter_op,
    slice_op,
    warn_of_lone_labels,
)
from eindecomp.graph.ops import Concat, Fill, Input, sliced
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.vertex_table import Tensor, VertexTable
from eindecomp.graph.write import Picture, write_scalar, write_vertex
from eindecomp.lang import dtypes
from eindecomp.lang.einsum import Labels, Operands, is_ellipsis_label, parse_spec
from eindecomp.lang.monoid import Monoid, declaration
from eindecomp.lang.names import IDENTIFIER, check_name
from eindecomp.lang.scalar import Arg, Expr, Number, replace_args, used_args


class Graph(VertexTable):
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

    __slots__ = ()

    def __str__(self) -> str:
        lines = [write_scalar(name, dtype) for name, dtype in self._scalars.items()]
        lines += [declaration(monoid) for monoid in self._monoids.values()]
        lines += [write_vertex(each, self._vertices) for each in self._vertices.values()]
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
        read = _read_einsum(self, spec, self._ranked(*inputs)[0], join, label_map(sizes or {}))
        made = self.add_einsum(*read, agg, name, label_map(sizes or {}))
        warn_of_lone_labels(made.op, self.label_sizes(made), lambda told, _: f"{spec}: {told}")
        return made

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
        own = self._own(source)
        return self.add(slice_op(labels, self[own].shape, ranges, own), [own], name)

    def window(
        self,
        spec: str,
        source: Tensor,
        sizes: Mapping[str, int] | None = None,
        name: str | None = None,
    ) -> Vertex:
        """Add elements of a tensor at computed places, which `ed.plan` never stores.

        Args:
            spec: An index for each dimension, such as `"b, 2*w + r - 1 else 0"`.
            source: What is read, such as `"X"`.
            sizes: Those of labels that the tensor does not tell, such as `{"w": 5, "r": 3}`.
            name: What the result is called, such as `"Z"`.

        Examples:
            >>> g = Graph()
            >>> X, K = g.input("X", {"b": 2, "x": 10}), g.input("K", {"r": 3})
            >>> W = g.window("b, 2*w + r - 1 else 0", X, {"w": 5, "r": 3}, name="W")
            >>> g.einsum("b w r, r -> b w", W, K, name="Z")
            <Vertex Z[b: 2, w: 5] float32: EinSum of W, K>
        """
        sizes, name = label_map(sizes or {}), self.fresh("T") if name is None else name
        words = dict.fromkeys(IDENTIFIER.findall(expect(spec, str, "indices")))
        labels = [word for word in words if word not in ("else", "clamp", "wrap", "inf")]
        told = (f"{label}: {sizes[label]}" if label in sizes else label for label in labels)
        text = f"{name}[{', '.join(told)}] <- {self._own(source)}[{spec}]"
        return from_above("graph.text.elaborate").extend(self, text, "window")[name]

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

    def _ranked(self, *inputs: Tensor) -> tuple[list[str], tuple[int, ...]]:
        names = [self._own(tensor) for tensor in inputs]
        return names, tuple(len(self[name].shape) for name in names)


def _read_einsum(
    graph: Graph, spec: str, names: Sequence[str], join: object, given: Mapping[str, int]
) -> tuple[Labels, Operands, Expr]:
    """The output labels, operands and join of an EinSum, adding the tensors that those need."""
    ranks = tuple(len(graph[name].shape) for name in names)
    labels, output = parse_spec(spec, ranks)
    operands = _broadcast(graph, list(zip(names, labels, strict=True)))
    every = list(dict.fromkeys([*output, *(label for _, own in operands for label in own)]))
    function = join_of(join, len(names), every, graph.scalars)
    known: dict[str, int] = {}
    for tensor, own in operands:
        known |= graph[tensor].sizes_by(own)
    for label, size in given.items():
        if label not in output or known.get(label, size) != size:
            raise GraphError(f"size {size} of label {label!r} does not fit {spec!r}")
    if max(used_args(function), default=0) >= len(operands):
        function = _with_numbers(graph, function, operands, every, {**known, **given})
    return output, operands, function


def _broadcast(graph: Graph, operands: Operands) -> Operands:
    """Drop dimensions of size 1 that an ellipsis stretches over those of other tensors."""
    sizes: dict[str, int] = {}
    for name, labels in operands:
        for label, size in graph[name].sizes_by(labels).items():
            sizes[label] = max(size, sizes.get(label, 1)) if size != 1 else sizes.get(label, 1)
    stretched_operands: Operands = []
    for name, labels in operands:
        sides = zip(labels, graph[name].shape, strict=True)
        stretched = [is_ellipsis_label(la) and n == 1 != sizes[la] for la, n in sides]
        if any(stretched):
            kept = tuple(la for la, gone in zip(labels, stretched, strict=True) if not gone)
            ranges = tuple(0 if gone else None for gone in stretched)
            name, labels = graph.add(sliced(kept, ranges, graph[name].shape), [name]).name, kept
        stretched_operands.append((name, labels))
    return stretched_operands


def _with_numbers(
    graph: Graph, join: Expr, operands: Operands, labels: Sequence[str], sizes: Mapping[str, int]
) -> Expr:
    """Add an operand for each label whose number a join reads, after the others."""
    start = len(operands)
    place: list[Expr] = [Arg(k) for k in range(start + len(labels))]
    for k in sorted(k for k in used_args(join) if k >= start):
        label = labels[k - start]
        if label not in sizes:
            raise GraphError(f"label {label!r} is in no input and has no size: give it one")
        place[k] = Arg(len(operands))
        operands.append((graph.numbers(label, sizes[label]).name, (label,)))
    return replace_args(join, place)
