"""What a report tells of each vertex, its cut, tiles and fetches, and where its box stands.

Boxes stand in bands one below another, a band for each repeated block, which is laid out once.
Unfolded, the page draws it as often as it repeats, so a plan of a hundred layers needs no more
positions than one of two.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eindecomp.graph.vertex import Vertex
from eindecomp.graph.write import write_vertex
from eindecomp.layout.tiling import TileGrid
from eindecomp.planner.any_schedule import product_alone
from eindecomp.planner.plan import Plan
from eindecomp.show.explain import product_words
from eindecomp.show.layered import Connector, Item, lay_out
from eindecomp.show.movements import held_cuts, nearest, plan_price, read_cut
from eindecomp.show.rows import Outline, plan_outline
from eindecomp.show.svg import text_width
from eindecomp.show.tile_grid import devices_words, layouts_of, tile_grid, tile_table
from eindecomp.show.words import cuts, layout, short

_WIDTH, _HEIGHT, _SOURCE = 200, 58, 30
"""The size of a box, and the height of one that nobody computes."""
_WORDS = 12.0
"""The size of the words beside lines."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Words and tile grids that many vertices have in common, each once."""

    words: dict[str, int] = field(default_factory=dict[str, int])
    grids: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _numbers: dict[Hashable, int] = field(default_factory=dict["Hashable", int])
    """The number of each grid, by the labels and the shape of the tensor and its cut."""

    def word(self, text: str) -> int:
        """The number of a text."""
        return self.words.setdefault(text, len(self.words))

    def grids_of(self, plan: Plan, name: str) -> list[list[int]]:
        """The tile grids of a tensor: for each which layout it is, that in words, and the grid."""
        vertex = plan.graph[name]
        numbers: list[list[int]] = []
        for cut, role in layouts_of(plan, vertex).items():
            at = self._numbers.setdefault((vertex.labels, vertex.shape, cut), len(self.grids))
            if at == len(self.grids):
                self.grids.append(_grid_content(tile_grid(plan.mesh, vertex, cut, role)))
            words = layout(plan.mesh, vertex.labels, vertex.shape, cut)
            numbers.append([self.word(role), self.word(words), at])
        return numbers


def _grid_content(grid: TileGrid) -> dict[str, Any]:
    """A grid as it is drawn; a tile is its devices in words and the first of them."""
    table = tile_table(grid)

    def tile(at: tuple[int, ...] | None) -> list[Any] | None:
        if at is None:
            return None
        devices = grid.holders.get(at, ())
        return [devices_words(devices), devices[0]] if devices else ["", -1]

    return {
        "row": table.row_label,
        "column": table.column_label,
        "rows": table.rows,
        "columns": table.columns,
        "tiles": [[tile(each) for each in row] for row in table.tiles],
        "left_out": table.left_out,
    }


def vertex_content(plan: Plan, name: str, number: dict[str, int], shared: Shared) -> dict[str, Any]:
    """One vertex. Bytes are those of `plan.traffic`: together they are its total."""
    vertex, traffic, costs = plan.graph[name], plan.traffic, plan.costs
    parts = (costs.join, costs.aggregate, costs.repartition, costs.compute)
    fetches = _fetches(plan, vertex, number, shared) if name in plan.decisions else []
    fetched = sum(fetch[1] for fetch in fetches)
    against = product_alone(plan, name) if name in plan.parts else None
    reduced = traffic.aggregate.get(name, 0)
    return {
        "name": name,
        "text": write_vertex(vertex, plan.graph.vertices),
        "labels": shared.word(",".join(vertex.labels)),
        "shape": vertex.shape,
        "dtype": str(vertex.dtype),
        "cut": cuts(plan.parts[name]) if name in plan.parts else None,
        "grids": shared.grids_of(plan, name),
        "inputs": fetches,
        "least": None if against is None or not against.least else product_words(against),
        "reduced": reduced,
        "kept": traffic.of(name) - fetched - reduced - traffic.compute.get(name, 0),
        # Join, aggregate, repartition and compute; None for what costs nothing by its nature.
        "cost": [part.get(name, 0) for part in parts] if name in costs.join else None,
    }


def _fetches(plan: Plan, vertex: Vertex, number: dict[str, int], shared: Shared) -> list[list[int]]:
    """For each input: the tensor, its bytes that move, from which layout and to which, by number.

    A missing layout, such as that of an input whose elements are never read, is -1.
    """
    fetches: list[list[int]] = []
    for k, source in enumerate(vertex.inputs):
        tensor, held, need = plan.graph[source], held_cuts(plan, source), read_cut(plan, vertex, k)
        start = None
        if held and need is not None:
            start = held[nearest(plan_price(plan), tensor, held, need)]
        lies = [
            -1 if cut is None else shared.word(layout(plan.mesh, tensor.labels, tensor.shape, cut))
            for cut in (start, need)
        ]
        moved = int(plan.traffic.edges.get((source, vertex.name, k), 0))
        fetches.append([number[source], moved, *lies])
    return fetches


# Bands


@dataclass(frozen=True, slots=True)
class _Band:
    times: int
    boxes: list[int] = field(default_factory=list[int])


def bands(plan: Plan, number: Mapping[str, int]) -> list[dict[str, Any]]:
    """For each band how often it repeats, its size, its boxes and the lines between them.

    A box is its vertices by number, then left, top, width and height; a line is its ends by number
    of box, where its words stand, and the points that it passes.
    """
    outline = plan_outline(plan)
    return [_placed(outline, band, number) for band in _bands(outline)]


def _placed(outline: Outline, band: _Band, number: Mapping[str, int]) -> dict[str, Any]:
    boxes = [outline.boxes[b] for b in band.boxes]
    items = [Item(_WIDTH, _SOURCE if box.is_source else _HEIGHT) for box in boxes]
    at = {b: k for k, b in enumerate(band.boxes)}
    inside = [
        edge
        for edge in outline.edges
        if edge.source in at and edge.target in at and not edge.is_next
    ]
    links: list[Connector] = []
    for edge in inside:
        words = text_width(short(edge.amount, "bytes"), _WORDS) + 8 if edge.amount else 0.0
        links.append(Connector(at[edge.source], at[edge.target], words))
    made = lay_out(items, links)
    return {
        "times": band.times,
        "width": round(made.width),
        "height": round(made.height),
        "boxes": [
            [[number[name] for name in box.names], round(x - item.width / 2), round(y),
             item.width, item.height]
            for box, item, (x, y) in zip(boxes, items, made.items, strict=True)
        ],
        "lines": [
            [at[edge.source], at[edge.target], words and [round(p) for p in words],
             [round(p) for point in route for p in point]]
            for edge, route, words in zip(inside, made.routes, made.words, strict=True)
        ],
    }  # fmt: skip


def _bands(outline: Outline) -> list[_Band]:
    """Boxes in bands: those of a repeated block, and those between two such blocks.

    A source that stands alone is in the band of the first vertex that reads it, or above that band
    if it repeats.
    """
    bands: list[_Band] = []
    repeated: dict[int, _Band] = {}
    band_of: dict[int, _Band] = {}
    for b, box in enumerate(outline.boxes):
        if box.is_source:
            continue
        if box.block not in repeated and (box.times > 1 or not bands or bands[-1].times > 1):
            bands.append(_Band(box.times))
            if box.times > 1:
                repeated[box.block] = bands[-1]
        band_of[b] = repeated.get(box.block, bands[-1])
        band_of[b].boxes.append(b)
    readers: dict[int, int] = {}
    for edge in outline.edges:
        readers[edge.source] = min(edge.target, readers.get(edge.source, edge.target))
    for b, box in enumerate(outline.boxes):
        if box.is_source:
            read_in = band_of[readers[b]] if b in readers else None
            band = repeated.get(box.block) or _plain(bands, read_in)
            band.boxes.append(b)
    return bands


def _plain(bands: list[_Band], band: _Band | None) -> _Band:
    """A band itself, or the one above it if it repeats; the first if none is given."""
    if band is not None and band.times == 1:
        return band
    at = 0 if band is None else next(k for k, each in enumerate(bands) if each is band)
    above = max(at - 1, 0)
    if not bands or bands[above].times > 1:
        bands.insert(at, _Band(1))
        above = at
    return bands[above]
