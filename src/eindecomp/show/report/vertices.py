"""What a report tells of each vertex: what it computes, its cut, its tiles, what it fetches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.graph.write import write_vertex
from eindecomp.planner.costs.bytes_moved import PriceInBytes
from eindecomp.show.alternatives import held_cuts
from eindecomp.show.draw.tile_grid import tile_grids
from eindecomp.show.draw.tile_pictures import devices_words, tile_table
from eindecomp.show.movements import nearest, read_cut
from eindecomp.show.words import cuts, layout

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.tile_grid import TileGrid
    from eindecomp.planner.costs.cost import Cost
    from eindecomp.planner.plan import Plan


@dataclass(frozen=True, slots=True)
class Shared:
    """Words and tile grids that many vertices have in common, each once."""

    words: dict[str, int] = field(default_factory=dict[str, int])
    grids: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _numbers: dict[bytes, int] = field(default_factory=dict[bytes, int])
    _of_layouts: dict[Hashable, list[list[int]]] = field(
        default_factory=dict["Hashable", list[list[int]]]
    )

    def word(self, text: str) -> int:
        """The number of a text."""
        return self.words.setdefault(text, len(self.words))

    def grids_of(self, plan: Plan, name: str) -> list[list[int]]:
        """The tile grids of a tensor: for each which layout it is, that in words, and the grid."""
        vertex, held = plan.graph[name], held_cuts(plan, name)
        like = (vertex.labels, vertex.shape, held)
        if like in self._of_layouts:
            return self._of_layouts[like]
        numbers: list[list[int]] = []
        for grid in tile_grids(plan, name):
            shown = _grid_content(grid)
            at = self._numbers.setdefault(orjson.dumps(shown), len(self.grids))
            if at == len(self.grids):
                self.grids.append(shown)
            numbers.append([self.word(grid.role), self.word(grid.layout), at])
        if held:  # others lie as their readers want them, who differ
            self._of_layouts[like] = numbers
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


def vertex_content(
    plan: Plan, name: str, number: Mapping[str, int], shared: Shared, seconds: Cost | None
) -> dict[str, Any]:
    """One vertex. Bytes are those of `plan.traffic`: together they are its total."""
    vertex, traffic = plan.graph[name], plan.traffic
    fetches = _fetches(plan, vertex, number, shared) if name in plan.decisions else []
    fetched = sum(fetch[1] for fetch in fetches)
    reduced = traffic.aggregate.get(name, 0)
    shown: dict[str, Any] = {
        "name": name,
        "text": write_vertex(vertex),
        "labels": shared.word(",".join(vertex.labels)),
        "shape": vertex.shape,
        "dtype": str(vertex.dtype),
        "cut": cuts(plan.parts[name]) if name in plan.parts else None,
        "grids": shared.grids_of(plan, name),
        "inputs": fetches,
        "reduced": reduced,
        "kept": traffic.of(name) - fetched - reduced - traffic.compute.get(name, 0),
        "cost": _parts(plan.costs, name),
    }
    if seconds is not None and name in plan.decisions:
        shown["seconds"] = seconds.of(name)
    return shown


def _parts(costs: Cost, name: str) -> list[int | float] | None:
    """Join, aggregate, repartition and compute; None for what costs nothing by its nature."""
    if name not in costs.join:
        return None
    parts = (costs.join, costs.aggregate, costs.repartition, costs.compute)
    return [part.get(name, 0) for part in parts]


def _fetches(
    plan: Plan, vertex: Vertex, number: Mapping[str, int], shared: Shared
) -> list[list[int]]:
    """For each input: the tensor, its bytes that move, from which layout and to which, by number.

    A layout that there is not, as that of an input whose elements are never read, is -1.
    """
    fetches: list[list[int]] = []
    for k, source in enumerate(vertex.inputs):
        tensor, held, need = plan.graph[source], held_cuts(plan, source), read_cut(plan, vertex, k)
        start = None
        if held and need is not None:
            start = held[nearest(PriceInBytes(plan.mesh), tensor, held, need)]
        lies = [
            -1 if cut is None else shared.word(layout(plan.mesh, tensor.labels, tensor.shape, cut))
            for cut in (start, need)
        ]
        moved = int(plan.traffic.edges.get((source, vertex.name, k), 0))
        fetches.append([number[source], moved, *lies])
    return fetches
