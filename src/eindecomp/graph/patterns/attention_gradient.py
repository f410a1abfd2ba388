"""The gradient of an attention in a graph: what queries, keys and values get of the result's.

`ed.grad` writes it as vertices that compute the weights again, and one kernel can take the place of
all of them. `find_gradients` reads them as `find_attention` does, whatever rewrites have made of
them, and compares what they read with what the attention reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isclose

from eindecomp.graph.graph import Graph
from eindecomp.graph.patterns.attention import Attention, between, find_attention, match_attention
from eindecomp.graph.patterns.softmax import KEY, product_of
from eindecomp.graph.patterns.terms import TensorRead, Terms
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, Call, Expr, call


@dataclass(frozen=True, slots=True)
class AttentionGradient:
    """The gradient of an attention, in its labels."""

    attention: Attention
    """What it is the gradient of."""
    adjoint: TensorRead
    """What the result gets."""
    total: TensorRead
    """The sums that weights are divided by."""
    results: tuple[tuple[int, TensorRead, float], ...]
    """What queries (0), keys (1) and values (2) get, those that are wanted, and its factor."""
    replaces: tuple[str, ...]
    """The vertices that compute it, the results among them, in the graph's order."""


def find_gradients(graph: Graph) -> Iterator[AttentionGradient]:
    """Find the gradients of attentions over one set of keys, at most one for each.

    >>> from eindecomp.graph.grad import grad
    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "O[s,d] <- attention[t,e](Q[s,e], K[t,e], V[t,d])\\nL[] <- sum O[s,d]\\noutput L"
    >>> graph = parse(f"input Q[s: 4, e: 8], K[t: 6, e], V[t, d: 8]\\n{text}")
    >>> [own] = find_gradients(grad(graph, "L", ["Q", "V"]))
    >>> [str(read) for _, read, _ in own.results]
    ['grad_Q[s,e]', 'grad_V[t,d]']
    """
    grown, users = Graph.of(graph.vertices.values(), (), graph.scalars), graph.users()
    for one in find_attention(graph):
        reading = _Reading(grown, Terms(grown), users, one)
        pairs = ((mean, back) for mean in users[one.result] for back in users[mean])
        every = (reading.gradient(*pair) for pair in pairs if len(one.parts) == 1)
        yield from [found for found in every if found is not None][:1]


@dataclass(frozen=True, slots=True)
class _Reading:
    """A graph, which may grow, read for the gradient of an attention."""

    graph: Graph
    terms: Terms
    users: Mapping[str, list[str]]
    one: Attention

    def gradient(self, mean: str, back: str) -> AttentionGradient | None:
        """The gradient in which scores get `back`, which is weights · (passed - mean)."""
        terms, one, [part] = self.terms, self.one, self.one.parts
        average, averaged, number = self._product(mean, one.output)
        if not averaged:
            return None
        whole, _, _ = self._product(back, average)
        whole = whole.renamed({KEY: part.key})
        match terms.unfold(terms.arg(whole)):
            case Call("mul", (left, Call("sub", (first, second)))) if terms.read(second) == average:
                passed, quotient = terms.read(first), terms.unfold(left)
            case _:
                return None
        if passed is None or not isinstance(quotient, Call) or quotient.op != "div":
            return None
        _, reads, factor = self._product(passed.name, passed, part.v)
        given = [read for read in reads if read != part.v]
        total, again = terms.read(quotient.args[1]), self._again(quotient)
        labels, results = {*average.labels, part.key}, list[tuple[int, TensorRead, float]]()
        if {*averaged} != {one.output, *given} or number * factor != 1 or total is None:
            return None
        if again is None or labels != {*whole.labels} or labels != {*passed.labels}:
            return None
        made = terms.read(left) or whole
        wanted = (one.q, whole, part.k), (part.k, whole, one.q), (part.v, made, given[0])
        for of, (like, *factors) in enumerate(wanted):
            for reader in self.users[factors[0].name]:
                read, reads, number = self._product(reader, *factors)
                if {*reads} == {*factors} and {*read.labels} == {*like.labels}:
                    results.append((of, read, number))
        ends = {read.name for _, read, _ in results}
        inner = between(self.graph, {*again, passed.name, mean}, ends) if ends else ()
        return AttentionGradient(one, given[0], total, (*results,), inner) if ends else None

    def _again(self, weights: Expr) -> tuple[str, ...] | None:
        """The vertices that make weights, if they make of the values what the attention does."""
        one, [part], value = self.one, self.one.parts, self.terms.value(weights, {})
        operands = [(read.name, read.labels) for read in (*value.reads, part.v)]
        join = call("mul", value.expr, Arg(len(value.reads)))
        vertex = self.graph.add_einsum(one.output.labels, operands, join, SUM)
        own = match_attention(self.graph, vertex)
        if own is None or not isclose(own.parts[0].scale, part.scale):
            return None
        parts = (replace(own.parts[0], scale=part.scale, divided_early=part.divided_early),)
        like = replace(one, replaces=own.replaces, output=own.output)
        return own.replaces[:-1] if replace(own, parts=parts, dtype=one.dtype) == like else None

    def _product(self, name: str, *known: TensorRead) -> tuple[TensorRead, list[TensorRead], float]:
        """A vertex, the two tensors whose product it sums if it does, and the number beside them.

        Labels are those of what is known: of the vertex or of what it reads. Others are `KEY`.
        """
        vertex, op = self.graph[name], self.graph[name].op
        if not isinstance(op, EinSum):
            return TensorRead(name, ()), [], 1
        pairs = [(name, op.output), *zip(vertex.inputs, op.inputs, strict=True)]
        names = {
            label: other
            for source, labels in pairs
            for read in known
            if source == read.name
            for label, other in zip(labels, read.labels, strict=True)
        }
        read = TensorRead(name, tuple(names.get(label, KEY) for label in op.output))
        own = tuple(names.get(label, f"{KEY}{label}") for label in op.aggregated)
        found = product_of(self.terms, self.terms.enter(read, own)) if op.agg == SUM else None
        return (read, [], 1) if found is None else (read, *found)
