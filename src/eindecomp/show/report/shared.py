"""What many vertices of a report have in common, so that it stands in the page once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.show.alternatives import held_cuts
from eindecomp.show.draw.tile_grid import tile_grids
from eindecomp.show.draw.tile_pictures import devices_words, tile_table

if TYPE_CHECKING:
    from collections.abc import Hashable

    from eindecomp.layout.tile_grid import TileGrid
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
        found: list[list[int]] = []
        for grid in tile_grids(plan, name):
            shown = _grid(grid)
            at = self._numbers.setdefault(orjson.dumps(shown), len(self.grids))
            if at == len(self.grids):
                self.grids.append(shown)
            found.append([self.word(grid.role), self.word(grid.layout), at])
        if held:  # others lie as their readers want them, who differ
            self._of_layouts[like] = found
        return found


def _grid(grid: TileGrid) -> dict[str, Any]:
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
