"""Attention in a graph: the vertices that compute softmax(Q·K) · V together.

`find_attention` names the roles that vertices and labels have, so that one kernel can take the
place of all of them and the scores are never stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eindecomp.graph.patterns.chain import KEY, Part, factors, match_chain, own_maximum
from eindecomp.graph.patterns.masks import Mask, MaskKind, tell_mask
from eindecomp.graph.patterns.terms import Read, Terms, Value
from eindecomp.lang.dtypes import Kind, kind
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import chain as chain_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.dtypes import DType

__all__ = ["Attention", "KeyPart", "Mask", "MaskKind", "Read", "Value", "find_attention"]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Keys and their values, and the vertices that are made of them alone."""

    key: str
    """The label of the keys."""
    k: Read
    v: Read
    scale: float
    """What the products of queries and keys are multiplied by."""
    mask: Mask | None
    bias: Value | None
    """What is added to the scaled scores."""
    scores: str
    """The vertex T of the products of queries and keys."""
    weights: str | None
    """The vertex P of the exponentials, if there is one."""
    maximum: Read | None
    """The vertex of the largest of its own scores, if there is one."""
    total: Read
    """The vertex Z of their sums over keys."""
    product: Read | None
    """The vertex A of their sums with values, None if they are divided by Z before."""


@dataclass(frozen=True, slots=True)
class Attention:
    """One softmax(Q·K)·V; all its labels have one meaning in all reads."""

    q: Read
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
    output: Read
    """The result."""
    maximum: Read | None
    """The vertex C of the largest scores of all parts, if there is one."""
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

    @property
    def divides_late(self) -> bool:
        """Whether weights are multiplied by values before they are divided by their sum."""
        return all(part.product is not None for part in self.parts)


def find_attention(graph: Graph) -> tuple[Attention, ...]:
    """Find every softmax(Q·K)·V whose inner vertices nothing else reads, in the graph's order.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "O[s,d] <- attention[t,e](Q[s,e], K[t,e], V[t,d])\\noutput O"
    >>> graph = parse(f"input Q[s: 4, e: 8], K[t: 6, e], V[t, d: 8]\\n{text}")
    >>> (found,) = find_attention(graph)
    >>> print(found.q, found.parts[0].k, found.parts[0].v, found.queries, found.inner)
    Q[s,e] K[t,e] V[t,d] ('s',) ('e',)
    """
    users = graph.users()
    outputs = {vertex.name for vertex in graph.outputs}
    taken: set[str] = set()
    found: list[Attention] = []
    for vertex in reversed(tuple(graph.vertices.values())):
        if vertex.name in taken:
            continue
        attention = _match(graph, vertex)
        if attention is not None and _is_closed(attention, users, outputs):
            taken.update(attention.replaces)
            found.append(attention)
    return tuple(reversed(found))


def _is_closed(attention: Attention, users: Mapping[str, list[str]], outputs: set[str]) -> bool:
    inside = {*attention.replaces}
    inner = inside - {attention.result}
    return inner.isdisjoint(outputs) and all(inside.issuperset(users[name]) for name in inner)


def _match(graph: Graph, vertex: Vertex) -> Attention | None:
    terms = Terms(graph)
    parts = match_chain(terms, vertex)
    if parts is None:
        return None
    products = [_multiplied(terms, part) for part in parts]
    found = [product for product in products if product is not None]
    if len(found) < len(parts) or not _types_fit(graph, terms, parts, found):
        return None
    return _Roles(terms, vertex, parts, tuple(found)).attention()


@dataclass(frozen=True, slots=True)
class _Product:
    """The product of queries and keys."""

    q: Read
    k: Read
    inner: Labels
    """Made-up labels, in the order that q has them in."""
    names: Labels
    """What those are called where they are summed."""
    scale: float


def _multiplied(terms: Terms, part: Part) -> _Product | None:
    """What the scores of a part are a product of."""
    read = part.weights.scores.product
    op = terms.graph[read.name].op
    if not isinstance(op, EinSum):
        return None
    own = tuple(f"{KEY}{label}" for label in op.aggregated)
    join = terms.enter(read, own)
    if join is None:
        return None
    above, below = factors(join)
    scale = 1.0
    reads: list[Read] = []
    for expr, is_above in [*((e, True) for e in above), *((e, False) for e in below)]:
        number, operand = terms.number(expr), terms.read(expr)
        if number:
            scale = scale * number if is_above else scale / number
        elif operand is not None and is_above:
            reads.append(operand)
        else:
            return None
    if len(reads) != 2:
        return None
    q, k = reads if KEY in reads[1].labels else reversed(reads)
    if KEY not in k.labels or KEY in q.labels or not {*own} <= {*q.labels} & {*k.labels}:
        return None
    summed = [label for label in q.labels if label in own]
    names = {label: f"{KEY}{n}" for n, label in enumerate(summed)}
    stems = tuple(label.removeprefix(KEY) for label in summed)
    return _Product(q.renamed(names), k.renamed(names), tuple(names.values()), stems, scale)


def _types_fit(
    graph: Graph, terms: Terms, parts: tuple[Part, ...], products: list[_Product]
) -> bool:
    """Whether queries, keys and values are floats of one type, and nothing is more precise."""
    names = [read.name for product in products for read in (product.q, product.k)]
    types = {graph[name].dtype for name in [*names, *(part.values.name for part in parts)]}
    if len(types) > 1 or kind(own := types.pop()) is not Kind.FLOAT:
        return False
    largest = max(own.itemsize, 4)
    return all(
        kind(graph[name].dtype) is Kind.FLOAT and graph[name].dtype.itemsize <= largest
        for name in terms.taken
    )


@dataclass(frozen=True, slots=True)
class _Roles:
    """The roles of the vertices and labels of a chain that fits."""

    terms: Terms
    vertex: Vertex
    parts: tuple[Part, ...]
    products: tuple[_Product, ...]

    def attention(self) -> Attention | None:
        if not self._labels_fit():
            return None
        names = self._inner_names()
        chain = zip(self.parts, self.products, self._keys(names), strict=True)
        parts = tuple(self._part(part, product, names | {KEY: key}) for part, product, key in chain)
        if not all(map(_has_keys, self.parts, parts)):
            return None
        only_q = [label for label in self.products[0].q.labels if label in self._only_q]
        seen = {label for part in parts for label in _conditions(part)}
        queries = tuple(label for label in only_q if not seen & {*only_q} or label in seen)
        return Attention(
            q=self.products[0].q.renamed(names),
            parts=parts,
            batch=tuple(x for x in self.vertex.labels if x in self._rows - self._only_q),
            groups=tuple(label for label in only_q if label not in queries),
            queries=queries,
            inner=tuple(names[label] for label in self.products[0].inner),
            values=tuple(label for label in self.vertex.labels if label not in self._rows),
            output=Read(self.vertex.name, self.vertex.labels),
            maximum=self.terms.read(self.parts[0].weights.maximum),
            replaces=tuple(n for n in self.terms.graph if n in self.terms.taken),
            dtype=self.vertex.dtype,
            sizes=self._sizes(parts, names),
        )

    @property
    def _rows(self) -> set[str]:
        return self.parts[0].weights.scores.rows

    @property
    def _only_q(self) -> set[str]:
        reads = [product.k for product in self.products] + [part.values for part in self.parts]
        return self._rows - {label for read in reads for label in read.labels}

    def _labels_fit(self) -> bool:
        q = self.products[0].q
        for part, product in zip(self.parts, self.products, strict=True):
            reads = (product.q, product.k, part.values)
            if product.q != q or any(len({*r.labels}) < len(r.labels) for r in reads):
                return False
            if any(read.name in self.terms.taken for read in reads):
                return False
            if self._rows | {*part.values.labels} - {KEY} != {*self.vertex.labels}:
                return False
            if not self._conditions_fit(part):
                return False
        return True

    def _conditions_fit(self, part: Part) -> bool:
        scores = part.weights.scores
        values = [self.terms.value(expr, {}) for expr in (*scores.masks, *scores.biases)]
        reads = [read for value in values for read in value.reads]
        return all({*read.labels} <= self._rows | {KEY} for read in reads) and not any(
            read.name in self.terms.taken for read in reads
        )

    def _inner_names(self) -> dict[str, str]:
        first = self.products[0]
        names: dict[str, str] = {}
        for label, stem in zip(first.inner, first.names, strict=True):
            names[label] = _fresh(stem, {*self.vertex.labels, *names.values()})
        return names

    def _keys(self, inner: dict[str, str]) -> list[str]:
        """A label for the keys of each part."""
        taken = {*self.vertex.labels, *inner.values()}
        keys: list[str] = []
        for part in self.parts:
            read = part.weights.scores.product
            stem = self.terms.graph[read.name].labels[read.labels.index(KEY)]
            keys.append(_fresh(stem, {*taken, *keys}))
        return keys

    def _part(self, part: Part, product: _Product, names: dict[str, str]) -> KeyPart:
        graph, scores, key = self.terms.graph, part.weights.scores, names[KEY]
        masks = sorted(scores.masks, key=str)
        mask = self.terms.value(chain_of("and", masks), names) if masks else None
        bias = self.terms.value(chain_of("add", scores.biases), names) if scores.biases else None
        return KeyPart(
            key=key,
            k=product.k.renamed(names),
            v=part.values.renamed(names),
            scale=scores.scale * product.scale,
            mask=None if mask is None else self._mask(tell_mask(graph, mask, key)),
            bias=bias,
            scores=scores.product.name,
            weights=self._weights_vertex(part),
            maximum=own_maximum(self.terms, part),
            total=part.total,
            product=part.product,
        )

    def _mask(self, mask: Mask) -> Mask:
        """A mask that runs along labels that keys have, too, is not causal."""
        if mask.kind is MaskKind.CAUSAL and mask.query not in self._only_q:
            return Mask(MaskKind.FILL, mask.value)
        return mask

    def _weights_vertex(self, part: Part) -> str | None:
        """The vertex of exponentials that the sum reads."""
        inputs = self.terms.graph[part.total.name].inputs
        return inputs[0] if len(inputs) == 1 and inputs[0] in self.terms.taken else None

    def _sizes(self, parts: tuple[KeyPart, ...], names: dict[str, str]) -> dict[str, int]:
        reads = [self.products[0].q.renamed(names)]
        reads += [read for part in parts for read in (part.k, part.v)]
        sizes: dict[str, int] = {}
        for read in reads:
            sizes |= self.terms.graph[read.name].sizes_by(read.labels)
        return sizes


def _has_keys(part: Part, found: KeyPart) -> bool:
    """Whether -∞ may stand where scores are masked by a number: a key counts for every query."""
    mask = found.mask
    is_open = mask is not None and mask.kind is MaskKind.CAUSAL and mask.offset >= 0
    return is_open or not part.weights.scores.is_finite


def _conditions(part: KeyPart) -> frozenset[str]:
    """The labels that the mask and the bias of a part depend on."""
    values = [part.bias, part.mask and part.mask.value]
    return frozenset(label for value in values if value is not None for label in value.labels)


def _fresh(stem: str, taken: set[str]) -> str:
    while stem in taken:
        stem += "_"
    return stem
