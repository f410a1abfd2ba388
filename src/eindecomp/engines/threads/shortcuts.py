"""What sharing memory allows: passes over the tiles of a program, which change how it rounds.

- Products are added in place: of a sum of a tensor and a matrix product, neither takes memory of
  its own then, or a pass over it.
- Vertices that are next to nothing are one call: a thread is done before another has woken up.
- Products have fewer, larger tiles where there are more devices than cores: BLAS copies both
  matrices into an order of its own, for every tile again.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.engines.threads.tiled import SumInPlace, Tile, undivided
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.work import operations
from eindecomp.kernels.cores import cores
from eindecomp.kernels.library import library_of
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Arg, call

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eindecomp.engines.threads.tiled import TiledProgram, TiledVertex
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import Labels
    from eindecomp.layout.boxes import Box, Range

_SUM = call("add", Arg(0), Arg(1))
_TINY = 50_000  # operations that one thread is done with before another has woken up
_SHARE = 1_000  # and that are to the whole program as one to this
_WIDE = 2000
"""Rows or columns from which a tile gains nothing by more of them; 1000 still lose a hundredth."""


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
            if _is_product(graph, product, total, term) and is_free(product, term, total):
                sums[product.name] = SumInPlace(total.name, term.name)
                break
    return sums


def _is_product(graph: Graph, product: Vertex, total: Vertex, term: Vertex) -> bool:
    if not isinstance(product.op, EinSum) or not total.dtype == term.dtype == product.dtype:
        return False
    return library_of(np.ndarray).kernel(graph, product).adds


def compute_tiny_vertices_whole(program: TiledProgram) -> TiledProgram:
    """The same program with each tiny vertex as one tile, however it was cut: memory is shared."""
    graph = program.graph
    work = {
        tiled.name: max(operations(graph, graph[tiled.name]), graph[tiled.name].elements)
        for tiled in program.vertices
        if isinstance(graph[tiled.name].op, EinSum)
    }
    least = min(_TINY, sum(work.values()) // _SHARE)
    tiny = {name for name, operations in work.items() if operations < least}
    tiny |= {each.name for each in program.vertices if _is_small_fill(graph[each.name])}
    vertices = (undivided(graph, v) if v.name in tiny else v for v in program.vertices)
    return replace(program, vertices=tuple(vertices))


def _is_small_fill(vertex: Vertex) -> bool:
    return isinstance(vertex.op, Fill) and vertex.elements < _TINY


def merge_product_tiles(program: TiledProgram) -> TiledProgram:
    """The same program with neighbouring tiles of products joined, no fewer than cores."""
    return replace(program, vertices=tuple(_merged(program, each) for each in program.vertices))


def _merged(program: TiledProgram, tiled: TiledVertex) -> TiledVertex:
    op = program.graph[tiled.name].op
    # Parts of sums are reduced device by device.
    if tiled.is_partial or len(tiled.tiles) < 2 or not isinstance(op, EinSum):
        return tiled
    if not library_of(np.ndarray).kernel(program.graph, program.graph[tiled.name]).is_product:
        return tiled
    return replace(tiled, tiles=tuple(merge(tiled.tiles, op, cores())))


def merge(tiles: Sequence[Tile], op: EinSum, cores: int) -> Sequence[Tile]:
    """The tiles of a product with rows or columns joined, no fewer than there are cores."""
    for label in op.output:
        # Both inputs have the labels of a batch: joining those saves no copy.
        if not all(label in own for own in op.inputs):
            tiles = _join(tiles, op, label, len(tiles) // cores)
    return tiles


def _join(tiles: Sequence[Tile], op: EinSum, label: str, most: int) -> Sequence[Tile]:
    """Join up to `most` tiles that lie side by side along a label and are otherwise the same."""
    if most < 2:
        return tiles
    rows: dict[object, list[Tile]] = {}
    for tile in tiles:
        boxes = (tile.box, *(box or () for box in tile.reads))
        labels = (op.output, *op.inputs)
        rest = tuple(_without(own, box, label) for own, box in zip(labels, boxes, strict=True))
        rows.setdefault(rest, []).append(tile)
    joined: list[Tile] = []
    for row in rows.values():
        row.sort(key=lambda tile: tile.box[op.output.index(label)])
        low, high = row[0].box[op.output.index(label)]
        count = -(-len(row) // min(most, -(-_WIDE // max(1, high - low))))
        cuts = [k * len(row) // count for k in range(count + 1)]
        joined += [_joined(row[start:stop], op, label) for start, stop in pairwise(cuts)]
    return joined


def _joined(row: Sequence[Tile], op: EinSum, label: str) -> Tile:
    first, last = row[0], row[-1]
    at = op.output.index(label)
    reach = (first.box[at][0], last.box[at][1])
    box = _with(op.output, first.box, label, reach)
    reads = tuple(
        None if own is None else _with(labels, own, label, reach)
        for labels, own in zip(op.inputs, first.reads, strict=True)
    )
    devices = tuple(sorted(device for tile in row for device in tile.devices))
    return Tile(box, reads, devices)


def _without(labels: Labels, box: Box, label: str) -> Box:
    return tuple(own for name, own in zip(labels, box, strict=False) if name != label)


def _with(labels: Labels, box: Box, label: str, reach: Range) -> Box:
    return tuple(reach if name == label else own for name, own in zip(labels, box, strict=True))
