"""Makes the program of a plan: what is computed from which buffers, and what moves in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from eindecomp.errors import PlanError
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.shown import numbered
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import partial_bytes, partial_types
from eindecomp.lang.dtypes import DType
from eindecomp.layout.cut import Cut, bits_of, combined, pending_in, used_axes
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.overlaps import is_inside, moved, totals
from eindecomp.layout.tiling import Tiling, replicated_axes, uncut
from eindecomp.layout.view import Dim, View, view_of
from eindecomp.planner.costs.named_rows import fetched, most_bytes, reduced
from eindecomp.planner.costs.price import Price, PriceInBytes, price_of
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.choices import (
    Choices,
    Decision,
    Layouts,
    cut_of,
    decided_choices,
    summed_axes,
)
from eindecomp.tra.program import steps
from eindecomp.tra.program.parts import PartsGraph, ReadInParts, read_in_parts, with_parts
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.turns import Taken, taking_turns


def program_of(plan: Plan, turns: Taken = "all") -> Program:
    """The program of a plan; what it moves is `plan.traffic`, which for bytes is `plan.cost`."""
    plan = taking_turns(plan, turns)
    maker = _ProgramMaker(plan, with_parts(plan.graph, plan.decisions))
    maker.load_inputs()
    for name, decision in plan.decisions.items():
        maker.add(plan.graph[name], decision)
    for vertex in plan.graph.outputs:
        maker.add_output(vertex)
    all_steps = tuple(_with_frees(maker))
    graph = maker.split.graph
    return Program(graph, plan.mesh, tuple(maker.buffers), all_steps, maker.outputs)


@dataclass
class _ProgramMaker:
    """The program so far, and where each tensor lies."""

    plan: Plan
    split: PartsGraph
    buffers: list[steps.Buffer] = field(default_factory=list[steps.Buffer])
    added: list[steps.Step] = field(default_factory=list["steps.Step"])
    """The steps, in order."""
    lies: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The lasting buffers of a tensor: given ones, its home, its second layout."""
    pending: dict[str, int] = field(default_factory=dict[str, int])
    """The buffer of a tensor's partial results, where its home has only those."""
    identities: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """The fills with an identity, by tensor and ⊕."""
    outputs: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def mesh(self) -> Mesh:
        return self.plan.mesh

    @cached_property
    def price(self) -> Price:
        """What the plan was made to minimize."""
        return price_of(self.plan.objective, self.mesh, self.plan.machine)

    def buffer(
        self,
        vertex: Vertex,
        role: steps.Role,
        tiling: Tiling,
        types: tuple[DType, ...] | None = None,
        alias_of: int | None = None,
    ) -> int:
        """A new buffer, by its number."""
        number = len(self.buffers)
        types = (vertex.dtype,) if types is None else types
        self.buffers.append(steps.Buffer(number, vertex.name, role, tiling, types, alias_of))
        return number

    # Inputs

    def load_inputs(self) -> None:
        """The layouts in which inputs lie when the program begins: at home, or as wanted."""
        wanted: dict[str, dict[Cut, None]] = {vertex.name: {} for vertex in self.plan.graph.inputs}
        for name, decision in self.plan.decisions.items():
            vertex = self.plan.graph[name]
            needs = _needs(view_of(self.plan.graph, vertex), decision)
            for source, need in zip(vertex.inputs, needs, strict=True):
                if need is not None and source in wanted:
                    wanted[source][need] = None
        for name, cuts in wanted.items():
            self.lies[name] = []
            for tiling in self._stored_as(name, list(cuts)):
                number = self.buffer(self.plan.graph[name], steps.Role.GIVEN, tiling)
                self.lies[name].append(number)
                self.added.append(steps.Load(number))

    def _stored_as(self, name: str, wanted: list[Cut]) -> list[Tiling]:
        """The tilings in which an input is stored."""
        if name in self.plan.given:
            return [Tiling(self.plan.given[name].home)]
        # Where it is free it lies as wanted; a block of what a device has already is a view.
        sizes = {cut: int(totals(self.mesh, [cut])[0]) for cut in wanted}
        kept: list[Cut] = []
        for cut in sorted(wanted, key=lambda cut: -sizes[cut]):
            if not any(is_inside(self.mesh, cut, other) for other in kept):
                kept.append(cut)
        return [Tiling(cut) for cut in kept]

    def _keep_second(self, vertex: Vertex, layouts: Layouts) -> None:
        """Move a tensor to its second layout, if it is kept in one."""
        if layouts.second is not None:
            [home] = self.lies[vertex.name]
            second = self.buffer(vertex, steps.Role.SECOND, Tiling(layouts.second))
            self._move(vertex.name, home, second)
            self.lies[vertex.name].append(second)

    # Vertices

    def add(self, vertex: Vertex, decision: Decision) -> None:
        """All steps of a vertex that is computed."""
        view = view_of(self.plan.graph, vertex)
        for source in vertex.inputs:
            # An input is moved to its second layout when it is first read.
            if source in self.plan.given and len(self.lies[source]) == 1:
                self._keep_second(self.plan.graph[source], self.plan.given[source])
        reads = self._operands(vertex, view, decision)
        dims = tuple(Dim(label, 0, size) for label, size in numbered(vertex).items())
        numbers = cut_of(view, dims, decision.assignment)
        summed = summed_axes(view, decision.assignment)
        partial = summed | sum(bits_of(wait.axes) for wait in decision.waits)
        if not partial:
            home = self.buffer(vertex, steps.Role.HOME, Tiling(decision.home))
            self.added.append(steps.Compute(vertex.name, reads, home, False, numbers))
            self.lies[vertex.name] = [home]
            self._keep_second(vertex, decision.layouts)
            return
        made = self.split.graph[self.split.parts.get(vertex.name, vertex.name)]
        types = partial_types(self.split.graph, made)
        tiling = Tiling(cut_of(view, view.output, decision.assignment))
        parts = self.buffer(made, steps.Role.PARTIAL, tiling, types)
        is_rounded = made.reduce_dtype is not None
        is_partial = bool(summed) and not is_rounded
        self.added.append(steps.Compute(vertex.name, reads, parts, is_partial, numbers))
        if decision.waits or pending_in(decision.home) is not None:
            self._leave_parts(vertex, decision, parts, partial)
            return
        home = self.buffer(self.split.graph[vertex.name], steps.Role.HOME, Tiling(decision.home))
        rows = self._partial_rows(vertex, view, decision, reads)
        self._reduce(vertex.name, parts, home, partial, rows)
        self.lies[vertex.name] = [home]
        self._keep_second(vertex, decision.layouts)

    def _leave_parts(self, vertex: Vertex, decision: Decision, parts: int, partial: int) -> None:
        """Combine partial results, except along axes along which they are to stay as they are."""
        name, whole = vertex.name, self.split.graph[vertex.name]
        pending, cut = pending_in(decision.home), combined(decision.home)
        if pending is None:
            home = self.buffer(whole, steps.Role.HOME, Tiling(cut))
            self._reduce(name, parts, home, partial)
            self.lies[name] = [home]
            self._keep_second(vertex, decision.layouts)
            return
        kept = bits_of(pending.axes)
        if partial != kept:
            fewer = self.buffer(self.split.combined(name), steps.Role.PARTIAL, Tiling(cut))
            self._reduce(name, parts, fewer, partial & ~kept)
            parts = fewer
        self.pending[name], self.lies[name] = parts, []
        if decision.second is not None:
            second = self.buffer(whole, steps.Role.SECOND, Tiling(decision.second))
            self._reduce(name, parts, second, kept)
            self.lies[name] = [second]

    def _reduce(
        self, vertex: str, source: int, into: int, axes: int, rows: steps.MovedRows | None = None
    ) -> None:
        """Combine partial results; where several devices want the same, each combines a share."""
        split = axes & ~used_axes(self.buffers[into].tiling.cut)
        self.added.append(steps.ReduceScatter(vertex, source, into, axes, split, rows))
        if split:
            self.added.append(steps.AllGather(vertex, into, split))

    def _partial_rows(
        self, vertex: Vertex, view: View, decision: Decision, reads: tuple[steps.Read | None, ...]
    ) -> steps.MovedRows | None:
        """The rows of a scatter that are reduced, where those are less than whole blocks."""
        named = view.named
        if named is None or not PriceInBytes(self.mesh).by_rows:
            return None
        choice = decided_choices(view, self.mesh, decision)
        item = partial_bytes(self.plan.graph, vertex)
        blocks = item * vertex.elements * choice.reduced
        if reduced(choice, blocks, item)[0, 0] == blocks[0, 0]:
            return None
        index = reads[1]
        assert index is not None  # noqa: S101 - a scatter reads its index
        return steps.MovedRows(index, named, int(most_bytes(choice, named, item)[0]))

    def _move(
        self, vertex: str, source: int, into: int, rows: steps.MovedRows | None = None
    ) -> None:
        tilings = (self.buffers[number].tiling for number in (source, into))
        pattern = steps.pattern_of(self.mesh, *tilings)
        self.added.append(steps.Move(vertex, source, into, pattern, rows))

    def _operands(
        self, vertex: Vertex, view: View, decision: Decision
    ) -> tuple[steps.Read | None, ...]:
        """Where all operands are read: an index first, which may say what is fetched of a table."""
        needs, named = _needs(view, decision), view.named
        ways = [read_in_parts(self.plan.decisions, vertex, k) for k in range(len(needs))]
        by_rows = named is not None and not named.is_result and PriceInBytes(self.mesh).by_rows
        if not by_rows or ways[0] is not None:
            return tuple(
                None
                if need is None
                else self._operand(vertex, source, need)
                if way is None
                else self._in_parts(vertex, source, need, way)
                for source, need, way in zip(vertex.inputs, needs, ways, strict=True)
            )
        choice, (table, index) = decided_choices(view, self.mesh, decision), vertex.inputs
        assert needs[1] is not None  # noqa: S101 - lookups read both
        where = self._operand(vertex, index, needs[1])
        return self._looked_up(vertex, choice, table, where), where

    def _in_parts(self, vertex: Vertex, source: str, need: Cut, way: ReadInParts) -> steps.Read:
        """Where an operand is read in parts: its own, or all of it on the first device only."""
        first = way.first
        if way.is_pending:
            held = self.pending[source]
            lacks = moved(self.mesh, [self.buffers[held].tiling.cut], [need], first)[0, 0]
            if lacks:
                name = self.plan.graph[source]
                raise PlanError(f"{vertex} reads more of {name} in parts than devices hold")
            if not first:
                return steps.Read(held, need)
        elif isinstance(self.plan.graph[source].op, Fill):
            held = self._operand(vertex, source, need).buffer
        else:
            held = self._nearest(source, need, first)
        tensor = self.split.graph[self.buffers[held].tensor]
        key = (tensor.name, way.agg)
        if key not in self.identities:
            self.identities[key] = self.split.identity(tensor, way.agg).name
        piece = self.buffer(tensor, steps.Role.PIECE, Tiling(need))
        travels = moved(self.mesh, [self.buffers[held].tiling.cut], [need], first)[0, 0]
        pattern = steps.PointToPoint() if travels else steps.LocalSlice()
        move = steps.Move(vertex.name, held, piece, pattern, None, first, self.identities[key])
        self.added.append(move)
        return steps.Read(piece, need)

    def _looked_up(
        self, vertex: Vertex, choice: Choices, source: str, index: steps.Read
    ) -> steps.Read:
        """Where a lookup reads its table: fetched as rows where those are less than blocks."""
        reads, named, price = choice.reads[0], choice.view.named, PriceInBytes(self.mesh)
        assert reads is not None and named is not None  # noqa: S101, PT018 - of a lookup
        need, origin = reads.cuts[0], self.plan.graph[source]
        if source not in self.plan.decisions and source not in self.plan.given:
            return self._operand(vertex, source, need)
        cuts = [self.buffers[number].tiling.cut for number in self.lies[source]]
        item = origin.dtype.itemsize
        costs = fetched(price, choice, 0, cuts, item)[:, 0]
        nearest = int(costs.argmin())
        if costs[nearest] == price.fetch(cuts, [need], item)[nearest, 0]:
            return self._operand(vertex, source, need)
        held = self.lies[source][nearest]
        piece = self.buffer(origin, steps.Role.PIECE, Tiling(need), alias_of=held)
        rows = steps.MovedRows(index, named, int(most_bytes(choice, named, item)[0]))
        self._move(vertex.name, held, piece, rows)
        return steps.Read(piece, need)

    def _operand(self, vertex: Vertex, source: str, need: Cut) -> steps.Read:
        """Where an operand is read, after it was fetched from where that costs least."""
        origin = self.plan.graph[source]
        if isinstance(origin.op, Fill):
            piece = self.buffer(origin, steps.Role.PIECE, Tiling(need))
            self.added.append(steps.Generate(piece, vertex.name))
            return steps.Read(piece, need)
        held = self._nearest(source, need)
        tiling = self.buffers[held].tiling
        if is_inside(self.mesh, need, tiling.cut):
            return steps.Read(held, need)
        piece = self.buffer(origin, steps.Role.PIECE, Tiling(need), alias_of=held)
        self._move(vertex.name, held, piece)
        return steps.Read(piece, need)

    def _nearest(self, source: str, need: Cut, first: int = 0) -> int:
        """The buffer of a tensor from which fetching costs the plan's objective least.

        With `first`, the one from which it moves least to the first devices along these axes.
        """
        lies = self._whole(source)
        if source in self.plan.decisions or source in self.plan.given:
            cuts = [self.buffers[number].tiling.cut for number in lies]
            if first:
                return lies[int(moved(self.mesh, cuts, [need], first)[:, 0].argmin())]
            item = self.plan.graph[source].dtype.itemsize
            return lies[int(self.price.fetch(cuts, [need], item)[:, 0].argmin())]
        return next(n for n in lies if is_inside(self.mesh, need, self.buffers[n].tiling.cut))

    def add_output(self, vertex: Vertex) -> None:
        """Where an output is gathered from."""
        if isinstance(vertex.op, Fill):
            whole = uncut(vertex.shape)
            # Each makes its share of it; one number has none.
            shared = Tiling(whole, replicated_axes(self.mesh, whole) if whole else 0)
            made = self.buffer(vertex, steps.Role.HOME, shared)
            self.added.append(steps.Generate(made, None))
            self.outputs[vertex.name] = made
        elif not isinstance(vertex.op, Input):
            self.outputs[vertex.name] = self._whole(vertex.name)[0]

    def _whole(self, name: str) -> list[int]:
        """The buffers of a tensor that have all of it, not partial results."""
        if not self.lies[name]:
            raise PlanError(f"{self.plan.graph[name]} is read whole, and is left pending")
        return self.lies[name]


def _needs(view: View, decision: Decision) -> list[Cut | None]:
    """What every device needs of each operand; None for one whose elements are never read."""
    assigned = decision.assignment
    return [None if dims is None else cut_of(view, dims, assigned) for dims in view.reads]


def _with_frees(maker: _ProgramMaker) -> Iterator[steps.Step]:
    """The steps, each followed by the release of what nobody reads after it.

    Inputs stay: they belong to whoever gave them, and are there for the next run. Tied ones do not:
    in the next run a result stands in for them.
    """
    last: dict[int, int] = {}
    """The last step that uses each buffer, or one that may be a view of it."""
    for number, step in enumerate(maker.added):
        for used in steps.used_by(step):
            last[used] = number
            if (origin := maker.buffers[used].alias_of) is not None:
                last[origin] = number
    kept = set(maker.outputs.values())
    dead: dict[int, list[int]] = {}
    for buffer in maker.buffers:
        stays = buffer.role is steps.Role.GIVEN and buffer.tensor not in maker.plan.tie
        if not stays and buffer.number not in kept:
            dead.setdefault(last[buffer.number], []).append(buffer.number)
    for number, step in enumerate(maker.added):
        yield step
        yield from map(steps.Free, dead.get(number, ()))
