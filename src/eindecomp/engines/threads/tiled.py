"""A program as threads that share memory carry it out: the tiles of each vertex, as plain data.

Devices that would compute the same tile (it is replicated) share memory here, so that one of them
does. Moves cost nothing but are counted: they are those of the program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eindecomp.layout.boxes import volume
from eindecomp.layout.view import is_planned, view_of
from eindecomp.tra.program.device_row import step_on
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Generate,
    Move,
    ReduceScatter,
    kind_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.program import Program


@dataclass(frozen=True, slots=True)
class Tile:
    """A kernel call: the block that it makes, those that it reads, and whose tile it is."""

    box: Box
    reads: tuple[Box | None, ...] = ()
    devices: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A block of a result that partial results are combined to, in the order of `members`."""

    box: Box
    device: int
    members: tuple[int, ...]
    """The tiles that hold the partial results, by their places among those of the vertex."""


@dataclass(frozen=True, slots=True)
class SumInPlace:
    """A sum that is made by adding a product to its other term, where that lies."""

    total: str
    term: str


@dataclass(frozen=True, slots=True)
class TiledVertex:
    """The tiles of a vertex; those of one that is reduced hold partial results."""

    name: str
    tiles: tuple[Tile, ...]
    reductions: tuple[Reduction, ...] = ()
    added: SumInPlace | None = None

    @property
    def is_partial(self) -> bool:
        """Whether tiles hold partial results."""
        return bool(self.reductions)


@dataclass(frozen=True, slots=True)
class CountedMove:
    """What a step moves between devices."""

    vertex: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class TiledProgram:
    """The vertices that are computed, in order, and what moves for them."""

    graph: Graph
    devices: int
    vertices: tuple[TiledVertex, ...]
    moves: tuple[CountedMove, ...]


def tile_program(program: Program) -> TiledProgram:
    """The tiles of a program, each that is distinct once."""
    vertices: dict[str, TiledVertex] = {}
    places: dict[str, dict[int, int]] = {}
    moves: list[CountedMove] = []
    for step in program.steps:
        match step:
            case Generate():
                name = program.buffers[step.into].tensor
                if name not in vertices:
                    vertices[name] = _generated(program, step)
            case Compute():
                vertices[step.vertex], places[step.vertex] = _computed(program, step)
            case ReduceScatter():
                own = vertices[step.vertex]
                reductions = _reductions(program, step, places[step.vertex])
                vertices[step.vertex] = TiledVertex(own.name, own.tiles, reductions)
            case _:
                pass
        if isinstance(step, Move | ReduceScatter | AllGather) and (n := program.moved_by(step)):
            moves.append(CountedMove(step.vertex, kind_of(step), n))
    return TiledProgram(program.graph, program.devices, tuple(vertices.values()), tuple(moves))


def _computed(program: Program, step: Compute) -> tuple[TiledVertex, dict[int, int]]:
    """The distinct tiles of a vertex in the order of devices, and which of them each device has.

    So the first part of a sum is that of its lowest device, with which reductions begin.
    """
    tiles: dict[tuple[Box, tuple[Box | None, ...]], int] = {}
    found: list[Tile] = []
    place: dict[int, int] = {}
    for device in range(program.devices):
        own = step_on(program.mesh, program.buffers, step, device)
        key = (own.box, own.reads)
        if key not in tiles:
            tiles[key] = len(found)
            found.append(Tile(own.box, own.reads, (device,)))
        place[device] = tiles[key]
    return TiledVertex(step.vertex, tuple(found)), place


def _reductions(
    program: Program, step: ReduceScatter, place: dict[int, int]
) -> tuple[Reduction, ...]:
    empty = not program.graph[step.vertex].elements
    found: dict[Box, Reduction] = {}
    for device in range(program.devices):
        own = step_on(program.mesh, program.buffers, step, device)
        # Of an empty tensor one makes the array.
        if own.box not in found and (volume(own.box) or empty):
            members = tuple(place[member] for member in own.members)
            found[own.box] = Reduction(own.box, device, members)
    return tuple(found.values())


def _generated(program: Program, step: Generate) -> TiledVertex:
    """The pieces of a fill that its first reader wants, if they make it up; otherwise all of it."""
    buffer = program.buffers[step.into]
    vertex = program.graph[buffer.tensor]
    tiles: dict[Box, Tile] = {}
    for device in range(program.devices):
        box = buffer.box(program.mesh, device)
        if volume(box):
            tiles.setdefault(box, Tile(box, (), (device,)))
    if not tiles or sum(volume(box) for box in tiles) != vertex.elements:
        return TiledVertex(vertex.name, (Tile(whole_box(vertex.shape)),))
    return TiledVertex(vertex.name, tuple(tiles.values()))


def whole_box(shape: Sequence[int]) -> Box:
    """All of a tensor."""
    return tuple((0, size) for size in shape)


def undivided(graph: Graph, tiled: TiledVertex) -> TiledVertex:
    """A vertex as one tile that belongs to all its devices, however it was cut."""
    if len(tiled.tiles) == 1 and not tiled.is_partial:
        return tiled
    vertex = graph[tiled.name]
    reads: tuple[Box | None, ...] = ()
    if is_planned(vertex):
        reads = tuple(
            None if dims is None else tuple((dim.start, dim.stop) for dim in dims)
            for dims in view_of(graph, vertex).reads
        )
    devices = tuple(sorted(device for tile in tiled.tiles for device in tile.devices))
    tile = Tile(whole_box(vertex.shape), reads, devices)
    return replace(tiled, tiles=(tile,), reductions=())
