"""The gradient of an attention in a graph: what queries, keys and values get of the result's.

`ed.grad` writes it as vertices that compute the weights again, and one kernel can take the place of
all of them. `find_gradients` reads them as `find_attention` does, whatever rewrites have made of
them, and compares what they read with what the attention reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose

from eindecomp.graph.graph import Graph
from eindecomp.graph.patterns.attention import (
    Attention,
    between,
    conditions_of,
    find_attention,
    scores_product,
)
from eindecomp.graph.patterns.softmax import KEY, Weights, divided_weights, product_of
from eindecomp.graph.patterns.terms import TensorRead, Terms
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Call


@dataclass(frozen=True, slots=True)
class AttentionGradient:
    """The gradient of an attention, in its labels."""

    attention: Attention
    """What it is the gradient of."""
    adjoint: TensorRead
    """What the result gets."""
    total: TensorRead
    """The sums that weights are divided by."""
    results: Mapping[int, tuple[TensorRead, float]]
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
    >>> [str(read) for read, _ in own.results.values()]
    ['grad_Q[s,e]', 'grad_V[t,d]']
    """
    users = graph.users()
    for one in find_attention(graph):
        reading = _Reading(Terms(graph), users, one)
        pairs = ((mean, back) for mean in users[one.result] for back in users[mean])
        every = (reading.gradient(*pair) for pair in pairs if len(one.parts) == 1)
        yield from [found for found in every if found is not None][:1]


@dataclass(frozen=True, slots=True)
class _Reading:
    """A graph, read for the gradient of one attention; its keys have the label `KEY` here."""

    terms: Terms
    users: Mapping[str, list[str]]
    one: Attention

    def gradient(self, mean: str, back: str) -> AttentionGradient | None:
        """The gradient in which scores get `back`, which is weights · (passed - mean)."""
        terms, one, [part] = self.terms, self.one, self.one.parts
        q, k, v = (each.renamed({part.key: KEY}) for each in (one.q, part.k, part.v))
        average, averaged, other = self._product(mean, one.output)
        whole, _, _ = self._product(back, average)
        match terms.unfold(terms.arg(whole)):
            case Call("mul", (left, right)) if whole.labels.count(KEY) == 1:
                divided, difference = divided_weights(terms, left), terms.unfold(right)
            case _:
                return None
        match difference:
            case Call("sub", (first, second)) if terms.read(second) == average:
                passed = terms.read(first)
            case _:
                return None
        if divided is None or passed is None or not self._are_own(divided[0]):
            return None
        weights, total = divided
        _, reads, factor = self._product(passed.name, passed, v)
        given = [read for read in reads if read != v]
        rows = weights.rows == {*average.labels} == {*whole.labels} & {*passed.labels} - {KEY}
        if not rows or {*averaged} != {one.output, *given} or factor * other != 1:
            return None
        results: dict[int, tuple[TensorRead, float]] = {}
        made = terms.read(left) or whole
        for of, base, factor in ((q, whole, k), (k, whole, q), (v, made, given[0])):
            for reader in self.users[base.name]:
                read, reads, number = self._product(reader, base, factor)
                if {*reads} == {base, factor} and {*read.labels} == {*of.labels}:
                    results[(q, k, v).index(of)] = read.renamed({KEY: part.key}), number
        ends = {read.name for read, _ in results.values()}
        inner = between(terms.graph, {weights.scores.name, passed.name, mean}, ends)
        return AttentionGradient(one, given[0], total, results, inner) if ends else None

    def _product(self, name: str, *known: TensorRead) -> tuple[TensorRead, list[TensorRead], float]:
        """A vertex, the two tensors whose product it sums if it does, and the number beside them.

        Labels are those of what is known: of the vertex or of what it reads. Others are `KEY`.
        """
        vertex, op = self.terms.graph[name], self.terms.graph[name].op
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

    def _are_own(self, weights: Weights) -> bool:
        """Whether weights are those of the attention."""
        one, [part], product = self.one, self.one.parts, scores_product(self.terms, weights.scores)
        if product is None or len(weights.shifts) != 1:
            return False
        names = dict(zip(product.inner, one.inner, strict=True)) | {KEY: part.key}
        q, k = product.q.renamed(names), product.k.renamed(names)
        own = (q, k, *conditions_of(self.terms, weights, weights.biases, names))
        wanted = one.q, part.k, part.mask and part.mask.value, part.bias
        return own == wanted and isclose(weights.scale * product.scale, part.scale)
