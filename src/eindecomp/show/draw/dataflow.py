"""The dataflow of one vertex: which tiles each kernel call reads, and how its results combine.

It is told in columns from left to right: the tiles of the inputs where they lie, the kernel calls,
one for each device, and, where they are, the reduction of partial results, the exchange after it,
and the copy to a second layout. An arrow is a block that a device has already, or receives.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.graph.write import write_vertex
from eindecomp.layout.boxes import volume
from eindecomp.layout.tiling import group_along, replicated_axes
from eindecomp.layout.view import is_planned
from eindecomp.show.draw.tile_grid import drawn_vertex
from eindecomp.tra.program.buffers import Role
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.row import step_on
from eindecomp.tra.program.steps import AllGather, Compute, Move, ReduceScatter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.boxes import Box
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.buffers import Buffer
    from eindecomp.tra.program.program import Program

MOST = 16  # devices that are shown
_SOME = 8  # of more, unless more of them reduce together
_MOST_NODES = 72  # more of them, and fewer devices are shown


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A tile, with the devices that hold it."""

    column: int
    tensor: str
    box: Box
    devices: tuple[int, ...]
    is_partial: bool = False
    received: int = 0
    """The bytes that its device receives for it, from devices that are not shown too."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A block of one node that goes into another."""

    source: int
    target: int
    moved: int
    """The bytes that a device receives from another; 0 for what it has already."""


@dataclass(frozen=True, slots=True)
class Dataflow:
    """The columns of a vertex's dataflow, its nodes and its arrows."""

    vertex: str
    statement: str
    columns: tuple[str, ...]
    nodes: tuple[FlowNode, ...]
    arrows: tuple[Arrow, ...]
    devices: int
    """How many there are."""
    shown: tuple[int, ...]
    """Those that are shown."""

    @property
    def moved(self) -> int:
        """The bytes that the shown devices receive."""
        return sum(node.received for node in self.nodes)

    @property
    def is_complete(self) -> bool:
        """Whether all that they receive has an arrow."""
        return self.moved == sum(arrow.moved for arrow in self.arrows)


def dataflow_of(
    plan: Plan, tensor: Vertex | str, devices: tuple[int, ...] | None = None
) -> Dataflow:
    """The dataflow of a computed vertex on some devices: all, or of many one group."""
    vertex = drawn_vertex(plan, tensor)
    name = vertex.name
    if not is_planned(vertex):
        raise PlanError(f"{name!r} is not computed from tiles, it has no dataflow; see draw_tiles")
    making = _made(_Making(program_of(plan), name), devices)
    while devices is None and len(making.nodes) > _MOST_NODES and len(making.shown) > 1:
        fewer = making.shown[: len(making.shown) // 2]
        making = _made(_Making(making.program, name), fewer)
    return Dataflow(
        name, write_vertex(vertex), tuple(making.columns), tuple(making.nodes),
        tuple(making.arrows), plan.devices, making.shown,
    )  # fmt: skip


def _made(making: _Making, devices: tuple[int, ...] | None) -> _Making:
    making.shown = making.some_devices() if devices is None else devices
    making.join()
    making.reduce()
    making.keep_second()
    return making


@dataclass
class _Making:
    program: Program
    name: str
    shown: tuple[int, ...] = ()
    columns: list[str] = field(default_factory=list[str])
    nodes: list[FlowNode] = field(default_factory=list[FlowNode])
    arrows: list[Arrow] = field(default_factory=list[Arrow])
    last: dict[int, int] = field(default_factory=dict[int, int])
    """The node of each device in the last column."""

    def some_devices(self) -> tuple[int, ...]:
        """All devices, or those that reduce with the first."""
        count = self.program.devices
        if count <= MOST:
            return tuple(range(count))
        reduction = self._reduction()
        axes = 0 if reduction is None else reduction.axes
        group = group_along(self.program.mesh, axes, 0)
        return group[:MOST] if len(group) > 1 else tuple(range(_SOME))

    def _reduction(self) -> ReduceScatter | None:
        steps = self.program.steps
        own = (s for s in steps if isinstance(s, ReduceScatter) and s.vertex == self.name)
        return next(own, None)

    # The join

    def join(self) -> None:
        """The tiles of the inputs, and a kernel call on each device."""
        steps = self.program.steps
        compute = next(s for s in steps if isinstance(s, Compute) and s.vertex == self.name)
        fetched = {s.into: s for s in steps if isinstance(s, Move) and s.vertex == self.name}
        read = dict.fromkeys(read.buffer for read in compute.reads if read is not None)
        tensors = dict.fromkeys(self.program.buffers[number].tensor for number in read)
        self.columns += [f"tiles of {', '.join(tensors)}" if tensors else "no tiles"]
        found: list[tuple[int, int, int]] = []
        for number in read:
            tiles: dict[Box, int] = {}
            for device in self.shown:
                found += self._reads(number, fetched.get(number), device, tiles)
        self._column("kernel calls", compute.into, is_partial=compute.is_partial)
        for tile, device, moved in found:
            self.arrows.append(Arrow(tile, self.last[device], moved))
            self._receive(device, moved)

    def _receive(self, device: int, moved: int) -> None:
        node = self.nodes[self.last[device]]
        self.nodes[self.last[device]] = replace(node, received=node.received + moved)

    def _reads(
        self, number: int, move: Move | None, device: int, tiles: dict[Box, int]
    ) -> Iterator[tuple[int, int, int]]:
        """The tiles of a buffer that a device has or receives: tile, device and bytes."""
        mesh, buffers = self.program.mesh, self.program.buffers
        if move is None:
            yield self._tile(buffers[number], device, tiles), device, 0
            return
        source, item = buffers[move.source], buffers[move.source].item
        exchange = step_on(mesh, buffers, move, device).exchange
        for transfer in (*exchange.kept, *exchange.receives):
            moved = 0 if transfer.peer == device else item * volume(transfer.box)
            yield self._tile(source, transfer.peer, tiles), device, moved

    def _tile(self, buffer: Buffer, device: int, tiles: dict[Box, int]) -> int:
        """The node of the tile that a device has of a buffer."""
        mesh, box = self.program.mesh, buffer.box(self.program.mesh, device)
        if box not in tiles:
            axes = 0 if buffer.tiling.split else replicated_axes(mesh, buffer.tiling.cut)
            tiles[box] = len(self.nodes)
            holders = group_along(mesh, axes, device)
            self.nodes.append(FlowNode(0, buffer.tensor, box, holders))
        return tiles[box]

    # The columns after it

    def _column(self, title: str, number: int, *, is_partial: bool = False) -> None:
        """A column with a node for each device: what it has of a buffer."""
        buffer, mesh = self.program.buffers[number], self.program.mesh
        at = len(self.columns)
        self.columns.append(title)
        for device in self.shown:
            self.last[device] = len(self.nodes)
            box = buffer.box(mesh, device)
            self.nodes.append(FlowNode(at, self.name, box, (device,), is_partial))

    def reduce(self) -> None:
        """The reduction of partial results, and the exchange after it."""
        reduction = self._reduction()
        if reduction is None:
            return
        item = self.program.buffers[reduction.source].item
        before, mesh = dict(self.last), self.program.mesh
        self._column("reduced", reduction.into)
        for device in self.shown:
            own = step_on(mesh, self.program.buffers, reduction, device)
            self.nodes[self.last[device]] = replace(self.nodes[self.last[device]], box=own.box)
            elements = volume(own.box)
            self._arrows(before, device, {m: item * elements for m in own.members if elements})
        for step in self.program.steps:
            if isinstance(step, AllGather) and step.vertex == self.name:
                self._moved("gathered", step, step.buffer)

    def keep_second(self) -> None:
        """The copy to the second layout."""
        for step in self.program.steps:
            if isinstance(step, Move) and step.vertex == self.name:
                into = self.program.buffers[step.into]
                if into.tensor == self.name and into.role is Role.SECOND:
                    self._moved("second layout", step, step.into)

    def _moved(self, title: str, step: Move | AllGather, into: int) -> None:
        before, buffers = dict(self.last), self.program.buffers
        self._column(title, into)
        for device in self.shown:
            own = step_on(self.program.mesh, buffers, step, device).exchange
            amounts: dict[int, int] = {}
            for transfer in (*own.kept, *own.receives):
                size = buffers[into].item * volume(transfer.box)
                amounts[transfer.peer] = amounts.get(transfer.peer, 0) + size
            self._arrows(before, device, amounts)

    def _arrows(self, before: dict[int, int], device: int, amounts: dict[int, int]) -> None:
        """Arrows from the last column's nodes of other devices, as far as they are shown."""
        for peer, moved in amounts.items():
            own = 0 if peer == device else moved
            self._receive(device, own)
            if peer in before:
                self.arrows.append(Arrow(before[peer], self.last[device], own))
