"""`Program`: the buffers and steps of a plan, and what they move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from eindecomp.errors import PlanError
from eindecomp.graph.graph import Graph
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import operations
from eindecomp.layout.cut import axes_in, parts_of
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.overlaps import moved
from eindecomp.layout.tiling import Tiling, uncut
from eindecomp.tra.program.device_row import DeviceRow, step_on
from eindecomp.tra.program.steps import (
    AllGather,
    Buffer,
    Communication,
    Compute,
    Free,
    Generate,
    Load,
    Move,
    MovedRows,
    ReduceScatter,
    Role,
    Step,
    kind_of,
    used_by,
)


@dataclass(frozen=True)
class Program:
    """Steps in an order in which they can be carried out one by one, on all devices alike."""

    graph: Graph
    """That of the plan; where it leaves results pending, their parts are vertices, too."""
    mesh: Mesh
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    outputs: Mapping[str, int]
    """The buffer of each output that is computed; an output that is an input has none."""

    @property
    def devices(self) -> int:
        """How many devices it is for."""
        return self.mesh.devices

    @cached_property
    def inputs(self) -> dict[str, tuple[Buffer, ...]]:
        """The buffers in which each input lies when the program begins."""
        given: dict[str, list[Buffer]] = {vertex.name: [] for vertex in self.graph.inputs}
        for buffer in self.buffers:
            if buffer.role is Role.GIVEN:
                given[buffer.tensor].append(buffer)
        return {name: tuple(own) for name, own in given.items()}

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """The outputs of the graph, also those that are inputs."""
        return tuple(vertex.name for vertex in self.graph.outputs)

    def layouts_of(self, name: str) -> tuple[Tiling, ...]:
        """The layouts in which an input is placed: those that steps read, a complete one first.

        Where steps read only parts of the input, or nothing, every device has all of it, too.
        """
        shape = self.graph[name].shape
        wanted = [buffer.tiling for buffer in self.inputs[name]]
        whole = [tiling for tiling in wanted if tiling.has_all(shape)]
        first = whole[0] if whole else Tiling(uncut(shape))
        return (first, *(tiling for tiling in wanted if tiling != first))

    def on(self, device: int) -> DeviceRow:
        """What one device does, receives from whom and sends to whom."""
        row = tuple(step_on(self.mesh, self.buffers, step, device) for step in self.steps)
        received = sent = 0
        for own in row:
            if isinstance(own.step, Communication):
                item = self.buffers[own.step.source].item
                received += item * own.exchange.elements_in
                sent += item * own.exchange.elements_out
        return DeviceRow(device, row, received, sent)

    def computed_by(self, step: Compute | ReduceScatter) -> Vertex:
        """The vertex whose kernel a step calls."""
        return self.graph[self.buffers[step.into].tensor]

    def moved_by(self, step: Step) -> int:
        """The bytes that all devices receive in a step; at most, where only some rows move."""
        match step:
            case Move(rows=MovedRows(most=most)) | ReduceScatter(rows=MovedRows(most=most)):
                return most
            case Move():
                source, into = self.buffers[step.source].tiling, self.buffers[step.into]
                cuts = [source.cut], [into.tiling.cut]
                return into.item * int(moved(self.mesh, *cuts, step.first)[0, 0])
            case ReduceScatter() | AllGather():
                source = self.buffers[step.source]
                ways = parts_of(self.mesh, step.axes)
                return source.item * source.tiling.elements(self.mesh) // ways * (ways - 1)
            case _:
                return 0

    @cached_property
    def operations(self) -> int:
        """The scalar operations of all vertices that are computed."""
        computed = (self.computed_by(step) for step in self.steps if isinstance(step, Compute))
        return sum(operations(self.graph, vertex) for vertex in computed)

    @cached_property
    def tasks(self) -> int:
        """How many steps compute something, on each device."""
        return sum(isinstance(s, Compute | Generate | ReduceScatter) for s in self.steps)

    @cached_property
    def moving(self) -> tuple[tuple[Communication, int], ...]:
        """The steps that move something, and how many bytes."""
        steps = (step for step in self.steps if isinstance(step, Communication))
        pairs = ((step, self.moved_by(step)) for step in steps)
        return tuple((step, count) for step, count in pairs if count)

    @cached_property
    def by_rows(self) -> tuple[Move | ReduceScatter, ...]:
        """The steps that move only rows that an index names."""
        steps = (step for step in self.steps if isinstance(step, Move | ReduceScatter))
        return tuple(step for step in steps if step.rows is not None)

    def check_moves_blocks(self, engine: str) -> Program:
        """The program itself, for an engine that cannot move only some rows of a block."""
        if self.by_rows:
            names = ", ".join(dict.fromkeys(step.vertex for step in self.by_rows))
            raise PlanError(
                f"engine {engine!r} moves whole blocks, and this plan only rows that an index "
                f"names, for {names}: plan with lookups='whole', or run it on 'apart', 'threads' "
                "or 'spmd'"
            )
        return self

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many steps there are of each kind."""
        return dict(Counter(kind_of(step) for step in self.steps))

    @cached_property
    def bytes_by_kind(self) -> dict[str, int]:
        """The bytes that each kind of step moves."""
        moved: Counter[str] = Counter({"move": 0, "reduce-scatter": 0, "all-gather": 0})
        for step, count in self.moving:
            moved[kind_of(step)] += count
        return dict(moved)

    @cached_property
    def bytes_by_vertex(self) -> dict[str, int]:
        """The bytes that are moved for each vertex, and for inputs that have a second layout."""
        moved = Counter({step.vertex: 0 for step in self.steps if isinstance(step, Compute)})
        for step, count in self.moving:
            moved[step.vertex] += count
        return dict(moved)

    @cached_property
    def moved(self) -> int:
        """All bytes that devices receive."""
        return sum(self.bytes_by_vertex.values())

    def verify(self) -> None:
        """Raise unless every buffer is made once, before it is used, and outputs are left."""
        made: set[int] = set()
        freed: set[int] = set()
        for step in self.steps:
            *others, last = used_by(step)
            reads = {*others, last} if isinstance(step, AllGather | Free) else {*others}
            origins = {self.buffers[n].alias_of for n in others} - {None}
            fits = reads <= made and freed.isdisjoint({*others, last, *origins})
            if not fits or (last in made) != (last in reads):
                raise PlanError(f"this cannot be carried out where it stands: {self.show(step)}")
            made.add(last)
            if isinstance(step, Free):
                freed.add(last)
        for name, buffer in self.outputs.items():
            if buffer not in made - freed:
                raise PlanError(f"no step leaves {name}, an output")

    def show(self, step: Step) -> str:
        """A step in one line."""

        def named(number: int) -> str:
            return f"{self.buffers[number]}#{number}"

        match step:
            case Load() | Generate():
                return f"{kind_of(step)} {named(step.into)}"
            case Free():
                return f"free {named(step.buffer)}"
            case Compute():
                reads = ", ".join("-" if r is None else named(r.buffer) for r in step.reads)
                return f"compute {named(step.into)} from {reads or 'nothing'}"
            case Move():
                to = f"{'the first of ' * bool(step.first)}{named(step.into)}"
                how = f"to {to} for {step.vertex}: {step.pattern},"
            case ReduceScatter() | AllGather():
                axes = ", ".join(self.mesh.names[axis] for axis in axes_in(self.mesh, step.axes))
                to = f"to {named(step.into)} " * isinstance(step, ReduceScatter)
                how = f"{to}over {axes}:"
        most = "at most " * (getattr(step, "rows", None) is not None)
        return f"{kind_of(step)} {named(step.source)} {how} {most}{self.moved_by(step):,} bytes"

    def __str__(self) -> str:
        counted = ", ".join(f"{n} {kind}" for kind, n in self.counts.items())
        head = f"{len(self.steps)} steps on {self.devices} devices: {counted}"
        return "\n".join([head, f"{self.moved:,} bytes move", *map(self.show, self.steps)])
