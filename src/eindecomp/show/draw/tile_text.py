"""Tile grids as text: coloured boxes on a terminal, plain ones elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SQUARE
from rich.columns import Columns
from rich.console import Group
from rich.table import Table
from rich.text import Text

from eindecomp.show.draw.facets import devices_words, facets_of, heading, summary
from eindecomp.show.draw.svg import device_colour
from eindecomp.show.words import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from eindecomp.layout.tiling import TileGrid
    from eindecomp.show.draw.facets import Facet, Facets

_WIDTH = 120


def grid_text(grids: Sequence[TileGrid]) -> str:
    """The grids as plain text."""
    return render(_WIDTH, rich_grid(grids)).strip("\n")


def rich_grid(grids: Sequence[TileGrid]) -> RenderableType:
    """The grids one below the other."""
    parts: list[RenderableType] = [Text(heading(grids[0]), style="bold")]
    for grid in grids:
        shown = facets_of(grid)
        tables = [_table(grid, shown, facet) for facet in shown.facets]
        parts += [Text(summary(grid)), Columns(tables) if len(tables) > 1 else tables[0]]
        if shown.left_out:
            parts.append(Text(shown.left_out))
    return Group(*parts)


def _table(grid: TileGrid, shown: Facets, facet: Facet) -> RenderableType:
    if not facet.tiles:
        return Text(facet.title)
    table = Table(
        box=SQUARE, show_lines=True, show_header=bool(grid.labels),
        title=facet.title or None, title_justify="left",
    )  # fmt: skip
    if grid.labels:
        corner = "\\".join(label for label in (shown.row_label, shown.column_label) if label)
        table.add_column(Text(corner), no_wrap=True)
    for column in shown.columns:
        table.add_column(Text(column.words), justify="center", no_wrap=True)
    for row, tiles in zip(shown.rows, facet.tiles, strict=True):
        cells = [Text("…") if tile is None else _cell(grid, tile) for tile in tiles]
        table.add_row(*([Text(row.words)] if grid.labels else []), *cells)
    return table


def _cell(grid: TileGrid, tile: tuple[int, ...]) -> Text:
    holders = grid.holders.get(tile)
    if holders is None:
        return Text("·")
    colour = device_colour(holders[0], grid.devices)
    return Text(f" {devices_words(holders)} ", style=f"black on {colour}")
