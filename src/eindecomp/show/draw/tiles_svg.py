"""Tile grids as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.show.draw.facets import devices_words, facets_of, heading, range_words, summary
from eindecomp.show.draw.svg import device_colour, picture, tag, text_width, titled, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.layout.tiling import TileGrid
    from eindecomp.show.draw.facets import Facet, Facets

_MARGIN, _GAP = 20.0, 26.0
_CELL, _ROW = 44.0, 32.0  # the least width and the height of a tile
_SMALL, _TEXT = 10.5, 12.0
_WIDEST = 1080.0  # facets beyond it start a new line


def grid_svg(grids: Sequence[TileGrid]) -> str:
    """The grids of a tensor one below the other."""
    inside: list[str] = [write(_MARGIN, 32, heading(grids[0]), 15, class_="head")]
    y, right = 44.0, _MARGIN + text_width(heading(grids[0]), 15)
    for grid in grids:
        shown = facets_of(grid)
        y += 14
        inside.append(write(_MARGIN, y, summary(grid), _TEXT, class_="quiet"))
        right = max(right, _MARGIN + text_width(summary(grid), _TEXT))
        drawn, width, y = _facets(grid, shown, y + 12)
        inside += drawn
        right = max(right, width)
        if shown.left_out:
            inside.append(write(_MARGIN, y + 4, shown.left_out, _SMALL, class_="quiet"))
            right = max(right, _MARGIN + text_width(shown.left_out, _SMALL))
            y += 20
    title = f"Tiles of {grids[0].tensor}"
    return picture(right + _MARGIN, y + 4, title, "; ".join(map(summary, grids)), *inside)


def _facets(grid: TileGrid, shown: Facets, top: float) -> tuple[list[str], float, float]:
    """All facets of a grid from a height on: what is drawn, and how far it reaches."""
    words = [devices_words(own) for own in grid.holders.values()]
    cell = max([_CELL, *(text_width(word, _TEXT) + 14 for word in words)])
    cell = max([cell, *(text_width(line.words, _SMALL) + 8 for line in shown.columns)])
    gutter = max(text_width(line.words, _SMALL) for line in shown.rows) + 8
    gutter = gutter + 14 if shown.row_label else 0.0
    width, height = gutter + cell * len(shown.columns), _ROW * len(shown.rows)
    head = 34.0 + (16 if any(facet.title for facet in shown.facets) else 0)
    head = head if shown.column_label else 8.0
    x, y, right, drawn = _MARGIN, top, _MARGIN, list[str]()
    for facet in shown.facets:
        own = width if facet.tiles else 20.0
        if x > _MARGIN and x + own > _WIDEST:
            x, y = _MARGIN, y + head + height + _GAP
        if facet.tiles:
            place = (x + gutter, y + head, cell)
            drawn += _facet(grid, shown, facet, place)
        else:
            drawn.append(write(x + own / 2, y + head + height / 2, "…", 16, "middle", "quiet"))
        right = max(right, x + own)
        x += own + _GAP
    return drawn, right, y + head + height + 16


def _facet(
    grid: TileGrid,
    shown: Facets,
    facet: Facet,
    place: tuple[float, float, float],
) -> list[str]:
    left, top, cell = place
    height = _ROW * len(shown.rows)
    drawn: list[str] = []
    if facet.title:
        drawn.append(write(left, top - 38, facet.title, _TEXT, class_="head"))
    middle = left + cell * len(shown.columns) / 2
    drawn.append(write(middle, top - 20, shown.column_label, _TEXT, "middle"))
    for k, line in enumerate(shown.columns):
        at = left + cell * (k + 0.5)
        drawn.append(write(at, top - 6, line.words, _SMALL, "middle", "quiet"))
    if shown.row_label:
        widest = max(text_width(line.words, _SMALL) for line in shown.rows)
        drawn.append(write(left - widest - 14, top + height / 2 + 4, shown.row_label, _TEXT, "end"))
    for k, (line, tiles) in enumerate(zip(shown.rows, facet.tiles, strict=True)):
        y = top + _ROW * k
        drawn.append(write(left - 8, y + _ROW / 2 + 4, line.words, _SMALL, "end", "quiet"))
        for n, tile in enumerate(tiles):
            drawn.append(_tile(grid, tile, (left + cell * n, y, cell)))
    return drawn


def _tile(
    grid: TileGrid,
    tile: tuple[int, ...] | None,
    place: tuple[float, float, float],
) -> str:
    x, y, width = place
    if tile is None:
        return write(x + width / 2, y + _ROW / 2 + 4, "…", _TEXT, "middle", "quiet")
    holders = grid.holders.get(tile)
    box = ", ".join(
        f"{label} {range_words(own)}"
        for label, own in zip(grid.labels, grid.box(tile), strict=True)
    )
    if holders is None:
        empty = tag("rect", x=x, y=y, width=width, height=_ROW, class_="no-tile")
        return titled(f"{grid.tensor} {box}: on no device", empty)
    plural = "device" if len(holders) == 1 else "devices"
    colour = device_colour(holders[0], grid.devices)
    return titled(
        f"{grid.tensor} {box}: {plural} {devices_words(holders, 200)}".replace("  ", " "),
        tag("rect", x=x, y=y, width=width, height=_ROW, rx=3, class_="tile", fill=colour),
        write(x + width / 2, y + _ROW / 2 + 4, devices_words(holders), _TEXT, "middle", "on-tile"),
    )
