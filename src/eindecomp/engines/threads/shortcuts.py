"""What sharing memory allows: passes over the tiles of a program, which change how it rounds.

- Tiles are cut for the cores there are, along labels of results rather than of sums: vertices that
  are next to nothing become one call, as a thread is done before another has woken up; products get
  few, large tiles, as BLAS copies both matrices into an order of its own for every tile again. In a
  program that is long as a whole, all else stays as it was planned.
- Products are added in place: of a sum of a tensor and a matrix product, neither takes memory of
  its own then, or a pass over it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.engines.estimate import seconds_of
from eindecomp.engines.threads.tiled import SumInPlace, Tile, undivided
from eindecomp.graph.ops import Fill, Input
from eindecomp.kernels.library import library_of
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Arg, call

if TYPE_CHECKING:
    from collections.abc import Collection

    from eindecomp.engines.threads.tiled import TiledProgram, TiledVertex
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import Labels
    from eindecomp.layout.boxes import Box, Range

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
_SUM = call("add", Arg(0), Arg(1))


def cut_for_cores(program: TiledProgram, cores: int) -> TiledProgram:
    """The same program with tiles for so many cores, as far as vertices are worth it."""
    graph = program.graph
    seconds = {tiled.name: seconds_of(graph, graph[tiled.name]) for tiled in program.vertices}
    total = sum(seconds.values())
    count = min(cores, program.devices) if total >= TOGETHER else 1

    def cut(tiled: TiledVertex) -> TiledVertex:
        op = graph[tiled.name].op
        if not isinstance(op, EinSum | Fill):
            return tiled
        if count < 2 or seconds[tiled.name] < APART:
            return undivided(graph, tiled)
        if isinstance(op, Fill) or not (total < _BRIEF or _is_product(graph, tiled.name)):
            return tiled
        return _cut_result(graph, undivided(graph, tiled), op, count) or tiled

    return replace(program, vertices=tuple(map(cut, program.vertices)))


def _is_product(graph: Graph, name: str) -> bool:
    return library_of(np.ndarray).kernel(graph, graph[name]).is_product


def _cut_result(graph: Graph, whole: TiledVertex, op: EinSum, count: int) -> TiledVertex | None:
    """An EinSum of one tile cut along one label of its result; None if no label is long enough."""
    vertex, (tile,) = graph[whole.name], whole.tiles
    label = _best_label(graph, op, vertex.inputs, vertex.shape, count)
    if label is None:
        return None
    size = vertex.shape[op.output.index(label)]
    # Several for each core, if all are large enough: one that is slower takes fewer.
    count *= max(1, min(len(tile.devices), size // _WIDE) // count)
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


def add_products_in_place(program: TiledProgram) -> TiledProgram:
    """The same program without the sums into whose other term a product can be added."""
    reduced = {tiled.name for tiled in program.vertices if tiled.is_partial}
    sums = find_sums(program.graph, reduced)
    totals = {each.total for each in sums.values()}
    vertices = (
        replace(tiled, added=sums.get(tiled.name))
        for tiled in program.vertices
        if tiled.name not in totals
    )
    return replace(program, vertices=tuple(vertices))


def find_sums(graph: Graph, reduced: Collection[str]) -> dict[str, SumInPlace]:
    """Products to add in place; `reduced` are the vertices that are summed over several devices.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "Y[i,k] <- exp(B[i,k])\\nP[i,k] <- sum A[i,j] * C[j,k]\\nZ[i,k] <- Y[i,k] + P[i,k]"
    >>> head = "input A[i: 9, j: 9], B[i, k: 9], C[j, k]"
    >>> find_sums(parse(f"{head}\\n{text}\\noutput Z"), ())
    {'P': SumInPlace(total='Z', term='Y')}
    """
    users = graph.users()
    kept = {vertex.name for vertex in graph.outputs}
    order = {name: k for k, name in enumerate(graph.vertices)}
    sums: dict[str, SumInPlace] = {}

    def is_free(product: Vertex, term: Vertex, total: Vertex) -> bool:
        if {product.name, term.name} & kept or product.name in reduced:
            return False
        if users[product.name] != [total.name] or isinstance(term.op, Input | Fill):
            return False
        # Whoever else reads the term must be done with it before the product is added.
        others = [name for name in users[term.name] if name != total.name]
        return (
            all(order[name] < order[product.name] for name in others)
            and order[term.name] < order[product.name]
        )

    for total in graph.vertices.values():
        op = total.op
        if not isinstance(op, EinSum) or op.agg is not None or op.join != _SUM:
            continue
        one, other = (graph[name] for name in total.inputs)
        if {*op.inputs} != {op.output} or one.name == other.name:
            continue
        for product, term in ((one, other), (other, one)):
            if _adds(graph, product, total, term) and is_free(product, term, total):
                sums[product.name] = SumInPlace(total.name, term.name)
                break
    return sums


def _adds(graph: Graph, product: Vertex, total: Vertex, term: Vertex) -> bool:
    if not isinstance(product.op, EinSum) or not total.dtype == term.dtype == product.dtype:
        return False
    return library_of(np.ndarray).kernel(graph, product).adds
