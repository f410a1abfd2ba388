"""The tiles that threads compute: a program whose devices share one memory, as plain data.

A tile that several devices hold is computed once. Nothing is copied between devices. What a plan
leaves pending is combined at once, and not rounded: in one memory nothing is gained by waiting.

Sharing memory allows a shortcut, which changes rounding: tiles are cut for the cores there are,
along labels of results rather than of sums. A vertex that takes next to no time becomes one call,
since one thread is done before another has woken up. A product gets few, large tiles, since BLAS
packs both matrices again for every tile. In a program that takes long, other vertices keep the
tiles that were planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil

from eindecomp.engines.resources import seconds_of
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill
from eindecomp.graph.parts import aggregates
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import is_product
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.layout.boxes import Box, Range, volume
from eindecomp.layout.view import Dim, View, is_planned, reached, view_of
from eindecomp.tra.program.device_row import step_on
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import Compute, Generate, ReduceScatter

_BRIEF = 2e-2
"""Seconds of a program below which all its EinSums are cut anew."""
APART = 2e-5
"""Seconds of a vertex from which tiles of it at once are faster than all of it."""
TOGETHER = 1e-4
"""Seconds of a program from which other cores are worth calling: one may take that long to wake."""
_LINE = 16
"""Elements to whose multiples long labels are cut: vectors and lines of the cache stay whole."""
_EVEN = 0.8
"""How much of all cores' time must be used if the largest tile takes longest."""
_WIDE = 2000
"""Rows or columns from which a tile of a product gains nothing by more of them."""


@dataclass(frozen=True, slots=True)
class VertexTile:
    """A block of a result, the blocks it is computed from, and the devices that hold it."""

    box: Box
    reads: tuple[Box | None, ...] = ()
    devices: tuple[int, ...] = (0,)
    numbers: Box = ()
    """What it has of the labels that only windows have; nothing says all."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A block of a result, combined from partial results in the order of `members`."""

    box: Box
    device: int
    members: tuple[int, ...]
    """Positions, among the tiles of the vertex, of those that hold the partial results."""


@dataclass(frozen=True, slots=True)
class TiledVertex:
    """The tiles of a vertex; they hold partial results if there are reductions."""

    name: str
    tiles: tuple[VertexTile, ...]
    reductions: tuple[Reduction, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether tiles hold partial results."""
        return bool(self.reductions)


@dataclass(frozen=True)
class SharedMemoryProgram:
    """The tiles of all computed vertices, in order."""

    graph: Graph
    devices: int
    vertices: tuple[TiledVertex, ...]

    @cached_property
    def seconds(self) -> dict[str, float]:
        """About how long one core takes to compute each vertex."""
        graph = self.graph
        return {tiled.name: seconds_of(graph, graph[tiled.name]) for tiled in self.vertices}


def tile_program(program: Program) -> SharedMemoryProgram:
    """The distinct tiles of a planned program."""
    vertices: dict[str, TiledVertex] = {}
    places: dict[str, dict[int, int]] = {}
    for step in program.steps:
        match step:
            case Generate():
                name = program.buffers[step.into].tensor
                if name not in vertices:
                    vertices[name] = _generated(program, step)
            case Compute():
                name = program.buffers[step.into].tensor
                vertices[name], places[name] = _computed(program, step)
                if (step.is_partial or _is_rounded(program, step)) and name != step.vertex:
                    vertices[name] = _combined_at_once(vertices[name])
            case ReduceScatter():
                source, name = (program.buffers[k].tensor for k in (step.source, step.into))
                if source == name:
                    reductions = _reductions(program, step, places[name])
                    vertices[name] = replace(vertices[name], reductions=reductions)
                elif name not in vertices:
                    vertices[name] = _rounded(program, step)
            case _:
                pass
    return SharedMemoryProgram(program.graph, program.devices, tuple(vertices.values()))


def _is_rounded(program: Program, step: Compute) -> bool:
    """Whether a step computes parts of a sum that are rounded one by one where they travel."""
    vertex = program.computed_by(step)
    return vertex.reduce_dtype is not None and aggregates(vertex)


def _computed(program: Program, step: Compute) -> tuple[TiledVertex, dict[int, int]]:
    """The distinct tiles of a vertex, and the position of each device's tile among them.

    They are in the order of devices: reductions begin with the part of the lowest device.
    """
    tiles: dict[tuple[Box, tuple[Box | None, ...], Box], int] = {}
    distinct: list[VertexTile] = []
    place: dict[int, int] = {}
    for device in range(program.devices):
        own = step_on(program.mesh, program.buffers, step, device)
        key = (own.box, own.reads, own.numbers)
        if key not in tiles:
            tiles[key] = len(distinct)
            distinct.append(VertexTile(own.box, own.reads, (device,), own.numbers))
        place[device] = tiles[key]
    return TiledVertex(program.buffers[step.into].tensor, tuple(distinct)), place


def _combined_at_once(tiled: TiledVertex) -> TiledVertex:
    """A vertex whose partial results are combined as they lie."""
    members: dict[Box, list[int]] = {}
    for number, tile in enumerate(tiled.tiles):
        members.setdefault(tile.box, []).append(number)
    reductions = [
        Reduction(box, tiled.tiles[own[0]].devices[0], tuple(own)) for box, own in members.items()
    ]
    return replace(tiled, reductions=tuple(reductions))


def _rounded(program: Program, step: ReduceScatter) -> TiledVertex:
    """A vertex made of its combined parts, in the blocks in which devices combine them."""
    tiles: dict[Box, VertexTile] = {}
    for device in range(program.devices):
        box = step_on(program.mesh, program.buffers, step, device).box
        if volume(box) or not program.computed_by(step).elements:
            tiles.setdefault(box, VertexTile(box, (box,), (device,)))
    return TiledVertex(program.computed_by(step).name, tuple(tiles.values()))


def _reductions(
    program: Program, step: ReduceScatter, place: dict[int, int]
) -> tuple[Reduction, ...]:
    empty = not program.graph[step.vertex].elements
    reductions: dict[Box, Reduction] = {}
    for device in range(program.devices):
        own = step_on(program.mesh, program.buffers, step, device)
        # Of an empty tensor one makes the array.
        if own.box not in reductions and (volume(own.box) or empty):
            members = tuple(place[member] for member in own.members)
            reductions[own.box] = Reduction(own.box, device, members)
    return tuple(reductions.values())


def _generated(program: Program, step: Generate) -> TiledVertex:
    """A fill in the pieces that its first reader wants if they make it up, else in one."""
    buffer = program.buffers[step.into]
    vertex = program.graph[buffer.tensor]
    tiles: dict[Box, VertexTile] = {}
    for device in range(program.devices):
        box = buffer.box(program.mesh, device)
        if volume(box):
            tiles.setdefault(box, VertexTile(box, (), (device,)))
    if not tiles or sum(volume(box) for box in tiles) != vertex.elements:
        return TiledVertex(vertex.name, (VertexTile(whole_box(vertex.shape)),))
    return TiledVertex(vertex.name, tuple(tiles.values()))


def whole_box(shape: Sequence[int]) -> Box:
    """The box of a whole tensor."""
    return tuple((0, size) for size in shape)


def undivided(graph: Graph, tiled: TiledVertex) -> TiledVertex:
    """A vertex as one tile that all its devices hold."""
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
    tile = VertexTile(whole_box(vertex.shape), reads, devices)
    return replace(tiled, tiles=(tile,), reductions=())


# Tiles for the cores there are


def cut_for_cores(program: SharedMemoryProgram, cores: int) -> SharedMemoryProgram:
    """The same program with tiles for `cores` threads, where a vertex is worth several."""
    graph, seconds = program.graph, program.seconds
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
        if total >= _BRIEF and not is_product(op):
            return tiled
        return _cut_result(graph, undivided(graph, tiled), op, count) or tiled

    return replace(program, vertices=tuple(map(cut, program.vertices)))


def _cut_result(graph: Graph, whole: TiledVertex, op: EinSum, count: int) -> TiledVertex | None:
    """One tile of an EinSum cut along a label of its result; None if no label is long enough."""
    vertex, (tile,) = graph[whole.name], whole.tiles
    label = _best_label(graph, vertex, count)
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
    view = view_of(graph, vertex)
    tiles = tuple(
        VertexTile(
            _with(op.output, tile.box, label, reach),
            _reads_of(view, label, reach),
            devices,
        )
        for reach, devices in zip(pairwise([*cuts, size]), groups, strict=True)
    )
    return replace(whole, tiles=tiles)


def _reads_of(view: View, label: str, reach: Range) -> tuple[Box | None, ...]:
    """What a tile reads that is cut along one label."""
    ranges = {name: (0, size) for name, size in zip(view.labels, view.sizes, strict=True)}
    ranges[label] = reach

    def read(dim: Dim) -> Range:
        if dim.image is not None:
            whole = {name: (0, size) for name, _, size in dim.image.terms}
            return reached(dim.image, whole | ranges)
        return reach if dim.label == label else (dim.start, dim.stop)

    return tuple(None if dims is None else tuple(map(read, dims)) for dims in view.reads)


def _best_label(graph: Graph, vertex: Vertex, count: int) -> str | None:
    """The label whose cut leaves the fewest elements that every core reads."""
    view = view_of(graph, vertex)
    cutting = [
        set[str]()
        if dims is None
        else {view.labels[k] for k in map(view.along, dims) if k is not None}
        for dims in view.reads
    ]

    def gain(label: str, size: int) -> float:
        even = size / (count * ceil(size / count)) if size else 0.0
        read = zip(vertex.inputs, cutting, strict=True)
        cut = sum(graph[name].elements for name, labels in read if label in labels)
        return even * (1 + cut) if even >= _EVEN else 0.0

    gains = {label: gain(label, size) for label, size in vertex.sizes.items()}
    best = max(gains, key=lambda label: gains[label], default=None)
    return best if best is not None and gains[best] else None


def _with(labels: Labels, box: Box, label: str, reach: Range) -> Box:
    return tuple(reach if name == label else own for name, own in zip(labels, box, strict=True))
