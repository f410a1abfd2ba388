"""Vertices that are computed in turns, for some rows of queries after the other.

The scores of attention, and what is computed of them, have a label of queries and one of keys.
Taken in turns, only those of some queries are there at a time, forwards and backwards. What has
lost its keys is then made piece by piece; what is summed over queries, as the gradient of keys,
grows turn by turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill
from eindecomp.graph.patterns.attention import Attention, find_attention
from eindecomp.graph.patterns.terms import TensorRead
from eindecomp.graph.rewrites.rebuild import equal_vertices
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM


@dataclass(frozen=True, slots=True)
class Turns:
    """What is computed in turns together."""

    labels: Mapping[str, str]
    """The vertices, in the graph's order, each with its own name of the label that is divided."""
    outputs: frozenset[str]
    """Those that others read; all others are never there as a whole."""

    def divides(self, graph: Graph, reader: str, operand: int) -> bool:
        """Whether one of these vertices reads an operand part by part."""
        op = graph[reader].op
        return isinstance(op, EinSum) and self.labels[reader] in op.inputs[operand]

    def divided(self, graph: Graph) -> dict[tuple[str, int], list[tuple[str, int]]]:
        """Who reads which other tensor part by part, by the dimension that is divided."""
        readers: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for name, label in self.labels.items():
            op = graph[name].op
            for k, source in enumerate(graph[name].inputs):
                is_other = source not in self.labels and not isinstance(graph[source].op, Fill)
                if is_other and isinstance(op, EinSum) and label in op.inputs[k]:
                    at = op.inputs[k].index(label)
                    readers.setdefault((source, at), []).append((name, k))
        return readers

    def edges(self, graph: Graph) -> Iterator[tuple[str, str]]:
        """Which of them reads which."""
        for reader in self.labels:
            for name in graph[reader].inputs:
                if name in self.labels:
                    yield name, reader


def attention_turns(graph: Graph) -> list[Turns]:
    """What is computed in turns for the attentions of a graph and for their gradients."""
    users, (equal, _) = graph.users(), equal_vertices(graph)  # what is made again is equal
    reads = {name: [equal[source] for source in graph[name].inputs] for name in graph}
    found: dict[str, Turns] = {}
    for one in find_attention(graph):
        if not one.queries or len(one.parts) != 1:
            continue
        q, k = (replace(each, name=equal[each.name]) for each in (one.q, one.parts[0].k))
        for name, own in reads.items():
            if name not in found and q.name in own and k.name in own:
                turns = _Spread(graph, users, one).of(name, (q, own), (k, own))
                if turns is not None:
                    found |= dict.fromkeys(turns.labels, turns)
    return list({id(turns): turns for turns in found.values()}.values())


def turn_bytes(graph: Graph, every: Sequence[Turns], devices: int) -> int:
    """What a device may hold in a turn of what is never there as a whole.

    It is a quarter of a device's share of the largest tensor that is, which grows with the queries:
    a few of these are there at a time.
    """
    inner = {name for turns in every for name in turns.labels.keys() - turns.outputs}
    others = (vertex for vertex in graph.vertices.values() if vertex.name not in inner)
    made = (v.elements * v.dtype.itemsize for v in others if not isinstance(v.op, Fill))
    return max(made, default=0) // devices // 4


def in_turns(graph: Graph) -> tuple[Graph, tuple[Turns, ...]]:
    """What is computed in turns, in a graph in which the vertices of each follow each other."""
    kept: list[Turns] = []
    order = names = [*graph]
    for turns in attention_turns(graph):
        ordered = _together(graph, order, turns)
        if ordered is not None:
            order, kept = ordered, [*kept, turns]
    if order != names:
        ends = [vertex.name for vertex in graph.outputs]
        graph = Graph.of((graph[name] for name in order), ends, graph.scalars, ties=graph.ties)
    places = {name: place for place, name in enumerate(order)}
    spans = [[places[name] for name in turns.labels] for turns in kept]
    ends = zip(kept, spans, strict=True)  # what came later may have come in between
    return graph, tuple(own for own, span in ends if span[-1] - span[0] == len(span) - 1)


def _together(graph: Graph, names: list[str], turns: Turns) -> list[str] | None:
    """The order in which these vertices follow each other; None if others must come between."""
    own = turns.labels
    first, last = (names.index(name) for name in (next(iter(own)), next(reversed([*own]))))
    window = names[first : last + 1]
    after: set[str] = set()
    for name in window:
        if not after.isdisjoint(graph[name].inputs):
            if name in own:
                return None
            after.add(name)
        elif name not in own and any(source in own for source in graph[name].inputs):
            after.add(name)
    before = [name for name in window if name not in own and name not in after]
    rest = [name for name in window if name in after]
    return [*names[:first], *before, *own, *rest, *names[last + 1 :]]


_Operand = tuple[TensorRead, list[str]]
"""What is read, and all inputs of the reader; of equal vertices, both name the first."""


@dataclass(frozen=True, slots=True)
class _Spread:
    """From scores to all that is computed of them while it has queries and keys."""

    graph: Graph
    users: Mapping[str, list[str]]
    one: Attention

    def of(self, scores: str, q: _Operand, k: _Operand) -> Turns | None:
        """What begins with scores; None if it cannot be computed in turns."""
        query = self._label(scores, *q, self.one.queries[0])
        key = self._label(scores, *k, self.one.parts[0].key)
        if query is None or key is None or not self._has_both(scores, query, key):
            return None
        known = {scores: (query, key)}
        waiting = [scores]
        while waiting:
            name = waiting.pop()
            query, key = known[name]
            if self._has_both(name, query, key):
                for reader in self.users[name]:
                    own = self._passed(name, reader, query, key)
                    if own is None or known.get(reader, own) != own:
                        return None
                    if reader not in known:
                        known[reader] = own
                        waiting.append(reader)
            waiting += self._sources(known, name)
        return self._turns(known)

    def _label(self, reader: str, read: TensorRead, inputs: list[str], label: str) -> str | None:
        """What a reader calls a label of one of its inputs."""
        op = self.graph[reader].op
        if not isinstance(op, EinSum):
            return None
        return op.inputs[inputs.index(read.name)][read.labels.index(label)]

    def _has_both(self, name: str, query: str, key: str) -> bool:
        return {query, key} <= {*self.graph[name].labels}

    def _passed(self, name: str, reader: str, query: str, key: str) -> tuple[str, str] | None:
        """What a reader of a tensor calls its queries and keys."""
        vertex, own = self.graph[reader], self.graph[name].labels
        if not isinstance(vertex.op, EinSum) or vertex.inputs.count(name) > 1:
            return None
        labels = vertex.op.inputs[vertex.inputs.index(name)]
        return labels[own.index(query)], labels[own.index(key)]

    def _sources(self, known: dict[str, tuple[str, str]], name: str) -> list[str]:
        """Note what a vertex alone reads that has queries and keys, too."""
        vertex, (query, key) = self.graph[name], known[name]
        assert isinstance(vertex.op, EinSum)  # noqa: S101 - only those are known
        found: list[str] = []
        for source, labels in zip(vertex.inputs, vertex.op.inputs, strict=True):
            inside = known.keys() >= {*self.users[source]}
            is_einsum = isinstance(self.graph[source].op, EinSum)
            if source not in known and inside and is_einsum and {query, key} <= {*labels}:
                names = dict(zip(labels, self.graph[source].labels, strict=True))
                known[source] = names[query], names[key]
                found.append(source)
        return found

    def _turns(self, known: Mapping[str, tuple[str, str]]) -> Turns | None:
        """What was found in the graph's order, if sums over all turns are read by others alone."""
        labels = {name: known[name][0] for name in self.graph if name in known}
        ends = {vertex.name for vertex in self.graph.outputs}
        outputs = {n for n in labels if n in ends or not labels.keys() >= {*self.users[n]}}
        for name, label in labels.items():
            vertex = self.graph[name]
            op = vertex.op
            assert isinstance(op, EinSum)  # noqa: S101 - only those are known
            alone = name in outputs and labels.keys().isdisjoint(self.users[name])
            if label in op.aggregated and (op.agg != SUM or not alone):
                return None
            for source, own in zip(vertex.inputs, op.inputs, strict=True):
                at = labels.get(source, "")
                dims = self.graph[source].labels
                if own.count(label) > 1 or (at in dims and own[dims.index(at)] != label):
                    return None
        return Turns(labels, frozenset(outputs))
