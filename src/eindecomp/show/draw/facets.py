"""A tile grid as it is shown: small grids of two dimensions, the middle of large ones left out.

Rows and columns are the last two dimensions that are cut; each combination of pieces of other cut
dimensions is a grid of its own, a *facet*. Dimensions that are whole need no place.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from eindecomp.show.words import runs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.layout.boxes import Range
    from eindecomp.layout.tiling import TileGrid

_LINES, _FACETS = 16, 6  # the most rows or columns, and facets, that are shown in full
_FEWER = 8  # the most rows or columns where there are several facets
_FIRST, _LAST = 3, 1  # of more, this many at either end


@dataclass(frozen=True, slots=True)
class Line:
    """A row or a column of tiles, or, without a number, those that are left out."""

    number: int | None
    words: str


@dataclass(frozen=True, slots=True)
class Facet:
    """A grid of two dimensions: for each row, for each column the tile, None if left out."""

    title: str
    """The pieces of the other dimensions; "…" for facets that are left out."""
    tiles: tuple[tuple[tuple[int, ...] | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Facets:
    """What is shown of a grid."""

    row_label: str
    column_label: str
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    facets: tuple[Facet, ...]
    left_out: str
    """Says what is not shown; empty if nothing is left out."""


def facets_of(grid: TileGrid) -> Facets:
    """The rows, columns and facets of a grid."""
    across, down, others = _dimensions(grid)
    counts = [len(grid.pieces[d]) for d in others]
    total = prod(counts)
    most = _LINES if total == 1 else _FEWER
    rows, columns = (_lines(grid, d, most) for d in (down, across))
    facets: list[Facet] = []
    for number in _kept(total, _FACETS):
        if number is None:
            facets.append(Facet("…", ()))
            continue
        place = dict(zip(others, _digits(number, counts), strict=True))
        title = ", ".join(_piece(grid, d, at) for d, at in place.items())
        facets.append(Facet(title, _tiles(grid, place, (down, rows), (across, columns))))
    missing = [
        f"{len(grid.pieces[d])} pieces of {grid.labels[d]}"
        for d, lines in ((down, rows), (across, columns))
        if d is not None and any(line.number is None for line in lines)
    ]
    if total > _FACETS:
        missing.append(f"{total} pieces of {', '.join(grid.labels[d] for d in others)}")
    left_out = f"Of {' and '.join(missing)}, only the ends are shown." if missing else ""
    names = ["" if d is None else grid.labels[d] for d in (down, across)]
    return Facets(names[0], names[1], rows, columns, tuple(facets), left_out)


def _dimensions(grid: TileGrid) -> tuple[int | None, int | None, list[int]]:
    """The dimension of columns, that of rows, and those of facets."""
    rank = len(grid.pieces)
    cut = [d for d in range(rank) if len(grid.pieces[d]) > 1]
    whole = [d for d in range(rank) if d not in cut]
    shown = cut[-2:]
    while len(shown) < min(rank, 2):
        shown.append(whole.pop())
    shown.sort()
    across = shown[-1] if shown else None
    return across, shown[0] if len(shown) == 2 else None, cut[:-2]


def _lines(grid: TileGrid, dimension: int | None, most: int) -> tuple[Line, ...]:
    if dimension is None:
        return (Line(0, ""),)
    pieces = grid.pieces[dimension]
    return tuple(
        Line(at, "…" if at is None else range_words(pieces[at])) for at in _kept(len(pieces), most)
    )


def _tiles(
    grid: TileGrid,
    place: dict[int, int],
    down: tuple[int | None, tuple[Line, ...]],
    across: tuple[int | None, tuple[Line, ...]],
) -> tuple[tuple[tuple[int, ...] | None, ...], ...]:
    rank = range(len(grid.pieces))

    def tile(row: int, column: int) -> tuple[int, ...]:
        at = place | {down[0]: row, across[0]: column}
        return tuple(at.get(d, 0) for d in rank)

    return tuple(
        tuple(
            None if row.number is None or column.number is None else tile(row.number, column.number)
            for column in across[1]
        )
        for row in down[1]
    )


def _kept(count: int, most: int) -> list[int | None]:
    """The numbers that are shown, None where some are left out."""
    if count <= most:
        return list(range(count))
    return [*range(_FIRST), None, *range(count - _LAST, count)]


def _digits(number: int, counts: Sequence[int]) -> tuple[int, ...]:
    """The piece along each dimension of the facet with a number, the last varying fastest."""
    digits: list[int] = []
    for count in reversed(counts):
        number, digit = divmod(number, count)
        digits.append(digit)
    return tuple(reversed(digits))


def _piece(grid: TileGrid, dimension: int, at: int) -> str:
    return f"{grid.labels[dimension]} {range_words(grid.pieces[dimension][at])}"


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


def heading(grid: TileGrid) -> str:
    """The tensor with its sizes, and which layout it is."""
    sizes = ", ".join(f"{d}: {n}" for d, n in zip(grid.labels, grid.shape, strict=True))
    return f"{grid.tensor}[{sizes}]"


def summary(grid: TileGrid) -> str:
    """Which layout it is, and how many tiles lie on how many devices each."""
    counts = {len(own) for own in grid.holders.values()}
    tiles = len(grid.holders)
    copies = "/".join(map(str, sorted(counts)))
    each = "each on one device" if counts <= {1} else f"each on {copies} devices"
    if tiles == 1:
        [own] = grid.holders.values()
        each = "on one device" if len(own) == 1 else f"on {len(own)} devices"
    number = "one tile" if tiles == 1 else f"{tiles:,} tiles"
    return f"{grid.role}: {grid.layout} ({number}, {each})"
