"""The tiles into which layouts cut a tensor, and the devices that hold each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError, quote, suggest
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.cut import interval
from eindecomp.layout.tiling import TileGrid, uncut
from eindecomp.layout.view import is_planned
from eindecomp.show.draw.svg import save_text
from eindecomp.show.draw.tile_pictures import grid_svg, grid_text
from eindecomp.show.movements import read_cuts
from eindecomp.show.words import layout as layout_words

if TYPE_CHECKING:
    from pathlib import Path

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
    vertex = drawn_vertex(plan, tensor)
    if layout is not None and layout not in LAYOUTS:
        known = suggest(str(layout), LAYOUTS)
        raise PlanError(f"a tensor has a home and perhaps a second layout, not {layout!r}{known}")
    cuts = layouts_of(plan, vertex, layout)
    if not cuts:
        raise PlanError(f"{vertex.name!r} is kept in one layout only: there is no second")
    return [tile_grid(plan.mesh, vertex, cut, role) for cut, role in cuts.items()]


def layouts_of(plan: Plan, vertex: Vertex, layout: str | None = None) -> dict[Cut, str]:
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


def tile_grid(mesh: Mesh, vertex: Vertex, cut: Cut, role: str) -> TileGrid:
    """The tiles of a tensor in one layout."""
    sides = [interval(mesh, span) for span in cut]
    held = np.ones(mesh.devices, dtype=np.bool_)
    for low, high in sides:
        # Where chunks are rounded up, the last devices may have nothing; nothing at all is a tile.
        held &= (high > low) | (high == low).all()
    devices = np.flatnonzero(held)
    pieces: list[tuple[Range, ...]] = []
    places: list[list[int]] = []
    for low, high in sides:
        starts, first, at = np.unique(low[devices], return_index=True, return_inverse=True)
        ends = high[devices][first]
        pieces.append(tuple(zip(starts.tolist(), ends.tolist(), strict=True)))
        places.append(at.tolist())
    holders: dict[tuple[int, ...], list[int]] = {}
    for device, *place in zip(devices.tolist(), *places, strict=True):
        holders.setdefault(tuple(place), []).append(device)
    tiles = {place: tuple(holders[place]) for place in sorted(holders)}
    words = layout_words(mesh, vertex.labels, vertex.shape, cut)
    return TileGrid(
        vertex.name, vertex.labels, vertex.shape, tuple(pieces), tiles, mesh.devices, role, words
    )


def drawn_vertex(plan: Plan, tensor: Vertex | str) -> Vertex:
    """The vertex of a plan's graph with a name, or with that of a vertex.

    Planning may rewrite a graph, so a vertex of the user's own graph counts by its name.
    """
    name = tensor.name if isinstance(tensor, Vertex) else tensor
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"what to draw is given as a tensor or its name, not {quote(name)}")
    return plan.graph[name]
