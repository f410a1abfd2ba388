"""Results in parts: which vertices leave them, and which can read them before ⊕ combines them.

Devices that share an aggregation each have a part of its result. The ⊕ of a vertex's parts is its
aggregation or, where it has none, what it makes of the ⊕ of its operands' parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Gather, Reshape, ScatterAdd, Window
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import Types
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.homomorphism import carried, parts_of_join
from eindecomp.lang.index import CLAMP
from eindecomp.lang.monoid import BUILTIN, SUM, Monoid

Operands = frozenset[int]


class Parts(NamedTuple):
    """The parts in which a result may be."""

    agg: Monoid
    """The ⊕ that combines them."""
    read: Monoid | None = None
    """The ⊕ of operands that are read in parts, if any can be."""
    sets: tuple[Operands, ...] = ()
    """The operands that are read in parts together: the largest such sets."""


def parts_of(graph: Graph) -> dict[str, Parts]:
    """The parts in which results may be.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> lines = ["P[i] <- sum X[i,j]", "Q[i] <- P[i] + X[i,0]", "Z[i] <- exp(Q[i])", "output Z"]
    >>> found = parts_of(parse("input X[i: 3, j: 4]\\n" + "\\n".join(lines)))
    >>> [(name, own.agg.name, own.sets) for name, own in found.items() if name in "PQZ"]
    [('P', 'sum', ()), ('Q', 'sum', (frozenset({0, 1}),))]
    """
    parts: dict[str, Parts] = {}
    for name, vertex in graph.vertices.items():
        own = _own(vertex)
        known = [parts[source].agg if source in parts else None for source in vertex.inputs]
        types = tuple(graph[source].dtype for source in vertex.inputs)
        passes = own is not None or not aggregates(vertex)
        every = list(_passed_on(vertex, types, known, own)) if passes else []
        if every:  # those that read the most operands in parts together
            parts[name] = max(every, key=lambda each: _joined(known, each))
        elif own is not None:
            parts[name] = Parts(own)
    return parts


def _passed_on(
    vertex: Vertex, types: Types, known: Sequence[Monoid | None], own: Monoid | None
) -> Iterator[Parts]:
    """The parts that a result may be in if operands are in parts of some ⊕."""
    for agg in dict.fromkeys(each for each in known if each is not None):
        results = {own: _result(vertex, own, agg, types) for own in _sets(vertex, agg, types)}
        for wanted in dict.fromkeys(results.values()) if own is None else [own]:
            kept = tuple(operands for operands, made in results.items() if made == wanted)
            if wanted is not None and kept:
                yield Parts(wanted, agg, kept)


def _joined(known: Sequence[Monoid | None], parts: Parts) -> int:
    """The most operands in parts that are read in parts together."""
    return max(sum(known[k] == parts.read for k in operands) for operands in parts.sets)


def sums_in_parts(graph: Graph) -> set[str]:
    """Results that join several others in parts, but for readers that only join them with such.

    Fused into a reader that needs them combined, each of the others would be combined by itself;
    into one that scales them, or adds what is whole, every device, or one, would need all of that.
    """
    parts, readers = parts_of(graph), graph.users()
    kept: set[str] = set()
    for name, own in parts.items():
        inputs = graph[name].inputs
        joined = {inputs[k] for each in own.sets for k in each if inputs[k] in parts}
        if len(joined) > 1 and not all(_passes(graph, r, name, parts) for r in readers[name]):
            kept.add(name)
    return kept


def _passes(graph: Graph, reader: str, name: str, parts: Mapping[str, Parts]) -> bool:
    """Whether a reader can read a result, and all else that it reads, in parts together."""
    inputs, sets = graph[reader].inputs, parts[reader].sets if reader in parts else ()
    every = name in inputs and all(source in parts for source in inputs)
    return every and any(len(operands) == len(inputs) for operands in sets)


def has_plain_parts(vertex: Vertex) -> bool:
    """Whether a part of a result is one value of its kind: not a tuple, as of a mean."""
    return not aggregates(vertex) or _own(vertex) is not None


def aggregates(vertex: Vertex) -> bool:
    """Whether devices can share an aggregation of a vertex."""
    if isinstance(vertex.op, EinSum):
        return bool(vertex.op.aggregated)
    return isinstance(vertex.op, ScatterAdd)


def _own(vertex: Vertex) -> Monoid | None:
    """The ⊕ of a vertex's own aggregation, if a part of it is one value of the result's kind."""
    agg = vertex.op.agg if isinstance(vertex.op, EinSum) else SUM
    if agg is None or not aggregates(vertex):
        return None
    is_one = agg == BUILTIN[agg.name] if agg.name in BUILTIN else agg.is_plain
    return agg if is_one else None


def _sets(vertex: Vertex, agg: Monoid, types: Types) -> tuple[Operands, ...]:
    """The sets of operands that a vertex can read in parts of ⊕."""
    match vertex.op:
        case EinSum() as op:
            every = parts_of_join(op.join, agg, types)
            return every if all(_is_kept(own, agg, types) for own in vertex.windows) else ()
        case Window() as op if not _is_kept(op, agg, types):
            return ()
        case Window() | Reshape() | Gather():
            return (frozenset({0}),)
        case Concat():
            return (frozenset(range(len(vertex.inputs))),)
        case ScatterAdd() if agg == SUM:
            return (frozenset({0}),)
        case _:
            return ()


def _is_kept(window: Window | None, agg: Monoid, types: Types) -> bool:
    """Whether what is read outside a tensor is, if anything, the identity of ⊕."""
    said = () if window is None else (index.outside for index in window.index)
    numbers = [value for value in said if value is not None and value != CLAMP]
    if not numbers or agg.width > 1:
        return not numbers
    return all(value == agg.identity_for((types[0],))[0] for value in numbers)


def _result(vertex: Vertex, operands: Operands, agg: Monoid, types: Types) -> Monoid | None:
    """The ⊕ of what a vertex makes of operands in parts."""
    op = vertex.op
    return carried(op.join, operands, agg, types) if isinstance(op, EinSum) else agg
