"""The graph that a program computes where results are left pending.

A vertex Z that leaves partial results, or reads operands in parts, becomes two. `Z.part` is the
same operation, on `X.part` for every operand X that is read in parts, in the type in which ⊕
accumulates; Z is `Z.part`, combined by ⊕ over no label and rounded. So all vertices have the values
that they had, and kernels of vertices compute, combine and round their parts. Where parts travel in
a smaller type than that, `Z.part` is of this type: each part is rounded to it when it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from eindecomp.errors import PlanError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Op, ScatterAdd
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import LOW_PRECISION, widen
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.homomorphism import carried, repeats
from eindecomp.lang.monoid import BUILTIN, SUM, Monoid, find_monoid
from eindecomp.lang.scalar import Arg, Call, Const, Expr, call, used_args
from eindecomp.layout.cut import bits_of, pending_in
from eindecomp.layout.view import view_of
from eindecomp.planner.space.choices import Decision, summed_axes

_NARROW = {of.name for of in LOW_PRECISION}


@dataclass(frozen=True, slots=True)
class PartsGraph:
    """A graph in which partial results are vertices, and the one that has those of each vertex."""

    graph: Graph
    parts: Mapping[str, str]

    def combined(self, name: str) -> Vertex:
        """A new vertex for parts of a vertex of which some are combined, in the same type."""
        part, op = self.graph[self.parts[name]], self.graph[name].op
        assert isinstance(op, EinSum)  # noqa: S101 - it combines its parts
        own = self.graph.fresh(f"{name}.sums")
        return self.graph.add(replace(op, join=Arg(0)), [part.name], own)

    def identity(self, tensor: Vertex, agg: str) -> Vertex:
        """A new fill of a tensor's shape and type with the identity of ⊕."""
        [neutral] = _monoid(self.graph, agg).identity_for([tensor.dtype])
        labels = tuple(f"d{k}" for k in range(len(tensor.shape)))
        fill = Fill(labels, call(tensor.dtype.name, Const(neutral.item())))
        sizes = dict(zip(labels, tensor.shape, strict=True))
        return self.graph.add(fill, [], self.graph.fresh(f"{tensor.name}.none"), sizes)


class ReadInParts(NamedTuple):
    """How an operand is read in parts of ⊕."""

    is_pending: bool
    """Whether its partial results are read, not all of it."""
    first: int
    """The axes (as bits) along which only the first device has it, others the identity of ⊕."""
    agg: str


def read_in_parts(
    decisions: Mapping[str, Decision], vertex: Vertex, operand: int
) -> ReadInParts | None:
    """How a vertex reads an operand in parts; None if it reads it whole."""
    waits = [wait for wait in decisions[vertex.name].waits if operand in wait.operands]
    if not waits:
        return None
    along, agg = sum(bits_of(wait.axes) for wait in waits), waits[0].agg
    repeat = repeats(BUILTIN.get(agg, SUM))
    source = decisions.get(vertex.inputs[operand])
    pending = None if source is None else pending_in(source.home)
    if pending is not None and pending.pending == agg and not bits_of(pending.axes) & ~along:
        return ReadInParts(True, 0 if repeat else along & ~bits_of(pending.axes), agg)
    return None if repeat else ReadInParts(False, along, agg)


def with_parts(graph: Graph, decisions: Mapping[str, Decision]) -> PartsGraph:
    """The graph with a vertex for the partial results of each that reads or leaves some."""
    split = {name for name, own in decisions.items() if _has_parts(graph, name, own)}
    if not split:
        return PartsGraph(graph, {})
    made, parts = Graph.of((), (), graph.scalars, avoid=graph), dict[str, str]()
    for vertex in graph.vertices.values():
        if vertex.name not in split:
            made.append(vertex)
            continue
        agg = _combines(graph, vertex, decisions[vertex.name])
        parts[vertex.name] = made.fresh(f"{vertex.name}.part")
        part = made.append(_part(vertex, decisions, parts))
        made.append(_whole(vertex, part, agg))
    made.end([vertex.name for vertex in graph.outputs], graph.ties)
    return PartsGraph(made, parts)


def _has_parts(graph: Graph, name: str, decision: Decision) -> bool:
    """Whether a vertex reads or leaves parts, or leaves them in another type to be combined."""
    vertex = graph[name]
    if decision.waits or pending_in(decision.home) is not None:
        return True
    summed = summed_axes(view_of(graph, vertex), decision.assignment)
    return vertex.reduce_dtype is not None and summed > 0


def _part(vertex: Vertex, decisions: Mapping[str, Decision], parts: Mapping[str, str]) -> Vertex:
    """The vertex that computes the parts of another."""
    reads = [read_in_parts(decisions, vertex, k) for k in range(len(vertex.inputs))]
    pairs = zip(vertex.inputs, reads, strict=True)
    inputs = tuple(parts[name] if read and read.is_pending else name for name, read in pairs)
    op: Op = vertex.op
    if isinstance(op, EinSum):
        own = frozenset(k for k, read in enumerate(reads) if read is not None)
        op = replace(op, join=_widened(op.join, own))
    narrow = vertex.reduce_dtype
    dtype = widen(vertex.dtype) if narrow is None else narrow
    return Vertex(parts[vertex.name], op, inputs, vertex.shape, dtype, narrow, vertex.windows)


def _whole(vertex: Vertex, part: Vertex, agg: Monoid) -> Vertex:
    """The vertex that combines the parts of another, and rounds what comes out."""
    # One that has travelled in another small type is not rounded to it before it is combined.
    are_narrow = part.dtype in LOW_PRECISION and vertex.dtype in LOW_PRECISION
    to = widen(vertex.dtype) if are_narrow else vertex.dtype
    join = Arg(0) if part.dtype == vertex.dtype else call(to.name, Arg(0))
    op = EinSum((vertex.labels,), vertex.labels, join, agg)
    return replace(vertex, op=op, inputs=(part.name,), reduce_dtype=None, windows=())


def _widened(join: Expr, parts: frozenset[int]) -> Expr:
    """A join that does not round what is in parts: it is rounded once, when they are combined."""
    if not isinstance(join, Call) or parts.isdisjoint(used_args(join)):
        return join
    op = "float32" if join.op in _NARROW else join.op
    return Call(op, tuple(_widened(arg, parts) for arg in join.args))


def _combines(graph: Graph, vertex: Vertex, decision: Decision) -> Monoid:
    """The ⊕ that combines the parts of a vertex."""
    op = vertex.op
    found: list[Monoid | None] = [SUM] if isinstance(op, ScatterAdd) else []
    found += [op.agg] if isinstance(op, EinSum) and op.agg is not None else []
    types = tuple(graph[source].dtype for source in vertex.inputs)
    for wait in decision.waits:
        agg = _monoid(graph, wait.agg)
        own = frozenset(wait.operands)
        found.append(carried(op.join, own, agg, types) if isinstance(op, EinSum) else agg)
    pending = pending_in(decision.home)
    found += [] if pending is None else [_monoid(graph, pending.pending)]
    if found[0] is None or len(set(found)) > 1:
        read = ", ".join(vertex.inputs[k] for wait in decision.waits for k in wait.operands)
        raise PlanError(f"parts of {read or 'a sum'} do not make up parts of {vertex}")
    return found[0]


def _monoid(graph: Graph, name: str) -> Monoid:
    agg = find_monoid(name, {**BUILTIN, **graph.monoids})
    if agg is None or agg.width > 1 or agg.finish is not None:
        raise PlanError(f"nothing can be left pending for {name!r}")
    return agg
