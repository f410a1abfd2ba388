"""The tiles into which layouts cut a tensor, and the devices that hold each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
from rich.box import SQUARE
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eindecomp.errors import PlanError, quote
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.boxes import Range
from eindecomp.layout.cut import Cut, combined, interval
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import TileGrid, uncut
from eindecomp.planner.plan import Plan
from eindecomp.show.movements import held_cuts, read_cuts
from eindecomp.show.svg import device_colour, picture, save_text, tag, text_width, titled, write
from eindecomp.show.words import few, render, runs_of
from eindecomp.show.words import layout as layout_words

Tile = tuple[int, ...]
"""The number of its piece along each dimension."""
_Place = dict[int, int] | None
"""The pieces of a row or column, by dimension; None for those that are left out."""


def save_grid(grid: TileGrid, path: str | Path) -> None:
    """Write a grid, and those of the tensor's other layouts, as a picture or as text."""
    grids = (grid, *grid.others)
    save_text(path, {".svg": lambda: grid_svg(grids), ".txt": lambda: f"{grid_text(grids)}\n"})


def draw_tiles(plan: Plan, tensor: Vertex | str, path: str | Path | None = None) -> TileGrid:
    """The tiles of a tensor in all its layouts; written to a file if given.

    Planning may rewrite a graph, so a vertex of the user's own graph counts by its name.
    """
    name = tensor.name if isinstance(tensor, Vertex) else tensor
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"what to draw is given as a tensor or its name, not {quote(name)}")
    vertex = plan.graph[name]
    cuts = layouts_of(plan, vertex).items()
    first, *others = (tile_grid(plan.mesh, vertex, cut, role) for cut, role in cuts)
    grid = replace(first, others=tuple(others))
    if path is not None:
        grid.save(path)
    return grid


def layouts_of(plan: Plan, vertex: Vertex) -> dict[Cut, str]:
    """The cuts of a tensor, with what each is: its home, and its second layout if there is one.

    Inputs that are free, and fills, have no home: they lie as their readers read them.
    """
    if held := held_cuts(plan, vertex.name):
        return dict(zip(held, ("home", "second layout"), strict=False))
    readers: dict[Cut, dict[str, None]] = {}
    for reader, cut in read_cuts(plan, vertex.name):
        readers.setdefault(cut, {})[reader] = None
    if not readers:
        return {uncut(vertex.shape): "not read"}
    return {
        cut: f"as {few(list(names), 3)} {'reads' if len(names) == 1 else 'read'} it"
        for cut, names in readers.items()
    }


def tile_grid(mesh: Mesh, vertex: Vertex, cut: Cut, role: str) -> TileGrid:
    """The tiles of a tensor in one layout."""
    sides = [interval(mesh, span) for span in combined(cut)]
    held = np.ones(mesh.devices, dtype=np.bool_)
    for low, high in sides:
        # Where chunks are rounded up, the last devices may have nothing; nothing at all is a tile.
        held &= (high > low) | (high == low).all()
    devices = np.flatnonzero(held)
    pieces: list[tuple[Range, ...]] = []
    places: list[list[int]] = []
    for low, high in sides:
        starts, first, at = np.unique(low[devices], return_index=True, return_inverse=True)
        pieces.append(tuple(zip(starts.tolist(), high[devices][first].tolist(), strict=True)))
        places.append(at.tolist())
    holders: dict[Tile, list[int]] = {}
    for device, *place in zip(devices.tolist(), *places, strict=True):
        holders.setdefault(tuple(place), []).append(device)
    tiles = {place: tuple(holders[place]) for place in sorted(holders)}
    words = layout_words(mesh, vertex.labels, vertex.shape, cut)
    return TileGrid(
        vertex.name, vertex.labels, vertex.shape, tuple(pieces), tiles, mesh.devices, role, words
    )


# As rows and columns

_MOST_ROWS, _MOST_COLUMNS = 32, 16  # that are shown in full
_FIRST, _LAST = 3, 1  # of more, this many at either end
_WIDTH = 120  # characters of text

_MARGIN = 20.0
_CELL, _ROW = 44.0, 32.0  # the least width and the height of a tile
_SMALL, _TEXT = 10.5, 12.0


@dataclass(frozen=True, slots=True)
class TileTable:
    """A grid as it is shown: in two dimensions, the middle of a large one left out.

    Columns are the pieces of the last dimension that is cut, rows those of all others that are.
    """

    row_label: str
    column_label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    tiles: tuple[tuple[Tile | None, ...], ...]
    """For each row, for each column the tile, None if it is left out."""
    left_out: str
    """Says what is not shown; empty if nothing is left out."""


def tile_table(grid: TileGrid) -> TileTable:
    """The rows and columns of a grid."""
    rank = len(grid.pieces)
    cut = [d for d in range(rank) if len(grid.pieces[d]) > 1]
    whole = [d for d in reversed(range(rank)) if d not in cut]
    shown = sorted([*cut, *whole[: max(min(rank, 2) - len(cut), 0)]])
    sides = (shown[:-1], _MOST_ROWS), (shown[-1:], _MOST_COLUMNS)
    rows, columns = (_places(grid, dimensions, most) for dimensions, most in sides)

    def tile(row: _Place, column: _Place) -> Tile | None:
        if row is None or column is None:
            return None
        return tuple((row | column).get(d, 0) for d in range(rank))

    missing = [
        f"{prod(len(grid.pieces[d]) for d in own)} pieces of {_names(grid, own)}"
        for own, places in ((shown[:-1], rows), (shown[-1:], columns))
        if None in places
    ]
    return TileTable(
        _names(grid, shown[:-1]),
        _names(grid, shown[-1:]),
        tuple(_place_words(grid, place) for place in rows),
        tuple(_place_words(grid, place) for place in columns),
        tuple(tuple(tile(row, column) for column in columns) for row in rows),
        f"Of {' and '.join(missing)}, only the ends are shown." if missing else "",
    )


def _names(grid: TileGrid, dimensions: list[int]) -> str:
    return ", ".join(grid.labels[d] for d in dimensions)


def _places(grid: TileGrid, dimensions: list[int], most: int) -> list[_Place]:
    """The rows or columns that are shown."""
    every = np.ndindex(*(len(grid.pieces[d]) for d in dimensions))
    places: list[_Place] = [dict(zip(dimensions, at, strict=True)) for at in every]
    if len(places) > most:
        places[_FIRST:-_LAST] = [None]
    return places


def _place_words(grid: TileGrid, place: _Place) -> str:
    if place is None:
        return "…"
    return ", ".join(range_words(grid.pieces[d][at]) for d, at in place.items())


# Words


def range_words(piece: Range) -> str:
    """Where a piece begins and ends."""
    return f"{piece[0]}:{piece[1]}"


def devices_words(devices: Sequence[int], most: int = 12) -> str:
    """The numbers of devices, neighbours joined; cut short in the middle where they are many.

    >>> devices_words([0, 1, 2, 3]), devices_words([0, 4]), devices_words(range(0, 32, 2))
    ('0–3', '0, 4', '0, 2 … 30')
    """
    words = [
        f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
        for run in runs_of(devices)
    ]
    text = ", ".join(words)
    if len(text) <= most or len(words) <= 3:  # of three runs, none would be left out
        return text
    return f"{words[0]}, {words[1]} … {words[-1]}"


def _heading(grid: TileGrid) -> str:
    """The tensor with its sizes."""
    sizes = ", ".join(f"{d}: {n}" for d, n in zip(grid.labels, grid.shape, strict=True))
    return f"{grid.tensor}[{sizes}]"


def _summary(grid: TileGrid) -> str:
    """Which layout it is, and how many tiles lie on how many devices each."""
    tiles = len(grid.holders)
    counts = sorted({len(own) for own in grid.holders.values()})
    devices = f"{'/'.join(map(str, counts))} devices" if counts and counts != [1] else "one device"
    number, each = ("one tile", "on") if tiles == 1 else (f"{tiles:,} tiles", "each on")
    return f"{grid.role}: {grid.layout} ({number}, {each} {devices})"


# Text


def grid_text(grids: Sequence[TileGrid]) -> str:
    """The grids as plain text."""
    return render(_WIDTH, rich_grid(grids)).strip("\n")


def rich_grid(grids: Sequence[TileGrid]) -> RenderableType:
    """The grids one below the other."""
    parts: list[RenderableType] = [Text(_heading(grids[0]), style="bold")]
    for grid in grids:
        shown = tile_table(grid)
        parts += [Text(_summary(grid)), _rich_table(grid, shown)]
        if shown.left_out:
            parts.append(Text(shown.left_out))
    return Group(*parts)


def _rich_table(grid: TileGrid, shown: TileTable) -> Table:
    table = Table(box=SQUARE, show_lines=True, show_header=bool(grid.labels))
    if grid.labels:
        corner = "\\".join(label for label in (shown.row_label, shown.column_label) if label)
        table.add_column(Text(corner), no_wrap=True)
    for words in shown.columns:
        table.add_column(Text(words), justify="center", no_wrap=True)
    for words, tiles in zip(shown.rows, shown.tiles, strict=True):
        cells = [Text(words)] if grid.labels else []
        for tile in tiles:
            holders = None if tile is None else grid.holders.get(tile)
            if holders is None:
                cells.append(Text("…" if tile is None else "·"))
            else:
                colour = device_colour(holders[0])
                cells.append(Text(f" {devices_words(holders)} ", style=f"black on {colour}"))
        table.add_row(*cells)
    return table


# Pictures


def grid_svg(grids: Sequence[TileGrid]) -> str:
    """The grids of a tensor one below the other."""
    inside = [write(_MARGIN, 32, _heading(grids[0]), 15, class_="head")]
    y, right = 44.0, _MARGIN + text_width(_heading(grids[0]), 15)
    for grid in grids:
        shown = tile_table(grid)
        inside.append(write(_MARGIN, y + 14, _summary(grid), _TEXT, class_="quiet"))
        drawn, width, y = _drawn(grid, shown, y + 26)
        inside += drawn
        right = max(right, width, _MARGIN + text_width(_summary(grid), _TEXT))
        if shown.left_out:
            inside.append(write(_MARGIN, y + 4, shown.left_out, _SMALL, class_="quiet"))
            right = max(right, _MARGIN + text_width(shown.left_out, _SMALL))
            y += 20
    title = f"Tiles of {grids[0].tensor}"
    return picture(right + _MARGIN, y + 4, title, "; ".join(map(_summary, grids)), *inside)


def _drawn(grid: TileGrid, shown: TileTable, top: float) -> tuple[list[str], float, float]:
    """A table from a height on: what is drawn, and how far it reaches."""
    cell = max(
        _CELL,
        *(text_width(devices_words(own), _TEXT) + 14 for own in grid.holders.values()),
        *(text_width(words, _SMALL) + 8 for words in shown.columns),
    )
    words_width = max(text_width(words, _SMALL) for words in shown.rows)
    label_width = text_width(shown.row_label, _TEXT)
    left = _MARGIN + (words_width + label_width + 14 if shown.row_label else 0.0)
    top += 34.0 if shown.column_label else 8.0
    width, height = cell * len(shown.columns), _ROW * len(shown.rows)
    drawn = [write(left + width / 2, top - 20, shown.column_label, _TEXT, "middle")]
    for k, words in enumerate(shown.columns):
        drawn.append(write(left + cell * (k + 0.5), top - 6, words, _SMALL, "middle", "quiet"))
    if shown.row_label:
        x = left - words_width - 14
        drawn.append(write(x, top + height / 2 + 4, shown.row_label, _TEXT, "end"))
    for k, (words, tiles) in enumerate(zip(shown.rows, shown.tiles, strict=True)):
        y = top + _ROW * k
        drawn.append(write(left - 8, y + _ROW / 2 + 4, words, _SMALL, "end", "quiet"))
        drawn += [_drawn_tile(grid, tile, left + cell * n, y, cell) for n, tile in enumerate(tiles)]
    return drawn, left + width, top + height + 16


def _drawn_tile(grid: TileGrid, tile: Tile | None, x: float, y: float, width: float) -> str:
    middle = (x + width / 2, y + _ROW / 2 + 4)
    if tile is None:
        return write(*middle, "…", _TEXT, "middle", "quiet")
    sides = zip(grid.labels, grid.box(tile), strict=True)
    name = " ".join([grid.tensor, ", ".join(f"{label} {range_words(own)}" for label, own in sides)])
    holders = grid.holders.get(tile)
    if holders is None:
        empty = tag("rect", x=x, y=y, width=width, height=_ROW, class_="no-tile")
        return titled(f"{name}: on no device", empty)
    plural = "device" if len(holders) == 1 else "devices"
    colour = device_colour(holders[0])
    return titled(
        f"{name.rstrip()}: {plural} {devices_words(holders, 200)}",
        tag("rect", x=x, y=y, width=width, height=_ROW, rx=3, class_="tile", fill=colour),
        write(*middle, devices_words(holders), _TEXT, "middle", "on-tile"),
    )
