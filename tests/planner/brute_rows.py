"""Real movement by brute force where only rows of tables move that an index names, at worst.

At worst, each index on a device names another row, which lies elsewhere. Rows move whole, each with
its number of eight bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from brute_ops import ElementMasks, packed, unpacked
from simulate import Site, label_sizes, partial_bytes, piece
from tabulated_plans import Oracle, Row

from eindecomp.graph.ops import Gather, ScatterAdd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from brute_bytes import Axes, Layout
    from nested_layouts import Floats

    from eindecomp import Graph, Vertex

NUMBER = 8


class RowNeed(NamedTuple):
    """What devices need of a table, and the bytes of all rows that they may ask for."""

    masks: bytes
    most: int
    across: tuple[int, ...]
    """The dimensions within a row."""


def masks_of(layout: Any) -> bytes:
    return layout.masks if isinstance(layout, RowNeed) else layout


@dataclass(frozen=True)
class RowMasks(ElementMasks):
    """The same choices, where lookups and scatters move blocks or rows, whichever are less."""

    def rows(self, vertex: Vertex) -> Iterator[Row]:
        """The assignments; the need of a table says how many rows that can be."""
        for row in super().rows(vertex):
            op, needs = vertex.op, row.needs
            if isinstance(op, Gather) and needs[0] is not None:
                site = self._site(vertex, row.made, ())
                item = self.graph[vertex.inputs[0]].dtype.itemsize
                index = site.needs[1]
                assert index is not None
                most = sum(item * int(made.sum()) for made in site.tile)
                most += sum(NUMBER * int(own.sum()) for own in index)
                across = _across(op.table, op.axis, op.index)
                needs = (RowNeed(masks_of(needs[0]), most, across), *needs[1:])
            yield Row(row.made, needs)

    def received(self, vertex: Vertex, held: Sequence[Any], needed: Sequence[Any]) -> Floats:
        """As elements of the table: what moves as blocks or as rows."""
        own, wanted = [*map(masks_of, held)], [*map(masks_of, needed)]
        moved = super().received(vertex, own, wanted)
        size = (prod(self.axes), prod(vertex.shape))
        for n, need in enumerate(needed):
            if isinstance(need, RowNeed):
                wants = unpacked((need.masks,), size)[0].reshape(-1, *vertex.shape) > 0
                for h in np.flatnonzero(np.isfinite(moved[:, n])):
                    has = unpacked((own[h],), size)[0].reshape(-1, *vertex.shape) > 0
                    if _whole(wants, has, need.across):
                        moved[h, n] = min(moved[h, n], need.most / vertex.dtype.itemsize)
        return moved

    def moved(self, vertex: Vertex, held: Sequence[Any], needed: Sequence[Any]) -> Floats:
        """The elements that devices receive to have all of what they need."""
        return super().received(vertex, [*map(masks_of, held)], [*map(masks_of, needed)])

    def held(self, vertex: Vertex, layouts: Sequence[Any]) -> Floats:
        """The elements on all devices, if each had the largest piece."""
        return super().held(vertex, [*map(masks_of, layouts)])

    def homes(self, vertex: Vertex, made: Layout) -> dict[bytes, float]:
        """What reducing moves as blocks or, where each row goes to one device, as rows."""
        found = super().homes(vertex, made)
        op = vertex.op
        if not isinstance(op, ScatterAdd):
            return found
        site = self._site(vertex, made, ())
        most = self._scattered(site, op, vertex)
        across = _across(op.table, op.axis, op.index)
        size = (prod(self.axes), prod(vertex.shape))
        tiles = unpacked((packed(site.tile),), size)[0].reshape(-1, *vertex.shape) > 0
        groups = len(site.devices) // prod([self.axes[a] for a in site.summed])
        for home, moved in found.items():
            has = unpacked((home,), size)[0].reshape(-1, *vertex.shape) > 0
            once = has.sum() * prod(self.axes) == tiles.sum() * groups  # tiles may be uneven
            if once and site.summed and _whole(tiles, has, across):
                found[home] = min(moved, most)
        return found

    def _scattered(self, site: Site, op: ScatterAdd, vertex: Vertex) -> int:
        """The bytes of all rows that devices may have partial sums of."""
        sizes = label_sizes(vertex, [self.graph[name].shape for name in vertex.inputs])
        total = 0
        for at in site.devices:

            def pieces(labels: set[str], at: tuple[int, ...] = at) -> int:
                cut = (piece(site.plan, sizes[n], site.axes_of[n], at) for n in labels)
                return prod(own.stop - own.start for own in cut)

            total += partial_bytes(vertex) * pieces({*op.index, *op.table})
            total += NUMBER * pieces({*op.index})
        return total


def _across(table: tuple[str, ...], axis: int, index: tuple[str, ...]) -> tuple[int, ...]:
    dims = [*table[:axis], None, *table[axis:]]
    return tuple(d for d, label in enumerate(dims) if d != axis and label not in index)


def _whole(wants: Any, has: Any, across: tuple[int, ...]) -> bool:
    """Whether, of each row, one device has all that any other device wants."""
    rows = [d for d in range(wants.ndim - 1) if d not in across]
    order = [0, *(1 + d for d in rows), *(1 + d for d in across)]
    count = prod(wants.shape[1 + d] for d in rows)
    wants, has = (x.transpose(order).reshape(len(x), count, -1) for x in (wants, has))
    # Devices × holders × rows: whether a holder lacks something of a row.
    lacks = (wants[:, None] & ~has[None]).any(axis=3)
    return bool((~lacks).any(axis=1).all())


def rows_oracle(graph: Graph, axes: Axes, inputs: str) -> Oracle:
    """All plans in which lookups and scatters may move rows."""
    return Oracle(graph, RowMasks(graph, axes), inputs, tie=graph.ties)
