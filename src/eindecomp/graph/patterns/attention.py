"""Attention in a graph: the vertices that compute softmax(Q·K) · V together.

`find_attention` names the roles that vertices and labels have, so that one kernel can take the
place of all of them and the scores are never stored. It reads them off the expressions: texts,
macros and models imported from PyTorch and JAX write the chain in many ways, and few of them say
what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from eindecomp.graph.graph import Graph
from eindecomp.graph.patterns.softmax import KEY, SoftmaxPart, product_of, softmax_parts
from eindecomp.graph.patterns.terms import Mask, TensorExpr, TensorRead, Terms, tell_mask
from eindecomp.graph.vertex import Vertex, unused_label
from eindecomp.lang.dtypes import DType, Kind, kind
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import Expr, chain


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Keys and their values, and the vertices that are made of them alone."""

    key: str
    """The label of the keys."""
    k: TensorRead
    v: TensorRead
    scale: float
    """What the products of queries and keys are multiplied by."""
    mask: Mask | None
    bias: TensorExpr | None
    """What is added to the scaled scores."""
    divided_early: bool
    """Whether weights are divided by their sum before they are multiplied by values."""


@dataclass(frozen=True, slots=True)
class Attention:
    """One softmax(Q·K)·V; all its labels have one meaning in all reads."""

    q: TensorRead
    parts: tuple[KeyPart, ...]
    """Sets of keys that share the maximum and the sum: one, or stored ones and the latest."""
    batch: Labels
    """Labels of rows that keys or values have, too: sequences, heads."""
    groups: Labels
    """Labels that only queries have, and that no mask or bias depends on, where one depends on
    others: the query heads that share one head of keys."""
    queries: Labels
    """The other labels that only queries have."""
    inner: Labels
    """What queries and keys are multiplied along."""
    values: Labels
    """Labels that only values have."""
    output: TensorRead
    """The result."""
    replaces: tuple[str, ...]
    """The vertices that nothing else needs, in the graph's order, the result the last."""
    dtype: DType
    """The type of the result."""
    sizes: Mapping[str, int] = field(hash=False)
    """The size of each label."""

    @property
    def result(self) -> str:
        """The vertex that it computes."""
        return self.output.name


def find_attention(graph: Graph) -> tuple[Attention, ...]:
    """Find every softmax(Q·K)·V whose inner vertices nothing else reads, in the graph's order.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "O[s,d] <- attention[t,e](Q[s,e], K[t,e], V[t,d])\\noutput O"
    >>> graph = parse(f"input Q[s: 4, e: 8], K[t: 6, e], V[t, d: 8]\\n{text}")
    >>> (own,) = find_attention(graph)
    >>> print(own.q, own.parts[0].k, own.parts[0].v, own.queries, own.inner)
    Q[s,e] K[t,e] V[t,d] ('s',) ('e',)
    """
    users = graph.users()
    outputs = {vertex.name for vertex in graph.outputs}
    taken: set[str] = set()
    every: list[Attention] = []
    for vertex in reversed(tuple(graph.vertices.values())):
        attention = None if vertex.name in taken else match_attention(graph, vertex)
        if attention is None:
            continue
        inside = {*attention.replaces}
        inner = inside - {attention.result}
        if inner.isdisjoint(outputs) and all(inside.issuperset(users[name]) for name in inner):
            taken |= inside
            every.append(attention)
    return tuple(reversed(every))


def match_attention(graph: Graph, vertex: Vertex) -> Attention | None:
    """The attention that a vertex is the result of."""
    terms = Terms(graph)
    parts = softmax_parts(terms, vertex)
    if parts is None:
        return None
    products = [_multiplied(terms, part.weights.scores) for part in parts]
    known = [product for product in products if product is not None]
    if len(known) < len(parts):
        return None
    inner = between(graph, {part.weights.scores.name for part in parts}, {vertex.name})
    return _Roles(terms, vertex, parts, known, inner).attention()


@dataclass(frozen=True, slots=True)
class _Product:
    """The product of queries and keys."""

    q: TensorRead
    k: TensorRead
    inner: Labels
    """Made-up labels, in the order that q has them in."""
    names: Labels
    """What those are called where they are summed."""
    scale: float


def _multiplied(terms: Terms, scores: TensorRead) -> _Product | None:
    """What scores are a product of."""
    op = terms.graph[scores.name].op
    own = tuple(f"{KEY}{label}" for label in op.aggregated) if isinstance(op, EinSum) else ()
    found = product_of(terms, terms.enter(scores, own))
    if found is None:
        return None
    reads, scale = found
    q, k = reads if KEY in reads[1].labels else reversed(reads)
    if KEY not in k.labels or KEY in q.labels or not {*own} <= {*q.labels} & {*k.labels}:
        return None
    summed = [label for label in q.labels if label in own]
    names = {label: f"{KEY}{n}" for n, label in enumerate(summed)}
    stems = tuple(label.removeprefix(KEY) for label in summed)
    return _Product(q.renamed(names), k.renamed(names), tuple(names.values()), stems, scale)


def between(graph: Graph, starts: Set[str], ends: Set[str]) -> tuple[str, ...]:
    """The vertices from some to others that are made of them, in the graph's order."""
    names = [*graph]
    names = names[min(map(names.index, starts)) : max(map(names.index, ends)) + 1]
    made, needed = {*starts}, {*ends}
    for name in names:
        if not made.isdisjoint(graph[name].inputs):
            made.add(name)
    for name in reversed(names):
        if name in needed & made:
            needed.update(graph[name].inputs)
    return tuple(name for name in names if name in needed & made)


@dataclass(frozen=True, slots=True)
class _Roles:
    """The roles of the vertices and labels of a chain that fits."""

    terms: Terms
    vertex: Vertex
    parts: Sequence[SoftmaxPart]
    products: Sequence[_Product]
    inner: Sequence[str]
    """The vertices between scores and the result."""

    def attention(self) -> Attention | None:
        if not self._types_fit() or not self._labels_fit():
            return None
        q = self.products[0].q
        taken, names = {*self.vertex.labels}, dict[str, str]()
        for label, stem in zip(self.products[0].inner, self.products[0].names, strict=True):
            names[label] = unused_label(stem, taken)
            taken.add(names[label])
        key_parts: list[KeyPart] = []
        for part, product in zip(self.parts, self.products, strict=True):
            scores = part.weights.scores
            stem = self.terms.graph[scores.name].labels[scores.labels.index(KEY)]
            key = unused_label(stem, taken)
            taken.add(key)
            key_parts.append(self._part(part, product, names | {KEY: key}))
        parts = tuple(key_parts)
        if not all(map(_suits_kernels, self.parts, parts)):
            return None
        only_q = [label for label in q.labels if label in self._only_q]
        conditions = [value for p in parts for value in (p.bias, p.mask and p.mask.value)]
        seen = {label for value in conditions if value is not None for label in value.labels}
        queries = tuple(label for label in only_q if not seen & {*only_q} or label in seen)
        reads = [q.renamed(names), *(read for part in parts for read in (part.k, part.v))]
        sizes: dict[str, int] = {}
        for read in reads:
            sizes |= self.terms.graph[read.name].sizes_by(read.labels)
        return Attention(
            q=reads[0],
            parts=parts,
            batch=tuple(x for x in self.vertex.labels if x in self._rows - self._only_q),
            groups=tuple(label for label in only_q if label not in queries),
            queries=queries,
            inner=tuple(names[label] for label in self.products[0].inner),
            values=tuple(label for label in self.vertex.labels if label not in self._rows),
            output=TensorRead(self.vertex.name, self.vertex.labels),
            replaces=tuple(self.inner),
            dtype=self.vertex.dtype,
            sizes=sizes,
        )

    def _types_fit(self) -> bool:
        """Whether queries, keys and values are floats of one type, and nothing is more precise."""
        graph = self.terms.graph
        reads = [read for product in self.products for read in (product.q, product.k)]
        types = {graph[read.name].dtype for read in (*reads, *(p.values for p in self.parts))}
        if len(types) > 1 or kind(own := types.pop()) is not Kind.FLOAT:
            return False
        largest = max(own.itemsize, 4)
        inner = [graph[name].dtype for name in self.inner]
        return all(kind(of) is Kind.FLOAT and of.itemsize <= largest for of in inner)

    @property
    def _rows(self) -> set[str]:
        return self.parts[0].weights.rows

    @property
    def _only_q(self) -> set[str]:
        reads = [product.k for product in self.products] + [part.values for part in self.parts]
        return self._rows - {label for read in reads for label in read.labels}

    def _labels_fit(self) -> bool:
        for part, product in zip(self.parts, self.products, strict=True):
            reads = (product.q, product.k, part.values)
            repeats = any(len({*read.labels}) < len(read.labels) for read in reads)
            if product.q != self.products[0].q or repeats:
                return False
            if self._rows | {*part.values.labels} - {KEY} != {*self.vertex.labels}:
                return False
            seen = self.terms.read_by(*part.weights.masks, *self._biases(part))
            if any(not {*read.labels} <= self._rows | {KEY} for read in seen):
                return False
            if any(read.name in self.inner for read in (*reads, *seen)):
                return False
        return True

    def _biases(self, part: SoftmaxPart) -> list[Expr]:
        """What is added to the scores: also what is one number for all keys but not made of them.

        That may be infinite.
        """
        alone = [
            expr
            for expr in part.weights.shifts
            if all(read.name not in self.inner for read in self.terms.read_by(expr))
        ]
        return [*part.weights.biases, *alone]

    def _part(self, part: SoftmaxPart, product: _Product, names: dict[str, str]) -> KeyPart:
        weights, biases = part.weights, self._biases(part)
        masks = sorted(weights.masks, key=str)
        mask = self.terms.value(chain("and", masks), names) if masks else None
        return KeyPart(
            key=names[KEY],
            k=product.k.renamed(names),
            v=part.values.renamed(names),
            scale=weights.scale * product.scale,
            mask=mask and tell_mask(self.terms.graph, mask, names[KEY], self._only_q),
            bias=self.terms.value(chain("add", biases), names) if biases else None,
            divided_early=part.divided_early,
        )


def _suits_kernels(part: SoftmaxPart, keys: KeyPart) -> bool:
    """Whether scores have a scale above 0, and -∞ may stand where they are masked by a number.

    It may where a key counts for every query.
    """
    mask = keys.mask
    is_open = mask is not None and mask.is_causal and mask.offset >= 0
    return keys.scale > 0 and (is_open or not part.weights.is_finite)
