"""A program as threads that share memory carry it out: the tiles of each vertex, as plain data.

Devices that would compute the same tile (it is replicated) share memory here, so that one of them
does. Moves cost nothing but are counted: they are those of the program.

A shortcut that sharing memory allows, which changes how a program rounds: tiles are cut for the
cores there are, along labels of results rather than of sums. Vertices that are next to nothing
become one call, as a thread is done before another has woken up; products get few, large tiles, as
BLAS copies both matrices into an order of its own for every tile again. In a program that is long
as a whole, all else stays as it was planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

import numpy as np

from eindecomp.engines.resources import seconds_of
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill
from eindecomp.kernels.library import library_of
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.layout.boxes import Box, Range, volume
from eindecomp.layout.view import is_planned, view_of
from eindecomp.tra.program.device_row import step_on
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Generate,
    Move,
    ReduceScatter,
    kind_of,
)

_BRIEF = 2e-2
"""Seconds of a program below which all its EinSums are cut anew."""
APART = 2e-5
"""Seconds of a vertex from which tiles of it at once are faster than all of it."""
TOGETHER = 3e-5
"""Seconds of a program from which it is worth calling other cores at all."""
_LINE = 16
"""Elements to whose multiples long labels are cut: vectors and lines of the cache stay whole."""
_EVEN = 0.8
"""How much of all cores' time must be used if the largest tile takes longest."""
_WIDE = 2000
"""Rows or columns from which a tile of a product gains nothing by more of them."""


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
class TiledVertex:
    """The tiles of a vertex; those of one that is reduced hold partial results."""

    name: str
    tiles: tuple[Tile, ...]
    reductions: tuple[Reduction, ...] = ()

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


# Tiles for the cores there are


def cut_for_cores(program: TiledProgram, cores: int) -> TiledProgram:
    """The same program with tiles for so many cores, as far as vertices are worth it."""
    graph, library = program.graph, library_of(np.ndarray)
    seconds = {tiled.name: seconds_of(graph, graph[tiled.name]) for tiled in program.vertices}
    total = sum(seconds.values())
    count = min(cores, program.devices) if total >= TOGETHER else 1

    def cut(tiled: TiledVertex) -> TiledVertex:
        op = graph[tiled.name].op
        if not isinstance(op, EinSum | Fill):
            return tiled
        if count < 2 or seconds[tiled.name] < APART:
            return undivided(graph, tiled)
        if isinstance(op, Fill):
            return tiled
        if total >= _BRIEF and not library.kernel(graph, graph[tiled.name]).is_product:
            return tiled
        return _cut_result(graph, undivided(graph, tiled), op, count) or tiled

    return replace(program, vertices=tuple(map(cut, program.vertices)))


def _cut_result(graph: Graph, whole: TiledVertex, op: EinSum, count: int) -> TiledVertex | None:
    """An EinSum of one tile cut along one label of its result; None if no label is long enough."""
    vertex, (tile,) = graph[whole.name], whole.tiles
    label = _best_label(graph, op, vertex.inputs, vertex.shape, count)
    if label is None:
        return None
    size = vertex.shape[op.output.index(label)]
    # Several for each core, if all are large enough: one that is slower takes fewer.
    count *= max(1, min(len(tile.devices), size // _WIDE) // count)
    groups: list[tuple[int, ...]] = [(k,) for k in range(count)]
    if (have := len(tile.devices)) >= count:
        groups = [tile.devices[k * have // count : (k + 1) * have // count] for k in range(count)]
    unit = _LINE if size >= 4 * count * _LINE else 1
    cuts = [round(k * size / (count * unit)) * unit for k in range(count)]
    tiles = tuple(
        Tile(
            _with(op.output, tile.box, label, reach),
            tuple(
                None if box is None else _with(labels, box, label, reach)
                for labels, box in zip(op.inputs, tile.reads, strict=True)
            ),
            devices,
        )
        for reach, devices in zip(pairwise([*cuts, size]), groups, strict=True)
    )
    return replace(whole, tiles=tiles)


def _best_label(
    graph: Graph, op: EinSum, inputs: tuple[str, ...], shape: tuple[int, ...], count: int
) -> str | None:
    """The label whose cut leaves the least to be read by all, the outermost of several."""

    def gain(label: str, size: int) -> float:
        even = size / (count * ceil(size / count)) if size else 0.0
        cut = sum(
            graph[name].elements
            for name, labels in zip(inputs, op.inputs, strict=True)
            if label in labels
        )
        return even * (1 + cut) if even >= _EVEN else 0.0

    gains = {label: gain(label, size) for label, size in zip(op.output, shape, strict=True)}
    best = max(gains, key=lambda label: gains[label], default=None)
    return best if best is not None and gains[best] else None


def _with(labels: Labels, box: Box, label: str, reach: Range) -> Box:
    return tuple(reach if name == label else own for name, own in zip(labels, box, strict=True))
