"""Printing vertices in the text syntax; `parse` reads the same ones back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Slice
from eindecomp.lang.dtypes import FLOAT32
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import to_text, used_args

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.dtypes import DType


def write_scalar(name: str, dtype: DType) -> str:
    """A run-time scalar as a declaration."""
    return f"scalar {name}{_suffix(dtype)}"


def write_vertex(vertex: Vertex) -> str:
    """One vertex as a statement."""
    name, inputs = vertex.name, vertex.inputs
    match vertex.op:
        case Input(output):
            return f"input {_ref(name, output, vertex.sizes)}{_suffix(vertex.dtype)}"
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
        case Slice(output) as op:
            items = [_window(*pair) for pair in zip(op.input, op.ranges, strict=True)]
            return f"{_ref(name, output)} <- {_ref(inputs[0], items)}"
        case Reshape(before, after, sizes):
            source = _ref(inputs[0], [_group(group, dict(sizes)) for group in before])
            return f"{_ref(name, [_group(group, {}) for group in after])} <- {source}"


def _window(label: str | None, window: tuple[int, int] | int | None) -> str:
    match window:
        case None:
            return f"{label}"
        case int():
            return f"{window}"
        case start, stop:
            return f"{label} in {start}:{stop}"


def _suffix(dtype: DType) -> str:
    return "" if dtype == FLOAT32 else f" {dtype.name}"


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
