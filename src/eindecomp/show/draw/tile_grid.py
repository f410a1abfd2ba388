"""The tiles into which layouts cut a tensor, and the devices that hold each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError, suggest
from eindecomp.layout.cut import interval
from eindecomp.layout.tiling import TileGrid, uncut
from eindecomp.layout.view import is_planned
from eindecomp.show.draw.named import named
from eindecomp.show.draw.save import save_text
from eindecomp.show.draw.tile_text import grid_text
from eindecomp.show.draw.tiles_svg import grid_svg
from eindecomp.show.movements import read_cuts
from eindecomp.show.words import layout as layout_words

if TYPE_CHECKING:
    from pathlib import Path

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.boxes import Range
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.plan import Plan

LAYOUTS = ("home", "second")


def save_grid(grid: TileGrid, path: str | Path) -> None:
    """Write a grid, and those of the tensor's other layouts, as a picture or as text."""
    grids = (grid, *grid.others)
    save_text(path, {".svg": lambda: grid_svg(grids), ".txt": lambda: f"{grid_text(grids)}\n"})


def draw_tiles(
    plan: Plan, tensor: Vertex | str, path: str | Path | None = None, layout: str | None = None
) -> TileGrid:
    """The tiles of a tensor in all its layouts, or in one; written to a file if given."""
    first, *others = tile_grids(plan, tensor, layout)
    grid = replace(first, others=tuple(others))
    if path is not None:
        grid.save(path)
    return grid


def tile_grids(plan: Plan, tensor: Vertex | str, layout: str | None = None) -> list[TileGrid]:
    """A grid for each layout of a tensor: "home", "second", or by default all.

    Inputs that are free, and fills, have no home: they lie as their readers read them.
    """
    vertex = named(plan, tensor)
    if layout is not None and layout not in LAYOUTS:
        known = suggest(str(layout), LAYOUTS)
        raise PlanError(f"a tensor has a home and perhaps a second layout, not {layout!r}{known}")
    cuts = _layouts(plan, vertex, layout)
    if not cuts:
        raise PlanError(f"{vertex.name!r} is kept in one layout only: there is no second")
    return [_grid(plan.mesh, vertex, cut, role) for cut, role in cuts.items()]


def _layouts(plan: Plan, vertex: Vertex, layout: str | None) -> dict[Cut, str]:
    """The cuts of a tensor, with what each is."""
    name = vertex.name
    if is_planned(vertex) or name in plan.given:
        own = plan.decisions[name].layouts if is_planned(vertex) else plan.given[name]
        roles = {own.home: "home"}
        if own.second is not None:
            roles[own.second] = "second layout"
        return {c: r for c, r in roles.items() if layout is None or r.startswith(layout)}
    if layout == "second":
        return {}
    if layout == "home":
        raise PlanError(f"{name!r} has no home: it lies as its readers read it; leave out layout")
    readers: dict[Cut, list[str]] = {}
    for reader, cut in read_cuts(plan, name):
        readers.setdefault(cut, []).append(reader)
    if not readers:
        return {uncut(vertex.shape): "not read"}
    return {cut: f"as {_some(names)} it" for cut, names in readers.items()}


def _some(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return f"{names[0]} reads"
    listed = ", ".join(names[:3])
    return f"{listed} and {len(names) - 3} more read" if len(names) > 3 else f"{listed} read"


def _grid(mesh: Mesh, vertex: Vertex, cut: Cut, role: str) -> TileGrid:
    pieces: list[tuple[Range, ...]] = []
    index = np.zeros(mesh.devices, dtype=np.int64)
    held = np.ones(mesh.devices, dtype=np.bool_)
    for span in cut:
        low, high = interval(mesh, span)
        # Where chunks are rounded up, the last devices may have nothing; nothing at all is a tile.
        own = (high > low) | (high == low).all()
        starts, at = np.unique(np.where(own, low, -1), return_inverse=True)
        ends = dict(zip(low[own].tolist(), high[own].tolist(), strict=True))
        first = int(starts[0] == -1)
        pieces.append(tuple((start, ends[start]) for start in starts[first:].tolist()))
        held &= own
        index = index * len(pieces[-1]) + np.maximum(at - first, 0)
    holders: dict[int, list[int]] = {}
    for device in np.flatnonzero(held).tolist():
        holders.setdefault(int(index[device]), []).append(device)
    counts = [len(own) for own in pieces]
    tiles = {_unravel(at, counts): tuple(holders[at]) for at in sorted(holders)}
    words = layout_words(mesh, vertex.labels, vertex.shape, cut)
    return TileGrid(
        vertex.name, vertex.labels, vertex.shape, tuple(pieces), tiles, mesh.devices, role, words
    )


def _unravel(at: int, counts: list[int]) -> tuple[int, ...]:
    place: list[int] = []
    for count in reversed(counts):
        at, digit = divmod(at, count)
        place.append(digit)
    return tuple(reversed(place))
