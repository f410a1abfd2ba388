"""Printing graphs in the text syntax; `parse` reads the same graph back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Slice
from eindecomp.lang.declare import declaration
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import to_text, used_args

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex


def write(graph: Graph) -> str:
    """The whole graph, one statement a line."""
    lines = [
        f"scalar {name}" + ("" if dtype == "float32" else f" {dtype.name}")
        for name, dtype in graph.scalars.items()
    ]
    lines += [declaration(monoid) for monoid in graph.monoids.values()]
    lines += [write_vertex(vertex) for vertex in graph.vertices.values()]
    if graph.outputs:
        lines.append(f"output {', '.join(vertex.name for vertex in graph.outputs)}")
    return "\n".join(lines)


def write_vertex(vertex: Vertex) -> str:
    """One vertex as a statement."""
    name, inputs = vertex.name, vertex.inputs
    match vertex.op:
        case Input(output):
            dtype = "" if vertex.dtype == "float32" else f" {vertex.dtype.name}"
            return f"input {_ref(name, output, vertex.sizes)}{dtype}"
        case EinSum() as op:
            return f"{_ref(name, op.output, _only(vertex, op.broadcast))} <- {_einsum(op, inputs)}"
        case Fill(output, value):
            return f"{_ref(name, output, vertex.sizes)} <- fill {to_text(value, output)}"
        case Gather(table, axis, index, output):
            row = _ref(inputs[1], index)
            return f"{_ref(name, output)} <- {_ref(inputs[0], _insert(table, axis, row))}"
        case ScatterAdd(source, index, table, axis, row_label):
            size = vertex.sizes[row_label]
            row = f"{row_label}: {size} = {_ref(inputs[1], index)}"
            return f"{_ref(name, _insert(table, axis, row))} <- sum {_ref(inputs[0], source)}"
        case Concat(output, along):
            parts = ", ".join(_ref(part, output) for part in inputs)
            return f"{_ref(name, output)} <- concat[{along}]({parts})"
        case Slice(output, ranges):
            items = [
                label if window is None else f"{label} in {window[0]}:{window[1]}"
                for label, window in zip(output, ranges, strict=True)
            ]
            return f"{_ref(name, output)} <- {_ref(inputs[0], items)}"
        case Reshape(before, after, sizes):
            source = _ref(inputs[0], [_group(group, dict(sizes)) for group in before])
            return f"{_ref(name, [_group(group, {}) for group in after])} <- {source}"


def _einsum(op: EinSum, inputs: Sequence[str]) -> str:
    names = [_ref(name, labels) for name, labels in zip(inputs, op.inputs, strict=True)]
    read = len(used_args(op.join))
    join = to_text(op.join, names)
    extra = f" with {', '.join(names[read:])}" if names[read:] else ""
    if op.agg is None:
        return f"{join}{extra}"
    # What follows the aggregation must start with a word or a parenthesis, so a sign is wrapped.
    return f"{op.agg.name} {f'({join})' if join.startswith(('-', 'not ')) else join}{extra}"


def _ref(name: str, items: Sequence[str], sizes: Mapping[str, int] | None = None) -> str:
    if sizes:
        return f"{name}[{', '.join(_sized(item, sizes) for item in items)}]"
    separator = "," if all(item.isidentifier() for item in items) else ", "
    return f"{name}[{separator.join(items)}]"


def _sized(label: str, sizes: Mapping[str, int]) -> str:
    return f"{label}: {sizes[label]}" if label in sizes else label


def _only(vertex: Vertex, labels: Sequence[str]) -> dict[str, int]:
    return {label: size for label, size in vertex.sizes.items() if label in labels}


def _insert(labels: Sequence[str], axis: int, item: str) -> list[str]:
    return [*labels[:axis], item, *labels[axis:]]


def _group(group: Sequence[str], sizes: Mapping[str, int]) -> str:
    if len(group) == 1:
        return group[0]
    return f"({', '.join(_sized(label, sizes) for label in group)})"
