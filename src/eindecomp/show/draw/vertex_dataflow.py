"""The dataflow of one vertex: which tiles each kernel call reads, and how its results combine.

Columns run from left to right: the tiles of the inputs where they lie; the kernel calls, one on
each device; and, if there are any, the reduction of partial results, the exchange after it, and the
copy to a second layout. An arrow is a block that a device already has, or receives.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.graph.picture import Picture
from eindecomp.graph.write import write_vertex
from eindecomp.layout.boxes import volume
from eindecomp.layout.tiling import group_along, replicated_axes
from eindecomp.layout.view import is_planned
from eindecomp.show.draw.svg import device_colour, picture, saved, tag, text_width, titled, write
from eindecomp.show.draw.tile_grid import drawn_vertex
from eindecomp.show.draw.tile_pictures import devices_words, range_words
from eindecomp.show.words import count_words, exact, short
from eindecomp.tra.program.device_row import step_on
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import AllGather, Compute, Move, ReduceScatter, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.boxes import Box
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Buffer

MOST = 16  # devices that are shown
_SOME = 8  # of more, unless more of them reduce together
_MOST_NODES = 72  # more of them, and fewer devices are shown

_MARGIN, _GAP = 24.0, 130.0
_ROW, _SPACE, _GROUP = 38.0, 12.0, 14.0
_TEXT, _SMALL = 11.5, 10.5
_TOP = 128.0


def draw_vertex(plan: Plan, tensor: Vertex | str, path: str | Path | None = None) -> Picture:
    """A picture of the dataflow of one vertex, written to a file if given."""
    flow = dataflow_of(plan, tensor)
    return saved(Picture(_Drawing(plan.graph, flow).svg(), f"Dataflow of {flow.vertex}"), path)


@dataclass(slots=True)
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

    program: Program
    vertex: str
    shown: tuple[int, ...]
    """The devices that are shown."""
    columns: list[str] = field(default_factory=list[str])
    nodes: list[FlowNode] = field(default_factory=list[FlowNode])
    arrows: list[Arrow] = field(default_factory=list[Arrow])
    last: dict[int, int] = field(default_factory=dict[int, int])
    """The node of each device in the last column."""

    @property
    def moved(self) -> int:
        """The bytes that the shown devices receive."""
        return sum(node.received for node in self.nodes)

    @property
    def is_complete(self) -> bool:
        """Whether all that they receive has an arrow."""
        return self.moved == sum(arrow.moved for arrow in self.arrows)

    def follow(self) -> None:
        """Add what each step of the program does for the vertex."""
        buffers = self.program.buffers
        fetched: dict[int, Move] = {}
        for step in _steps(self.program, self.vertex):
            match step:
                case Move(into=into) if buffers[into].role is Role.SECOND:
                    self._exchange("second layout", step, into)
                case Move(into=into):
                    fetched[into] = step
                case Compute():
                    self._join(step, fetched)
                case ReduceScatter():
                    self._reduce(step)
                case AllGather(buffer=buffer):
                    self._exchange("gathered", step, buffer)

    def _join(self, compute: Compute, fetched: Mapping[int, Move]) -> None:
        """The tiles of the inputs, and a kernel call on each device."""
        read = dict.fromkeys(read.buffer for read in compute.reads if read is not None)
        tensors = dict.fromkeys(self.program.buffers[number].tensor for number in read)
        self.columns.append(f"tiles of {', '.join(tensors)}" if tensors else "no tiles")
        reads: list[tuple[int, int, int]] = []
        for number in read:
            tiles: dict[Box, int] = {}
            for device in self.shown:
                for buffer, peer, moved in self._sources(number, fetched.get(number), device):
                    reads.append((self._tile(buffer, peer, tiles), device, moved))
        self._column("kernel calls", compute.into, is_partial=compute.is_partial)
        for tile, device, moved in reads:
            self._arrow(tile, device, moved)

    def _sources(
        self, number: int, move: Move | None, device: int
    ) -> Iterator[tuple[Buffer, int, int]]:
        """The buffers and devices from which a device reads an input, and the bytes that move."""
        buffers = self.program.buffers
        if move is None:
            yield buffers[number], device, 0
            return
        source = buffers[move.source]
        exchange = step_on(self.program.mesh, buffers, move, device).exchange
        for transfer in (*exchange.kept, *exchange.receives):
            moved = 0 if transfer.peer == device else source.item * volume(transfer.box)
            yield source, transfer.peer, moved

    def _tile(self, buffer: Buffer, device: int, tiles: dict[Box, int]) -> int:
        """The node of the tile that a device has of a buffer."""
        mesh, box = self.program.mesh, buffer.box(self.program.mesh, device)
        if box not in tiles:
            axes = 0 if buffer.tiling.split else replicated_axes(mesh, buffer.tiling.cut)
            tiles[box] = len(self.nodes)
            holders = group_along(mesh, axes, device)
            self.nodes.append(FlowNode(0, buffer.tensor, box, holders))
        return tiles[box]

    def _column(self, title: str, number: int, *, is_partial: bool = False) -> None:
        """A column with a node for each device: what it has of a buffer."""
        buffer, at = self.program.buffers[number], len(self.columns)
        self.columns.append(title)
        for device in self.shown:
            self.last[device] = len(self.nodes)
            box = buffer.box(self.program.mesh, device)
            self.nodes.append(FlowNode(at, self.vertex, box, (device,), is_partial))

    def _reduce(self, step: ReduceScatter) -> None:
        before, item = dict(self.last), self.program.buffers[step.source].item
        self._column("reduced", step.into)
        for device in self.shown:
            own = step_on(self.program.mesh, self.program.buffers, step, device)
            self.nodes[self.last[device]].box = own.box
            for peer in own.members if volume(own.box) else ():
                self._arrow(before.get(peer), device, item * volume(own.box) * (peer != device))

    def _exchange(self, title: str, step: Move | AllGather, into: int) -> None:
        before, buffers = dict(self.last), self.program.buffers
        self._column(title, into)
        for device in self.shown:
            own = step_on(self.program.mesh, buffers, step, device).exchange
            amounts = Counter[int]()
            for transfer in (*own.kept, *own.receives):
                size = buffers[into].item * volume(transfer.box)
                amounts[transfer.peer] += size * (transfer.peer != device)
            for peer, moved in amounts.items():
                self._arrow(before.get(peer), device, moved)

    def _arrow(self, source: int | None, device: int, moved: int) -> None:
        """Bytes that a device receives, with an arrow if they come from a node that is shown."""
        self.nodes[self.last[device]].received += moved
        if source is not None:
            self.arrows.append(Arrow(source, self.last[device], moved))


def _steps(program: Program, vertex: str) -> Iterator[Compute | Move | ReduceScatter | AllGather]:
    """What the program does for one vertex, in order."""
    for step in program.steps:
        if isinstance(step, Compute | Move | ReduceScatter | AllGather) and step.vertex == vertex:
            yield step


def dataflow_of(plan: Plan, tensor: Vertex | str) -> Dataflow:
    """The dataflow of a computed vertex on all devices, or of many on those of one group."""
    vertex = drawn_vertex(plan, tensor)
    if not is_planned(vertex):
        raise PlanError(
            f"{vertex.name!r} is not computed from tiles, it has no dataflow; see draw_tiles"
        )
    program = program_of(plan)
    shown = _some_devices(program, vertex.name)
    while True:
        flow = Dataflow(program, vertex.name, shown)
        flow.follow()
        if len(flow.nodes) <= _MOST_NODES or len(shown) == 1:
            return flow
        shown = shown[: len(shown) // 2]


def _some_devices(program: Program, vertex: str) -> tuple[int, ...]:
    """All devices, or those that reduce with the first."""
    if program.devices <= MOST:
        return tuple(range(program.devices))
    steps = _steps(program, vertex)
    axes = next((step.axes for step in steps if isinstance(step, ReduceScatter)), 0)
    group = group_along(program.mesh, axes, 0)
    return group[:MOST] if len(group) > 1 else tuple(range(_SOME))


# The picture


class _Drawing:
    """The places of a dataflow's nodes, and what is drawn there."""

    def __init__(self, graph: Graph, flow: Dataflow) -> None:
        self.flow = flow
        self.statement = write_vertex(graph[flow.vertex])
        self.words = [_tile_words(graph, node) for node in flow.nodes]
        self.swatch = [
            max(26.0, text_width(devices_words(node.devices), _TEXT) + 12) for node in flow.nodes
        ]
        self.columns: list[list[int]] = [[] for _ in flow.columns]
        for number, node in enumerate(flow.nodes):
            self.columns[node.column].append(number)
        tensors = {node.tensor: number for number, node in reversed(list(enumerate(flow.nodes)))}
        self.columns[0].sort(key=lambda n: (tensors[flow.nodes[n].tensor], flow.nodes[n].devices))
        self.widths = [self._width(at) for at in range(len(self.columns))]
        self.height = max(self._height(own) for own in self.columns)
        self.lefts = [_MARGIN]
        for width in self.widths:
            self.lefts.append(self.lefts[-1] + width + _GAP)
        self.tops: dict[int, float] = {}
        for own in self.columns:
            self._stack(own)

    def _width(self, column: int) -> float:
        heading = text_width(self.flow.columns[column], 12.5)
        boxes = (
            self.swatch[n]
            + max(text_width(self.words[n], _TEXT), text_width(self._gets(n), _SMALL))
            for n in self.columns[column]
        )
        return max([heading, text_width(self._moves(column), _SMALL), *(w + 20 for w in boxes)])

    def _height(self, numbers: list[int]) -> float:
        tensors = {self.flow.nodes[n].tensor for n in numbers}
        return len(numbers) * (_ROW + _SPACE) + (len(tensors) - 1) * _GROUP - _SPACE

    def _stack(self, numbers: list[int]) -> None:
        """Nodes one below the other, spread over the height, tensors a little apart."""
        spare = self.height - self._height(numbers)
        each = spare / len(numbers) if numbers else 0.0
        y, before = _TOP + each / 2, ""
        for number in numbers:
            tensor = self.flow.nodes[number].tensor
            y += _GROUP if before not in ("", tensor) else 0
            self.tops[number], before = y, tensor
            y += _ROW + _SPACE + each

    def _gets(self, number: int) -> str:
        moved = self.flow.nodes[number].received
        return f"receives {short(moved, 'bytes')}" if moved else ""

    def _moves(self, column: int) -> str:
        moved = sum(self.flow.nodes[n].received for n in self.columns[column])
        if not moved:
            return "nothing moves" if column else ""
        whole = len(self.flow.shown) == self.flow.program.devices
        return f"{exact(moved, 'bytes')} {'move' if whole else 'move to these'}"

    def svg(self) -> str:
        flow = self.flow
        ranked = sorted(flow.arrows, key=lambda arrow: arrow.moved)
        note = self._note()
        inside = [
            write(_MARGIN, 34, self.statement, 15, class_="head"),
            write(_MARGIN, 55, note, 12, class_="quiet"),
            *self._samples(),
            *(part for column in range(len(self.columns)) for part in self._heading(column)),
            *(self._arrow(arrow) for arrow in ranked),
            *(self._node(number) for number in range(len(flow.nodes))),
        ]
        widest = max(text_width(self.statement, 15), text_width(note, 12), 520.0)
        width = max(self.lefts[-1] - _GAP, _MARGIN + widest) + _MARGIN
        title = f"Dataflow of {flow.vertex}"
        told = "; ".join(
            f"{name}: {self._moves(k) or 'where they lie'}" for k, name in enumerate(flow.columns)
        )
        return picture(width, _TOP + self.height + _MARGIN, title, told, *inside)

    def _note(self) -> str:
        flow, shown = self.flow, len(self.flow.shown)
        if shown == flow.program.devices:
            return f"{count_words(flow.program.devices, 'device')}, one kernel call on each"
        some = devices_words(flow.shown, 24)
        rest = flow.program.devices - shown
        others = f"the other {rest:,} devices work" if rest > 1 else "the other device works"
        words = f"Devices {some} of {flow.program.devices:,}; {others} alike"
        return words if flow.is_complete else f"{words}. Lines from devices not shown are left out"

    def _samples(self) -> list[str]:
        drawn: list[str] = []
        x = _MARGIN
        for style, words in (("move", "from another device"), ("rest", "already there")):
            drawn.append(tag("path", d=f"M{x},73h30", class_=style, stroke_width=1.8))
            drawn.append(write(x + 38, 77, words, 11, class_="quiet"))
            x += 38 + text_width(words, 11) + 24
        return drawn

    def _heading(self, column: int) -> list[str]:
        x = self.lefts[column]
        return [
            write(x, _TOP - 26, self.flow.columns[column], 12.5, class_="head"),
            write(x, _TOP - 11, self._moves(column), _SMALL, class_="quiet"),
        ]

    def _arrow(self, arrow: Arrow) -> str:
        source, target = self.flow.nodes[arrow.source], self.flow.nodes[arrow.target]
        x = self.lefts[source.column] + self.widths[source.column]
        y = self.tops[arrow.source] + _ROW / 2
        to, down = self.lefts[target.column] - 7, self.tops[arrow.target] + _ROW / 2
        middle = (x + to) / 2
        style = "move" if arrow.moved else "rest"
        moved = f"{arrow.moved:,} bytes" if arrow.moved else "already there"
        line = f"M{x:.1f},{y:.1f}C{middle:.1f},{y:.1f} {middle:.1f},{down:.1f} {to:.1f},{down:.1f}"
        tip = f"M{to:.1f},{down - 3.6:.1f}l7,3.6l-7,3.6z"
        return titled(
            f"{self.words[arrow.source]} to device {target.devices[0]}: {moved}",
            tag("path", class_=style, stroke_width=1.8 if arrow.moved else 1.1, d=line),
            tag("path", class_=f"tip-{style}", d=tip),
        )  # fmt: skip

    def _node(self, number: int) -> str:
        node, swatch = self.flow.nodes[number], self.swatch[number]
        x, y, width = self.lefts[node.column], self.tops[number], self.widths[node.column]
        gets, devices = self._gets(number), devices_words(node.devices)
        line = y + (16 if gets else _ROW / 2 + 4)
        plural = "device" if len(node.devices) == 1 else "devices"
        colour = device_colour(node.devices[0], self.flow.program.devices)
        return titled(
            f"{self.words[number]} on {plural} {devices_words(node.devices, 200)}",
            tag("rect", x=x, y=y, width=width, height=_ROW, rx=5,
                class_="input" if node.column == 0 else "vertex"),
            tag("rect", x=x + 4, y=y + 4, width=swatch, height=_ROW - 8, rx=3, fill=colour),
            write(x + 4 + swatch / 2, y + _ROW / 2 + 4, devices, _TEXT, "middle", "on-tile"),
            write(x + swatch + 12, line, self.words[number], _TEXT),
            *([write(x + swatch + 12, y + 30, gets, _SMALL, class_="moved")] if gets else []),
        )  # fmt: skip


def _tile_words(graph: Graph, node: FlowNode) -> str:
    """A tile as text: whole dimensions are a colon."""
    shape = graph[node.tensor].shape
    sides = [
        ":" if piece == (0, size) else range_words(piece)
        for piece, size in zip(node.box, shape, strict=False)
    ]
    return f"{node.tensor}[{', '.join(sides)}]{' (partial)' if node.is_partial else ''}"
