"""`Vertex`: one tensor of a graph."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from eindecomp.errors import GraphError
from eindecomp.graph.ops import Op, Window, relabel
from eindecomp.lang.dtypes import DType
from eindecomp.lang.einsum import EinSum, Labels, canonical_inputs
from eindecomp.lang.names import check_name
from eindecomp.lang.scalar import Arg

MAX_ELEMENTS = 2**62

Shape = tuple[int, ...]


def check_shape(shape: Shape) -> None:
    """Refuse sizes below 0 and tensors that no machine could count."""
    for size in shape:
        if size < 0:
            raise GraphError(
                f"a size must be a whole number, 0 or more, got {size} in shape {shape}"
            )
    if prod(shape) > MAX_ELEMENTS:
        raise GraphError(f"a tensor of shape {shape} has more than 2^62 elements")


def show(name: str, labels: Sequence[str]) -> str:
    """A tensor with its labels, as in the text syntax."""
    return f"{name}[{','.join(labels)}]"


def unused_label(stem: str, taken: Container[str]) -> str:
    """The stem, with as many underscores after it as make it a label that is not taken."""
    while stem in taken:
        stem += "_"
    return stem


@dataclass(frozen=True, slots=True, repr=False)
class Vertex:
    """One tensor of a graph and the operation that makes it from its inputs.

    Args:
        name: What it is called, such as `"Z"`.
        op: What makes it, such as an `ed.EinSum` or `Input(("i",))`.
        inputs: The vertices that it reads, such as `("X", "Y")`.
        shape: Its sizes, such as `(100, 50)`.
        dtype: The type of its items, such as `float32`.
        reduce_dtype: The type in which partial results of it travel, such as `bfloat16`; None for
            that in which they accumulate.
        windows: For each input the places at which an EinSum reads it, such as `(None,)`, which
            reads all; by default it reads all of each.

    Examples:
        >>> import eindecomp as ed
        >>> ed.parse("input X[i: 3, j: 4]\\nZ[j] <- max X[i,j]\\noutput Z")["Z"]
        <Vertex Z[j: 4] float32: EinSum of X>
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    shape: Shape
    dtype: DType
    reduce_dtype: DType | None = None
    windows: tuple[Window | None, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name, "tensor")
        check_shape(self.shape)
        if len(self.shape) != len(self.op.output):
            raise GraphError(f"{show(self.name, self.op.output)} cannot have shape {self.shape}")
        if self.windows:
            read = self.op.inputs if isinstance(self.op, EinSum) else ()
            pairs = zip(self.windows, read, strict=False)
            fits = all(own is None or own.output == labels for own, labels in pairs)
            if len(self.windows) != len(read) or not fits or not any(self.windows):
                raise GraphError(f"{show(self.name, self.op.output)} does not read such windows")

    @property
    def labels(self) -> Labels:
        """The labels of its dimensions."""
        return self.op.output

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each of its labels."""
        return self.sizes_by(self.labels)

    def sizes_by(self, labels: Labels) -> dict[str, int]:
        """The sizes of its dimensions under the labels that a reader gives them.

        Args:
            labels: One for each dimension, such as `("r", "c")`.
        """
        return dict(zip(labels, self.shape, strict=True))

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    def __str__(self) -> str:
        return show(self.name, self.labels)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{label}: {size}" for label, size in self.sizes.items())
        made = type(self.op).__name__ + (f" of {', '.join(self.inputs)}" if self.inputs else "")
        return f"<Vertex {self.name}[{sizes}] {self.dtype}: {made}>"


def reading_through(vertex: Vertex, windows: Mapping[str, Vertex]) -> Vertex:
    """An EinSum that reads what some of the windows read; one that only transposes is a window."""
    op = vertex.op
    if not isinstance(op, EinSum):
        return vertex
    inputs, own = list(vertex.inputs), list(vertex.windows or (None,) * len(vertex.inputs))
    for k, (name, labels) in enumerate(zip(vertex.inputs, op.inputs, strict=True)):
        seen = windows.get(name)
        if seen is None or own[k] is not None or len({*labels}) < len(labels):
            continue
        names = dict(zip(seen.op.output, labels, strict=True))
        window = relabel(seen.op, names.__getitem__)
        assert isinstance(window, Window)  # noqa: S101
        inputs[k], own[k] = seen.inputs[0], window
    if not any(own):
        return vertex
    only = own[0]
    is_move = op.join == Arg(0) and op.agg is None and len(inputs) == 1
    if is_move and only is not None and {*op.output} == {*only.output}:
        sizes = tuple(only.by_label[label] for label in op.output)
        return replace(vertex, op=replace(only, output=op.output, sizes=sizes), inputs=(inputs[0],))
    join, order = canonical_inputs(op.join, [*zip(inputs, op.inputs, own, strict=True)])
    names, labels, windows_of = zip(*order, strict=True)
    return replace(
        vertex, op=replace(op, inputs=labels, join=join), inputs=names, windows=windows_of
    )
