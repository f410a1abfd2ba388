"""The calls of a tiled program as plain data, in an order that works."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.resources import seconds_of
from eindecomp.graph.ops import Fill, Gather, Input
from eindecomp.graph.work import operations
from eindecomp.kernels.library import library_of
from eindecomp.layout.boxes import volume

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.threads.memory import Key, Where
    from eindecomp.engines.threads.tiled import (
        CountedMove,
        Reduction,
        Tile,
        TiledProgram,
        TiledVertex,
    )
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box

    Block = tuple[Key, Where]
    """A tile of an array."""

Loads = tuple[tuple[str, int], ...]
"""Inputs of a graph, and how many bytes of each are read."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One piece of work: which blocks of which arrays it reads and writes."""

    kind: str
    """`compute`, `fill` or `reduce-scatter`."""
    vertex: str
    box: Box
    devices: tuple[int, ...]
    """Those whose tile it is; several where tiles are computed as one."""
    reads: tuple[Block | None, ...]
    """The operands in order, None for one that is not read; for a reduction the partial results."""
    writes: tuple[Block, ...]
    """The result; or, for a partial result, each number of its state."""
    uses: tuple[Key, ...]
    """What it reads and what it writes: some write tiles that nobody reads, after the last read."""
    adds: bool = False
    """Whether the result is added to what is there."""
    is_partial: bool = False
    """For a tile, whether it is a partial result; for a reduction, whether its first is elsewhere
    than where the sum goes."""
    loads: Loads = ()
    """The inputs of the graph that it reads, and how many bytes of each."""


@dataclass(frozen=True)
class Schedule:
    """The calls of a program and the arrays that they need."""

    graph: Graph
    devices: int
    moves: tuple[CountedMove, ...]
    calls: tuple[KernelCall, ...]
    shapes: dict[Key, tuple[tuple[int, ...], DType]]
    lies_in: dict[str, str]
    """For a sum that a product was added to, the tensor whose array it is in."""
    flops: int
    seconds_by_vertex: dict[str, float]
    """About how long one core would take for each."""

    @cached_property
    def seconds(self) -> float:
        """About how long one core would take."""
        return sum(self.seconds_by_vertex.values())

    def _is_leaf(self, name: str) -> bool:
        return isinstance(self.graph[name].op, Input | Fill)

    @cached_property
    def tasks(self) -> int:
        """How many tiles devices compute and reduce, those that are computed as one each."""
        return sum(len(call.devices) for call in self.calls)

    def key_of(self, name: str) -> str:
        """The tensor whose array a tensor is in: itself, but for sums made in place."""
        return self.lies_in.get(name, name)

    @cached_property
    def moves_by_call(self) -> dict[int, list[CountedMove]]:
        """What moves when a call starts: the first that needs it, or the last that made it."""
        first: dict[tuple[str, str], int] = {}
        last: dict[str, int] = {}
        for number, call in enumerate(self.calls):
            for name in {call.vertex, *self._sums_in(call)}:
                first.setdefault((name, call.kind), number)
                last[name] = number
        starts: dict[int, list[CountedMove]] = {}
        for move in self.moves:
            if self._is_leaf(move.vertex):  # an input that is kept in a second layout
                starts.setdefault(self._first_reader(move.vertex), []).append(move)
                continue
            by = move.kind if move.kind == "reduce-scatter" else "compute"
            begins = first.get((move.vertex, by), last[move.vertex])
            starts.setdefault(last[move.vertex] if move.is_made else begins, []).append(move)
        return starts

    def _first_reader(self, name: str) -> int:
        """The first call that reads a tensor."""
        readers = {v.name for v in self.graph.vertices.values() if name in v.inputs}
        calls = enumerate(self.calls)
        return next((k for k, c in calls if readers & {c.vertex, *self._sums_in(c)}), 0)

    def _sums_in(self, call: KernelCall) -> list[str]:
        """The sums that a call makes by adding a product in place."""
        if not call.adds:
            return []
        return [total for total in self.lies_in if call.vertex in self.graph[total].inputs]


def schedule(program: TiledProgram) -> Schedule:
    """The calls of a program."""
    making = _Making(program.graph)
    for tiled in program.vertices:
        making.add(tiled)
    return Schedule(
        program.graph,
        program.devices,
        program.moves,
        tuple(making.calls),
        making.shapes,
        making.lies_in,
        making.flops,
        making.seconds,
    )


@dataclass
class _Making:
    """The calls so far, and what they write."""

    graph: Graph
    calls: list[KernelCall] = field(default_factory=list[KernelCall])
    shapes: dict[Key, tuple[tuple[int, ...], DType]] = field(default_factory=dict["Key", Any])
    lies_in: dict[str, str] = field(default_factory=dict[str, str])
    flops: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, tiled: TiledVertex) -> None:
        """The calls of a vertex."""
        vertex = self.graph[tiled.name]
        first = len(self.calls)
        self.seconds[vertex.name] = seconds_of(self.graph, vertex)
        if isinstance(vertex.op, Fill):
            self._generate(vertex, tiled)
        else:
            self._compute(vertex, tiled)
        if tiled.added is not None:
            self.lies_in[tiled.added.total] = self._key(tiled.added.term)
            self.flops += vertex.elements
            return
        self.shapes[vertex.name] = (vertex.shape, vertex.dtype)
        for reduction in tiled.reductions:
            self.calls.append(self._reduce(vertex, reduction, first))

    def _key(self, name: str) -> str:
        return self.lies_in.get(name, name)

    def _generate(self, vertex: Vertex, tiled: TiledVertex) -> None:
        for tile in tiled.tiles:
            out = (vertex.name, where(tile.box, vertex.shape))
            self.calls.append(
                KernelCall("fill", vertex.name, tile.box, tile.devices, (), (out,), (vertex.name,))
            )

    def _compute(self, vertex: Vertex, tiled: TiledVertex) -> None:
        self.flops += operations(self.graph, vertex)
        seen: set[Box] = set()
        for tile in tiled.tiles:
            writes = [(vertex.name, where(tile.box, vertex.shape))]
            if tiled.added is not None:
                writes = [(self._key(tiled.added.term), writes[0][1])]
            # The first part of a sum may lie where the sum is to go.
            elif tiled.is_partial:
                kernel = library_of(np.ndarray).kernel(self.graph, vertex)
                if tile.box in seen or not kernel.state_is_result:
                    writes = self._partial(vertex, tile, kernel.state)
            seen.add(tile.box)
            self.calls.append(self._tile_call(vertex, tiled, tile, tuple(writes)))

    def _tile_call(
        self,
        vertex: Vertex,
        tiled: TiledVertex,
        tile: Tile,
        writes: tuple[Block, ...],
    ) -> KernelCall:
        reads = tuple(
            None if box is None else (self._key(name), where(box, self.graph[name].shape))
            for name, box in zip(vertex.inputs, tile.reads, strict=True)
        )
        keys = (read[0] for read in reads if read is not None)
        return KernelCall(
            "compute",
            vertex.name,
            tile.box,
            tile.devices,
            reads,
            writes,
            (*keys, *(key for key, _ in writes)),
            adds=tiled.added is not None,
            is_partial=tiled.is_partial,
            loads=_loads(self.graph, vertex, tile.reads),
        )

    def _partial(self, vertex: Vertex, tile: Tile, state: Sequence[DType]) -> list[Block]:
        """Arrays of its own for a part of a sum."""
        shape = tuple(high - low for low, high in tile.box)
        keys: list[Key] = [(vertex.name, len(self.calls), k) for k in range(len(state))]
        for key, dtype in zip(keys, state, strict=True):
            self.shapes[key] = (shape, dtype)
        return [(key, None) for key in keys]

    def _reduce(self, vertex: Vertex, reduction: Reduction, first: int) -> KernelCall:
        """The call that combines partial results, beginning with that of the first member."""
        members = [first + place for place in reduction.members]
        corner = [low for low, _ in self.calls[members[0]].box]
        inside: Where = tuple(
            slice(low - start, high - start)
            for (low, high), start in zip(reduction.box, corner, strict=True)
        )
        inside = inside or None  # an index of no dimensions would take the number, not the array
        in_place = self.calls[members[0]].writes[0][0] == vertex.name
        parts = members[1:] if in_place else members
        reads = tuple((key, inside) for m in parts for key, _ in self.calls[m].writes)
        return KernelCall(
            "reduce-scatter",
            vertex.name,
            reduction.box,
            (reduction.device,),
            reads,
            ((vertex.name, where(reduction.box, vertex.shape)),),
            (vertex.name, *(key for key, _ in reads)),
            is_partial=not in_place,
        )


def _loads(graph: Graph, vertex: Vertex, reads: Sequence[Box | None]) -> Loads:
    """The graph's inputs of which a tile reads boxes, and how many bytes of each."""
    loads: list[tuple[str, int]] = []
    for k, (name, box) in enumerate(zip(vertex.inputs, reads, strict=True)):
        source = graph[name]
        if box is None or not isinstance(source.op, Input):
            continue
        elements = volume(box)
        if isinstance(vertex.op, Gather) and k == 0 and reads[1] is not None:
            # Rows that are not looked up are not read.
            low, high = box[vertex.op.axis]
            elements = elements // max(1, high - low) * min(high - low, volume(reads[1]))
        loads.append((name, elements * source.dtype.itemsize))
    return tuple(loads)


def where(box: Box, shape: Sequence[int]) -> Where:
    """The tile's slices, None if it is the whole array."""
    if all((low, high) == (0, size) for (low, high), size in zip(box, shape, strict=True)):
        return None
    return tuple(slice(low, high) for low, high in box)
