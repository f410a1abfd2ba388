"""Real movement by brute force for every kind of vertex, element by element.

As slow as it is general: a layout is a mask of the elements that each device has, made by
`simulate` from every assignment and every home.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf, prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from brute_bytes import Axes, Layout
from nested_layouts import ANY, all_boxes, cut_most, dealt, fits
from simulate import Site, boxed, label_sizes
from tabulated_plans import Oracle, Row

from eindecomp import EinSum, Graph, Vertex
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Window
from eindecomp.lang.scalar import used_args

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nested_layouts import Floats
    from numpy.typing import NDArray
    from simulate import Masks

Packed = bytes
"""The masks of all devices, so that equal ones are found equal."""


def cuttable(vertex: Vertex) -> list[str]:
    """The labels along which the work of a vertex can be divided."""
    match vertex.op:
        case EinSum() as op:
            read = [label for k in used_args(op.join) for label in op.inputs[k]]
            found = [*op.output, *read]
        case Gather() as op:
            found = [*op.output]
        case ScatterAdd() as op:
            found = [*op.source, *op.index]
        case Concat() | Window() as op:
            found = [*op.output]
        case Reshape() as op:
            # A piece of an inner label would be many small blocks.
            outer = {group[0] for group in op.groups}
            found = [group[0] for group in op.input if group[0] in outer]
        case Input() | Fill():
            raise AssertionError("inputs and fills are not computed by tiles")
    return list(dict.fromkeys(found))


class Seen(NamedTuple):
    """What devices see of a tensor through windows that are cut: it is not kept in such layouts."""

    masks: Packed


def moving(vertex: Vertex, shapes: Sequence[tuple[int, ...]], k: int) -> set[str]:
    """The labels that move the places at which an operand is read."""
    match vertex.op:
        case Concat(along=along):
            return {along}
        case Window() as op:
            window = op
        case _:
            window = vertex.windows[k] if vertex.windows else None
    if window is None:
        return set()
    pairs = zip(window.index, shapes[k], strict=True)
    return {
        label
        for index, size in pairs
        for label in index.labels
        if index.alone is None or window.by_label[label] != size
    }


@dataclass(frozen=True)
class ElementMasks:
    """What vertices of any kind can choose on a mesh, with axes nested in any order."""

    graph: Graph
    axes: Axes
    order: str = ANY

    def rows(self, vertex: Vertex) -> Iterator[Row]:
        """The assignments that make the most pieces."""
        for layout in self.layouts(vertex):
            needs = self._site(vertex, layout, ()).needs
            yield Row(layout, tuple(
                None if need is None
                else Seen(packed(need)) if self.is_seen(vertex, layout, k)
                else packed(need)
                for k, need in enumerate(needs)
            ))  # fmt: skip

    def is_seen(self, vertex: Vertex, layout: Layout, k: int) -> bool:
        """Whether a device sees only what a window shows of an operand."""
        cut = {label for label, axes in zip(cuttable(vertex), layout, strict=True) if axes}
        shapes = [self.graph[name].shape for name in vertex.inputs]
        return not cut.isdisjoint(moving(vertex, shapes, k))

    def layouts(self, vertex: Vertex) -> list[Layout]:
        """The axes of each label that can be cut."""
        sizes = label_sizes(vertex, [self.graph[name].shape for name in vertex.inputs])
        return cut_most([sizes[label] for label in cuttable(vertex)], self.axes, self.order)

    def homes(self, vertex: Vertex, made: Layout) -> dict[Packed, float]:
        """Where a result can be left, and the bytes that reducing it there moves."""
        plain = self._site(vertex, made, ())
        found: dict[Packed, float] = {}
        for places in dealt(tuple(sorted(plain.summed)), len(vertex.shape), self.order):
            kept = zip(plain.kept, places, strict=True)
            # What is not cut further fits as the tile does.
            home = tuple(inner and (*plain.axes_of.get(label, ()), *inner) for label, inner in kept)
            if fits(vertex.shape, home, self.axes):
                site = self._site(vertex, made, places)
                site.__dict__["touched"] = plain.touched  # the same for every home
                found[packed(site.home)] = site.reduced()
        return found

    def stored(self, vertex: Vertex) -> list[Packed]:
        """The layouts that cut an input as far as its sizes allow."""
        return [
            self.pack(vertex, layout) for layout in cut_most(vertex.shape, self.axes, self.order)
        ]

    def pack(self, vertex: Vertex, layout: Layout) -> Packed:
        """The masks of a layout."""
        low, high = all_boxes(vertex.shape, (layout,), self.axes)
        ends = zip(low[0].T.tolist(), high[0].T.tolist(), strict=True)
        return packed([boxed(vertex.shape, list(map(slice, *box))) for box in ends])

    def received(self, vertex: Vertex, held: Sequence[Packed], needed: Sequence[Packed]) -> Floats:
        """The elements that devices receive, by what they hold and what they need."""
        size = (prod(self.axes), prod(vertex.shape))
        own, need = (unpacked(tuple(map(masks_of, each)), size) for each in (held, needed))
        lacking = need.sum(axis=(1, 2)) - np.einsum("hde,nde->hn", own, need, optimize=True)
        somewhere, wanted = own.max(axis=1, initial=0), need.max(axis=1, initial=0)
        nowhere = wanted.sum(axis=1) - somewhere @ wanted.T
        return np.where(nowhere > 0, inf, lacking)

    def moved(self, vertex: Vertex, held: Sequence[Packed], needed: Sequence[Packed]) -> Floats:
        """The same to keep what is needed."""
        found = self.received(vertex, held, needed)
        found[:, [isinstance(each, Seen) for each in needed]] = inf
        return found

    def held(self, vertex: Vertex, layouts: Sequence[Packed]) -> Floats:
        """The elements on all devices, if each had the largest piece."""
        size = (prod(self.axes), prod(vertex.shape))
        return prod(self.axes) * unpacked(tuple(map(masks_of, layouts)), size).sum(axis=2).max(
            axis=1
        )

    def _site(self, vertex: Vertex, assignment: Layout, places: Layout) -> Site:
        plan: Any = SimpleNamespace(
            graph=self.graph,
            mesh=SimpleNamespace(sizes=self.axes),
            pieces="balanced",
            parts={vertex.name: dict.fromkeys(cuttable(vertex))},
            decisions={
                vertex.name: SimpleNamespace(assignment=assignment, places=places, second=None)
            },
        )
        return Site(plan, vertex)


def masks_of(layout: Packed | Seen) -> Packed:
    return layout.masks if isinstance(layout, Seen) else layout


def packed(masks: Masks) -> Packed:
    return np.packbits(np.array(masks, dtype=bool)).tobytes()


@lru_cache(maxsize=1 << 8)
def unpacked(layouts: tuple[Packed, ...], size: tuple[int, int]) -> NDArray[np.float64]:
    """By layout, device and element, 1 where the device has it."""
    rows = [np.frombuffer(own, dtype=np.uint8) for own in layouts]
    bits = [np.unpackbits(row, count=prod(size)).reshape(size) for row in rows]
    return np.array(bits, dtype=np.float64).reshape(len(layouts), *size)


def ops_oracle(graph: Graph, axes: Axes, inputs: str, order: str = ANY, **asked: Any) -> Oracle:
    """All plans with axes nested in any order; `asked` as `Oracle` takes it, ties of the graph."""
    return Oracle(graph, ElementMasks(graph, axes, order), inputs, **{"tie": graph.ties, **asked})


def brute_ops(graph: Graph, axes: Axes, inputs: str) -> int:
    """The least bytes of all plans."""
    return ops_oracle(graph, axes, inputs).least()
