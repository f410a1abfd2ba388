"""Graphs as text, which `parse` reads back, and `Picture`, what drawing one makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eindecomp.above import from_above
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Slice
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import FLOAT32, DType
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import to_text, used_args


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
            new = {label: vertex.sizes[label] for label in op.broadcast}
            return f"{_ref(name, op.output, new)} <- {_einsum(op, inputs)}"
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


def _insert(labels: Sequence[str], axis: int, item: str) -> list[str]:
    return [*labels[:axis], item, *labels[axis:]]


def _group(group: Sequence[str], sizes: Mapping[str, int]) -> str:
    if len(group) == 1:
        return group[0]
    return f"({', '.join(_sized(label, sizes) for label in group)})"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as SVG; notebooks show it.

    Attributes:
        svg: the picture, a text that starts with `<svg`.
        title: what it shows, such as `"3 vertices on 8 devices"`.

    Examples:
        >>> import eindecomp as ed
        >>> ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z").draw()
        Picture(title='1 vertex, 1 input')
    """

    svg: str = field(repr=False)
    title: str

    def save(self, path: str | Path) -> None:
        """Write it to a file.

        Args:
            path: an `.svg` file, such as `"plan.svg"`.

        Examples:
            >>> import eindecomp as ed
            >>> from tempfile import TemporaryDirectory
            >>> graph = ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z")
            >>> with TemporaryDirectory() as folder:
            ...     graph.draw().save(f"{folder}/graph.svg")
        """
        from_above("show.svg").save_text(path, {".svg": lambda: self.svg})

    def _repr_svg_(self) -> str:
        return self.svg

    _repr_html_ = _repr_svg_
