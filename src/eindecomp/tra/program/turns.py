"""The graph that a program computes where a plan within a limit on memory takes turns.

Turn c of n computes rows c, c + n, c + 2n, … of the label that turns divide: each device takes
every n-th of its own rows, so that nothing moves that would not move otherwise. Operands that are
not divided are fetched once, before the first turn. What each turn makes a part of is put together
after the last one; what is summed over turns stays in parts until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Op, Reshape, sliced
from eindecomp.graph.turns import Turns, in_turns, turn_bytes
from eindecomp.graph.vertex import Shape, Vertex, unused_label
from eindecomp.graph.work import partial_bytes
from eindecomp.lang.dtypes import DType, widen
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import Arg, call, replace_args
from eindecomp.layout.cut import Axes, Cut, axes_in, pending_in, pending_span, turns_of
from eindecomp.layout.overlaps import fullest, is_inside
from eindecomp.layout.view import View, view_of
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.choices import Decision, Wait, cut_of, decided_choices, summed_axes

Taken = Literal["all", "none"] | Set[str]
"""By what turns are taken; of named vertices alone where one kernel computes all others."""


def taking_turns(plan: Plan, taken: Taken) -> Plan:
    """The plan in which what is computed in turns is there once for each of them."""
    if plan.memory is None or taken == "none":
        return plan
    every = in_turns(plan.graph)[1]
    most = turn_bytes(plan.graph, every, plan.devices)
    if not isinstance(taken, str):
        every = tuple(own for own in every if taken & (own.labels.keys() - own.outputs))
    counted = [(own, _turns_taken(plan, own, most)) for own in every]
    divided = {name: each for each in counted if each[1] > 1 for name in each[0].labels}
    if not divided:
        return plan
    graph = Graph.of((), (), plan.graph.scalars, avoid=plan.graph)
    made = replace(plan, graph=graph, decisions={})
    for vertex in plan.graph.vertices.values():
        if vertex.name not in divided:
            graph.append(vertex)
            if vertex.name in plan.decisions:
                _decisions(made)[vertex.name] = plan.decisions[vertex.name]
        elif vertex.name == next(iter(divided[vertex.name][0].labels)):
            _Taking(plan, made, *divided[vertex.name]).add()
    graph.end([vertex.name for vertex in plan.graph.outputs], plan.graph.ties)
    return made


def _turns_taken(plan: Plan, turns: Turns, most: int) -> int:
    """How many turns make little enough of what is never there as a whole."""
    cuts: set[Axes] = set()
    count = 1
    for name, label in turns.labels.items():
        vertex, decision = plan.graph[name], plan.decisions[name]
        view = view_of(plan.graph, vertex)
        by_label = dict(zip(view.labels, decision.assignment, strict=True))
        cuts.add(by_label[label])
        is_inner = name not in turns.outputs
        if decision.waits or pending_in(decision.home) or (is_inner and decision.second):
            return 1
        there = [(decision.home, vertex.labels, vertex.dtype.itemsize)] if is_inner else []
        if label in vertex.labels:
            if decision.home[vertex.labels.index(label)].axes != by_label[label]:
                return 1
            if summed_axes(view, decision.assignment):
                tile = cut_of(view, view.output, decision.assignment)
                there.append((tile, vertex.labels, partial_bytes(plan.graph, vertex)))
        assert isinstance(vertex.op, EinSum)  # noqa: S101 - only those take turns
        for k, source in enumerate(vertex.inputs):
            if source in turns.labels and (dims := view.reads[k]) is not None:
                need = cut_of(view, dims, decision.assignment)
                item = plan.graph[source].dtype.itemsize
                there.append((need, vertex.op.inputs[k], item))
        for cut, labels, item in there:
            nbytes = item * int(fullest(plan.mesh, [cut])[0])
            count = max(count, turns_of(plan.mesh, cut[labels.index(label)], nbytes, most))
    return count if len(cuts) == 1 else 1


def _decisions(plan: Plan) -> dict[str, Decision]:
    assert isinstance(plan.decisions, dict)  # noqa: S101 - of a plan that is being made
    return plan.decisions


@dataclass
class _Taking:
    """The vertices of some turns, which are added to a plan."""

    plan: Plan
    """As it was made."""
    made: Plan
    """As far as it is carried out in turns."""
    turns: Turns
    count: int
    known: dict[object, str] = field(default_factory=dict[object, str])
    """What operands are read as."""

    @cached_property
    def decided(self) -> Mapping[str, Decision]:
        """The decisions on the vertices that take turns."""
        return {name: self.plan.decisions[name] for name in self.turns.labels}

    def add(self) -> None:
        """All turns, one after another, and what they make together."""
        parts: dict[str, list[str]] = {name: [] for name in self.turns.outputs}
        for turn in range(self.count):
            now: dict[str, str] = {}
            for name in self.turns.labels:
                now[name] = self._add_part(name, turn, now)
                if name in parts:
                    parts[name].append(now[name])
                if name in parts and self.turns.labels[name] not in self.plan.graph[name].labels:
                    parts[name] = [self._add_sum(name, parts[name], turn)]
        for name, own in parts.items():
            if self.turns.labels[name] in self.plan.graph[name].labels:
                self._put_together(name, own)

    def _part(self, shape: Shape, labels: Labels, label: str) -> Shape:
        """A shape of which one turn has a part."""
        sizes = zip(labels, shape, strict=True)
        return tuple(size // self.count if own == label else size for own, size in sizes)

    def _store(
        self,
        name: str,
        op: Op,
        inputs: Sequence[str],
        shape: Shape,
        axes: Mapping[str, Axes],
        of: Vertex,
        dtypes: tuple[DType, DType | None] | None = None,
        **decided: Any,
    ) -> str:
        """Add a vertex that is cut by these axes; its home follows from that unless it is given.

        `dtypes` are its type and that in which its parts travel, if not as in what it is part `of`.
        """
        types = dtypes or (of.dtype, None)
        vertex = self.made.graph.append(Vertex(name, op, tuple(inputs), shape, *types))
        view = view_of(self.made.graph, vertex)
        assignment = tuple(axes.get(label, ()) for label in view.labels)
        own = Decision(assignment, ((),) * len(shape), ())
        own = replace(own, **decided)
        if not own.home:
            own = replace(own, home=decided_choices(view, self.made.mesh, own).homes[0])
        _decisions(self.made)[name] = own
        return name

    def _fresh(self, name: str) -> str:
        return self.made.graph.fresh(name)

    # What each turn computes

    def _add_part(self, name: str, turn: int, now: Mapping[str, str]) -> str:
        """A vertex as one turn computes it: part of a result with one more dimension, of size 1."""
        vertex, decision, label = self.plan.graph[name], self.decided[name], self.turns.labels[name]
        op = vertex.op
        assert isinstance(op, EinSum)  # noqa: S101 - only those take turns
        view = view_of(self.plan.graph, vertex)
        axes = dict(zip(view.labels, decision.assignment, strict=True))
        inputs = [
            now[source] if source in now else self._operand(vertex, view, k, turn)
            for k, source in enumerate(vertex.inputs)
        ]
        own = self._fresh(f"{name}.turn{turn}")
        if label not in op.output:
            summed = axes_in(self.made.mesh, summed_axes(view, decision.assignment))
            lies = self._in_parts(view, decision, summed)
            wide = (widen(vertex.dtype), None)
            return self._store(own, op, inputs, vertex.shape, axes, vertex, wide, **lies)
        shape, places = self._part(vertex.shape, vertex.labels, label), decision.places
        if name in self.turns.outputs:
            at = op.output.index(label) + 1
            one = unused_label("turn", op.labels)
            op = replace(op, output=(*op.output[:at], one, *op.output[at:]))
            shape, places = (*shape[:at], 1, *shape[at:]), (*places[:at], (), *places[at:])
        types = (vertex.dtype, vertex.reduce_dtype)
        return self._store(own, op, inputs, shape, axes, vertex, types, places=places)

    def _in_parts(self, view: View, decision: Decision, summed: Axes) -> dict[str, Any]:
        """Where the partial results of a sum lie until the last turn."""
        if not summed:
            return {}
        tile = cut_of(view, view.output, decision.assignment)
        home = (*tile, pending_span(self.made.mesh, summed, "sum"))
        return {"home": home, "places": (*((),) * len(tile), summed)}

    def _operand(self, reader: Vertex, view: View, k: int, turn: int) -> str:
        """What one turn reads in the place of an operand that is computed before all turns."""
        source = self.plan.graph[reader.inputs[k]]
        assert isinstance(reader.op, EinSum)  # noqa: S101 - only those take turns
        labels, dims = reader.op.inputs[k], view.reads[k]
        if dims is None:  # only its size counts
            return source.name
        divided = self.turns.divides(self.plan.graph, reader.name, k)
        at = labels.index(self.turns.labels[reader.name]) if divided else -1
        if isinstance(source.op, Fill):
            return self._filled(source, at, turn) if divided else source.name
        need = cut_of(view, dims, self.decided[reader.name].assignment)
        here = self._is_here(source.name, need)
        key = (source.name, need, at) if here else (reader.name, k)
        if divided:
            if key not in self.known:
                self.known[key] = self._divide(source, need, at)
            return self._rows(self.known[key], source, need, at, turn)
        if not here and key not in self.known:
            op = EinSum((source.labels,), source.labels, Arg(0))
            axes = _axes(source.labels, need)
            own = self._fresh(f"{source.name}.here")
            self.known[key] = self._store(own, op, [source.name], source.shape, axes, source)
        return source.name if here else self.known[key]

    def _is_here(self, source: str, need: Cut) -> bool:
        """Whether each device holds what it needs of a tensor."""
        lies = self.plan.given.get(source)
        if source in self.plan.decisions:
            lies = self.plan.decisions[source].layouts
        return lies is None or any(is_inside(self.made.mesh, need, cut) for cut in lies.cuts)

    def _filled(self, source: Vertex, at: int, turn: int) -> str:
        """Some rows of a fill."""
        key = (source.name, at, turn)
        if key not in self.known:
            assert isinstance(source.op, Fill)  # noqa: S101 - as the caller has checked
            row = call("add", call("mul", Arg(at), self.count), turn)
            index = [row if k == at else Arg(k) for k in range(len(source.shape))]
            value = replace_args(source.op.value, index)
            shape = self._part(source.shape, source.labels, source.labels[at])
            own = self._fresh(f"{source.name}.turn{turn}")
            made = Vertex(own, replace(source.op, value=value), (), shape, source.dtype)
            self.known[key] = self.made.graph.append(made).name
        return self.known[key]

    def _divide(self, source: Vertex, need: Cut, at: int) -> str:
        """A tensor with a dimension for turns behind that which they divide."""
        shape = self._part(source.shape, source.labels, source.labels[at])
        shape = (*shape[: at + 1], self.count, *shape[at + 1 :])
        op = _dividing(source.labels, at, shape)
        own = self._fresh(f"{source.name}.turns")
        return self._store(own, op, [source.name], shape, _axes(source.labels, need), source)

    def _rows(self, divided: str, source: Vertex, need: Cut, at: int, turn: int) -> str:
        """What one turn reads of a tensor that was divided."""
        key = (divided, turn)
        if key not in self.known:
            ranges = [*(None for _ in source.labels)]
            shape = self._part(source.shape, source.labels, source.labels[at])
            own, axes = self._fresh(f"{source.name}.turn{turn}"), _axes(source.labels, need)
            cut = (*ranges[: at + 1], turn, *ranges[at + 1 :])
            op = sliced(source.labels, cut, self.made.graph[divided].shape)
            self.known[key] = self._store(own, op, [divided], shape, axes, source)
        return self.known[key]

    # What all turns make together

    def _add_sum(self, name: str, parts: list[str], turn: int) -> str:
        """The sum over turns so far, and the result after the last one."""
        if len(parts) == 1:
            return parts[0]
        vertex, decision = self.plan.graph[name], self.decided[name]
        view = view_of(self.plan.graph, vertex)
        summed = axes_in(self.made.mesh, summed_axes(view, decision.assignment))
        axes = dict(zip(view.labels, decision.assignment, strict=True))
        total, is_last = call("add", Arg(0), Arg(1)), turn == self.count - 1
        lies: dict[str, Any] = self._in_parts(view, decision, summed)
        if is_last:
            total = total if widen(vertex.dtype) == vertex.dtype else call(vertex.dtype.name, total)
            lies = {"home": decision.home, "places": decision.places, "second": decision.second}
        if summed:
            lies = {**lies, "waits": (Wait(summed, (0, 1), "sum"),)}
        op = EinSum((vertex.labels,) * 2, vertex.labels, total)
        own = name if is_last else self._fresh(f"{name}.sum{turn}")
        types = (vertex.dtype, vertex.reduce_dtype) if is_last else (widen(vertex.dtype), None)
        return self._store(own, op, parts, vertex.shape, axes, vertex, types, **lies)

    def _put_together(self, name: str, parts: list[str]) -> None:
        """A result of which each turn has made some rows."""
        vertex, decision, label = self.plan.graph[name], self.decided[name], self.turns.labels[name]
        at = vertex.labels.index(label)
        part = self.made.graph[parts[0]]
        shape = (*part.shape[: at + 1], self.count, *part.shape[at + 2 :])
        axes = _axes(part.labels, _decisions(self.made)[part.name].home)
        op = Concat(part.labels, part.labels[at + 1])
        every = self._store(self._fresh(f"{name}.turns"), op, parts, shape, axes, vertex)
        divided = _dividing(vertex.labels, at, shape)
        sizes = dict(divided.sizes)
        order = tuple((group[0], sizes[group[0]]) for group in divided.groups)
        merged = Reshape(divided.groups, divided.input, order)
        axes = _axes(vertex.labels, decision.home)
        self._store(name, merged, [every], vertex.shape, axes, vertex, second=decision.second)


def _axes(labels: Iterable[str], cut: Cut) -> dict[str, Axes]:
    """By which axes a cut cuts each dimension, by its label."""
    return {label: span.axes for label, span in zip(labels, cut, strict=False)}


def _dividing(labels: Labels, at: int, shape: Shape) -> Reshape:
    """The reshape that makes two dimensions of one: its rows in each turn, and turns."""
    turn = unused_label("turn", labels)
    before = tuple((own, turn) if k == at else (own,) for k, own in enumerate(labels))
    after = tuple((own,) for group in before for own in group)
    return Reshape(before, after, tuple((o[0], n) for o, n in zip(after, shape, strict=True)))
