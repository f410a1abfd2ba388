"""The least bytes over all nested layouts: axes cut labels in any order, inputs have homes, ties.

Written from the definitions alone, with nothing of the planner in it, for graphs of EinSums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import nested_layouts as nested
from brute_bytes import Axes, Layout, partial_width, pieces
from nested_layouts import ANY, BALANCED, all_boxes, cut_into, cut_most, dealt, fits
from tabulated_plans import Oracle, Row

from eindecomp.lang.scalar import used_args

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nested_layouts import Floats

    from eindecomp import Graph, Vertex

Made = tuple[Layout, frozenset[int]]
"""The layout of the tiles that an assignment computes, and the axes that it sums over."""


@dataclass(frozen=True)
class NestedLayouts:
    """What EinSums can choose on a mesh, with axes nested in any order or in the mesh's.

    Parts give into how many pieces a vertex cuts its labels.
    """

    graph: Graph
    axes: Axes
    order: str = ANY
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    pieces: str = BALANCED

    def rows(self, vertex: Vertex) -> Iterator[Row]:
        """The assignments that make the most pieces, or those that are asked for."""
        used = used_args(vertex.op.join)
        read = [label for k in used for label in vertex.op.inputs[k]]
        all_sizes = self.graph.label_sizes(vertex)
        sizes = {label: all_sizes[label] for label in dict.fromkeys([*vertex.labels, *read])}
        if wanted := self.parts.get(vertex.name):
            into = [wanted.get(label, 1) for label in sizes]
            layouts = cut_into(into, self.axes, self.order)
        else:
            layouts = cut_most(list(sizes.values()), self.axes, self.order, self.pieces)
        for layout in layouts:
            yield self.row(vertex, dict(zip(sizes, layout, strict=True)))

    def row(self, vertex: Vertex, axes_of: Mapping[str, tuple[int, ...]]) -> Row:
        """What the axes of each label mean for the result and the operands."""
        used = used_args(vertex.op.join)
        tile = tuple(axes_of[label] for label in vertex.labels)
        summed = (a for x, own in axes_of.items() if x not in vertex.labels for a in own)
        needs = (
            tuple(axes_of[label] for label in labels) if k in used else None
            for k, labels in enumerate(vertex.op.inputs)
        )
        return Row((tile, frozenset(summed)), tuple(needs))

    def homes(self, vertex: Vertex, made: Made) -> dict[Layout, float]:
        """Where a result can be left, and the bytes that reducing it there moves.

        The axes that are summed over cut each group's tile further, inside it, or replicate it.
        """
        tile, summed = made
        n_agg = pieces(self.axes, summed)
        low, high = all_boxes(vertex.shape, (tile,), self.axes, self.pieces)
        tiles = int((high - low).prod(axis=1).sum()) // n_agg
        found: dict[Layout, float] = {}
        for inner in dealt(tuple(sorted(summed)), len(vertex.shape), self.order):
            home = tuple(own + more for own, more in zip(tile, inner, strict=True))
            if fits(vertex.shape, home, self.axes, self.pieces):
                copies = n_agg // pieces(self.axes, sum(inner, ()))
                moved = tiles * (partial_width(vertex) * (n_agg - 1) + copies - 1)
                found[home] = moved * vertex.dtype.itemsize
        return found

    def stored(self, vertex: Vertex) -> list[Layout]:
        """The layouts that cut an input as far as its sizes allow."""
        return cut_most(vertex.shape, self.axes, self.order, self.pieces)

    def received(self, vertex: Vertex, held: Sequence[Layout], needed: Sequence[Layout]) -> Floats:
        """The elements that devices receive, by what they hold and what they need."""
        layouts = tuple(held), tuple(needed)
        return nested.received(vertex.shape, *layouts, self.axes, self.pieces)

    def held(self, vertex: Vertex, layouts: Sequence[Layout]) -> Floats:
        """The elements on all devices, if each had the largest piece."""
        return nested.held(vertex.shape, layouts, self.axes)


def ordered_oracle(
    graph: Graph,
    axes: Axes,
    inputs: str = "free",
    *,
    order: str = ANY,
    parts: Mapping[str, Mapping[str, int]] | None = None,
    pieces: str = BALANCED,
    **asked: Any,
) -> Oracle:
    """All plans with axes nested in any order; `asked` as `Oracle` takes it."""
    return Oracle(graph, NestedLayouts(graph, axes, order, parts or {}, pieces), inputs, **asked)


def brute_ordered(graph: Graph, axes: Axes, inputs: str = "free", **asked: Any) -> int:
    """The least bytes of all plans with axes nested in any order."""
    return ordered_oracle(graph, axes, inputs, **asked).least()
