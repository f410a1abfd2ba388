"""Graphs as text, which `parse` reads back, and `Picture`, what drawing one makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eindecomp.above import from_above
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Window
from eindecomp.graph.vertex import Shape, Vertex
from eindecomp.lang.dtypes import FLOAT32, DType
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.index import Index
from eindecomp.lang.scalar import to_text, used_args


def write_scalar(name: str, dtype: DType) -> str:
    """A run-time scalar as a declaration."""
    return f"scalar {name}{_suffix(dtype)}"


def write_vertex(vertex: Vertex, vertices: Mapping[str, Vertex]) -> str:
    """One vertex of a graph as a statement."""
    name, inputs = vertex.name, vertex.inputs
    shapes = [vertices[source].shape for source in inputs]
    match vertex.op:
        case Input(output):
            return f"input {_ref(name, output, vertex.sizes)}{_suffix(vertex.dtype)}"
        case EinSum() as op:
            return _write_einsum(vertex, op, shapes)
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
        case Window(output) as op:
            new = {label: n for label, n in op.by_label.items() if label not in _told(op)}
            return f"{_ref(name, output, new)} <- {_ref(inputs[0], _items(op, shapes[0]))}"
        case Reshape(before, after, sizes):
            source = _ref(inputs[0], [_group(group, dict(sizes)) for group in before])
            return f"{_ref(name, [_group(group, {}) for group in after])} <- {source}"


def _items(window: Window, shape: Shape) -> list[str]:
    """The indices of a window on a tensor of this shape, ranges written as such."""
    items: list[str] = []
    for index, size in zip(window.index, shape, strict=True):
        match index:
            case Index((), at, 1, None):
                items.append(f"{at}")
            case Index(((label, 1),), low, 1, None):
                high = low + window.by_label[label]
                items.append(label if (low, high) == (0, size) else f"{label} in {low}:{high}")
            case _:
                items.append(f"{index}")
    if all(index.alone == item for index, item in zip(window.index, items, strict=True)):
        items[0] = f"{items[0]} in 0:{shape[0]}"  # or it would be read as no window
    return items


def _told(window: Window) -> set[str]:
    """The labels of a window whose sizes ranges tell."""
    told = (i for i in window.index if i.outside is None and i.divisor == 1)
    return {label for i in told if len(i.terms) == 1 for label, times in i.terms if times == 1}


def _suffix(dtype: DType) -> str:
    return "" if dtype == FLOAT32 else f" {dtype.name}"


def _write_einsum(vertex: Vertex, op: EinSum, shapes: Sequence[Shape]) -> str:
    """An EinSum; labels whose sizes no tensor tells have them where they first stand."""
    told, untold = set[str](), dict[str, int]()
    names: list[str] = []
    windows = vertex.windows or (None,) * len(shapes)
    for name, labels, shape, own in zip(vertex.inputs, op.inputs, shapes, windows, strict=True):
        told |= {*labels} if own is None else _told(own)
        untold |= {} if own is None else own.by_label
        names.append(_ref(name, labels if own is None else _items(own, shape)))
    new = {label: size for label, size in vertex.sizes.items() if label not in told}
    over = {label: n for label, n in untold.items() if label not in {*told, *op.output}}
    read = len(used_args(op.join))
    join = to_text(op.join, names)
    extra = f" with {', '.join(names[read:])}" if names[read:] else ""
    target = _ref(vertex.name, op.output, new)
    if op.agg is None:
        return f"{target} <- {join}{extra}"
    # What follows the aggregation must start with a word or a parenthesis, so a sign is wrapped.
    join = f"({join})" if over or join.startswith(("-", "not ")) else join
    agg = _ref(op.agg.name, op.aggregated, over) if over else op.agg.name
    return f"{target} <- {agg} {join}{extra}"


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
