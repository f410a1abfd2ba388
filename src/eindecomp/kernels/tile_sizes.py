"""The sizes of the labels of one tile, from its arrays and from what is never cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.errors import InputError
from eindecomp.lang.scalar import used_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import EinSum, Labels


def sizes_of(labels: Sequence[Labels], arrays: Sequence[Any]) -> dict[str, int]:
    """The size of every label, refusing arrays that do not agree; None has no sizes."""
    found: dict[str, int] = {}
    for own, array in zip(labels, arrays, strict=True):
        if array is None:
            continue
        if len(own) != array.ndim:
            raise InputError(f"a tile of [{', '.join(own)}] has shape {tuple(array.shape)}")
        for label, size in zip(own, array.shape, strict=True):
            if found.setdefault(label, size) != size:
                raise InputError(f"label {label!r} has sizes {found[label]} and {size} in one tile")
    return found


def lent_sizes(graph: Graph, vertex: Vertex, op: EinSum) -> tuple[tuple[str, int], ...]:
    """The sizes of labels that occur only in inputs that are never read; these are never cut."""
    read = len(used_args(op.join))
    if read == len(op.inputs):
        return ()
    seen = {*op.output, *(label for own in op.inputs[:read] for label in own)}
    sizes = graph.label_sizes(vertex)
    return tuple((label, sizes[label]) for label in op.labels if label not in seen)
