"""Brief programs: large EinSums are cut for the cores there are, and all others are one call.

As memory is shared, results are cut rather than sums, whatever the plan does.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from eindecomp.engines.resources import seconds_of
from eindecomp.engines.threads.tiled import Tile, undivided
from eindecomp.graph.ops import Fill
from eindecomp.kernels.cores import cores
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from eindecomp.engines.threads.tiled import TiledProgram, TiledVertex
    from eindecomp.graph.graph import Graph
    from eindecomp.lang.einsum import Labels
    from eindecomp.layout.boxes import Box, Range

BRIEF = 2e-2
"""Seconds below which it is worth something to hand tiles over without Python's lock.

The thread that does so hears of nothing else meanwhile.
"""
APART = 2e-5
"""Seconds of a vertex from which tiles of it at once are faster than all of it."""
TOGETHER = 3e-5
"""Seconds of a program from which it is worth calling other cores at all."""
_LINE = 16
"""Elements to whose multiples long labels are cut: vectors and lines of the cache stay whole."""
_EVEN = 0.8
"""How much of all cores' time must be used if the largest tile takes longest."""


def cut_brief_programs_for_cores(program: TiledProgram) -> TiledProgram:
    """The same program, if it is brief, with tiles for as many cores as a vertex is worth."""
    graph = program.graph
    seconds = {tiled.name: seconds_of(graph, graph[tiled.name]) for tiled in program.vertices}
    total = sum(seconds.values())
    if total >= BRIEF:
        return program
    count = min(cores(), program.devices) if total >= TOGETHER else 1

    def cut(tiled: TiledVertex) -> TiledVertex:
        op = graph[tiled.name].op
        if not isinstance(op, EinSum | Fill):
            return tiled
        if isinstance(op, Fill) or count < 2 or seconds[tiled.name] < APART:
            return undivided(graph, tiled)
        return _cut_result(graph, undivided(graph, tiled), op, count) or tiled

    return replace(program, vertices=tuple(map(cut, program.vertices)))


def _cut_result(graph: Graph, whole: TiledVertex, op: EinSum, count: int) -> TiledVertex | None:
    """An EinSum of one tile cut along one label of its result; None if no label is long enough."""
    vertex, (tile,) = graph[whole.name], whole.tiles
    label = _best_label(graph, op, vertex.inputs, vertex.shape, count)
    if label is None:
        return None
    size = vertex.shape[op.output.index(label)]
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
        for reach, devices in zip(
            pairwise([*cuts, size]), _shared(tile.devices, count), strict=True
        )
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


def _shared(devices: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """Devices in so many groups; of a tile that only some have, others compute parts as well."""
    have = len(devices)
    if have < count:
        return [(k,) for k in range(count)]
    return [devices[k * have // count : (k + 1) * have // count] for k in range(count)]


def _with(labels: Labels, box: Box, label: str, reach: Range) -> Box:
    return tuple(reach if name == label else own for name, own in zip(labels, box, strict=True))
