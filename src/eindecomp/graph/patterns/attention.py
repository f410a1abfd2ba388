"""Attention in a graph: the vertices that compute softmax(Q·K) · V together.

`find_attention` names the roles that vertices and labels have, so that one kernel can take the
place of all of them and the scores are never stored. It reads them off the expressions: texts,
macros and models imported from PyTorch and JAX write the chain in many ways, and few of them say
what it is.

Of the maximum that is subtracted from the scores only one thing matters: it is one number for all
keys of a row. So it cancels, and nobody asks how it is computed. Inside an aggregation over keys
their label is `KEY`, whatever it is called there, so that equal weights are equal expressions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from eindecomp.graph.patterns.terms import Mask, Read, Terms, Value, strip_casts, tell_mask
from eindecomp.lang.dtypes import Kind, kind
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import MAX, SUM
from eindecomp.lang.scalar import Arg, Call, Expr, call, chain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.dtypes import DType

__all__ = ["Attention", "KeyPart", "Mask", "Read", "Value", "find_attention"]

KEY = "@"
"""What the label of the keys is called; no label of a graph has this name."""
_LOWEST = -1e30
"""A score so low that its exponential is 0 beside that of any other."""


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
    maximum: Read | None
    """The vertex of the largest of its own scores, if there is one."""
    total: Read
    """The vertex Z of the sums of exponentials over keys."""
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
    """The vertex C that is subtracted from the scores of all parts, if there is one."""
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
    >>> (found,) = find_attention(graph)
    >>> print(found.q, found.parts[0].k, found.parts[0].v, found.queries, found.inner)
    Q[s,e] K[t,e] V[t,d] ('s',) ('e',)
    """
    users = graph.users()
    outputs = {vertex.name for vertex in graph.outputs}
    places = {name: place for place, name in enumerate(graph)}
    taken: set[str] = set()
    found: list[Attention] = []
    for vertex in reversed(tuple(graph.vertices.values())):
        attention = None if vertex.name in taken else _match(graph, vertex, places)
        if attention is not None and _is_closed(attention, users, outputs):
            taken.update(attention.replaces)
            found.append(attention)
    return tuple(reversed(found))


def _is_closed(attention: Attention, users: Mapping[str, list[str]], outputs: set[str]) -> bool:
    inside = {*attention.replaces}
    inner = inside - {attention.result}
    return inner.isdisjoint(outputs) and all(inside.issuperset(users[name]) for name in inner)


@dataclass(frozen=True, slots=True)
class _Weights:
    """exp(scale · scores + biases + shifts) where all masks hold, and 0 elsewhere."""

    scores: Read
    scale: float = 1.0
    masks: frozenset[Expr] = frozenset()
    biases: tuple[Expr, ...] = ()
    shifts: tuple[Expr, ...] = ()
    """What is added that is one number for all keys."""
    is_finite: bool = False
    """Whether a very low score stands for -∞: then keys count alike where no mask holds."""

    def masked(self, mask: Expr, other: float = -inf) -> _Weights:
        """The weights where a further mask holds; elsewhere scores are `other`."""
        is_finite = self.is_finite or other != -inf
        return replace(self, masks=self.masks | {mask}, is_finite=is_finite)

    def scaled(self, factor: float | None) -> _Weights | None:
        """What a number above 0 times the exponent makes of them."""
        if factor is None or not 0 < factor < inf:
            return None
        biases, shifts = (
            tuple(call("mul", term, factor) for term in terms)
            for terms in (self.biases, self.shifts)
        )
        return replace(self, scale=self.scale * factor, biases=biases, shifts=shifts)

    @property
    def rows(self) -> set[str]:
        """The labels of one softmax each."""
        return {*self.scores.labels} - {KEY}


@dataclass(frozen=True, slots=True)
class _Part:
    """The weights of some keys, their values, and the vertices of their sum and product."""

    weights: _Weights
    values: Read
    total: Read
    product: Read | None


def _match(graph: Graph, vertex: Vertex, places: Mapping[str, int]) -> Attention | None:
    op = vertex.op
    if not isinstance(op, EinSum):
        return None
    terms, output = Terms(graph), Read(vertex.name, vertex.labels)
    if op.agg is None:
        parts = _divided_late(terms, output)
    elif op.agg == SUM and len(op.aggregated) == 1:
        parts = _divided_early(terms, output)
    else:
        return None
    if not parts or not _share_rows(parts):
        return None
    products = [_multiplied(terms, part.weights.scores) for part in parts]
    known = [product for product in products if product is not None]
    if len(known) < len(parts):
        return None
    return _Roles(terms, vertex, parts, known, _origins(graph, vertex, parts, places)).attention()


def _share_rows(parts: Sequence[_Part]) -> bool:
    """Whether all parts have the same rows and subtract the same from them."""
    first = parts[0].weights
    alike = ((part.weights.rows, part.weights.shifts) for part in parts)
    scores = {part.weights.scores for part in parts}
    return len(scores) == len(parts) and all(each == (first.rows, first.shifts) for each in alike)


def _divided_late(terms: Terms, output: Read) -> list[_Part] | None:
    """(A + …) / (Z + …), sums over keys."""
    match terms.unfold(terms.arg(output)):
        case Call("div", (numerator, denominator)):
            products, totals = _addends(terms, numerator), _addends(terms, denominator)
        case _:
            return None
    if products is None or totals is None or len(products) != len(totals):
        return None
    sums = {_total(terms, read): read for read in totals}
    parts: list[_Part] = []
    for read in products:
        above, below = _factors(terms.enter(read, (KEY,)))
        found = None if below else _weigh(terms, above)
        if found is None or found[0] not in sums:
            return None
        parts.append(_Part(*found, sums[found[0]], read))
    return parts


def _divided_early(terms: Terms, output: Read) -> list[_Part] | None:
    """The sum over keys of quotients times values."""
    above, below = _factors(terms.enter(output, (KEY,)))
    ways = [(above, below)]
    for k, expr in enumerate(above):
        match terms.unfold(expr):
            case Call("div", (weight, total)):
                ways.append(([weight, *above[:k], *above[k + 1 :]], [*below, total]))
            case _:
                pass
    for factors, divisors in ways:
        found = _weigh(terms, factors)
        totals = _addends(terms, divisors[0]) if len(divisors) == 1 else None
        if found and totals and len(totals) == 1 and _total(terms, totals[0]) == found[0]:
            return [_Part(*found, totals[0], None)]
    return None


def _addends(terms: Terms, expr: Expr) -> list[Read] | None:
    """The sums over keys that an expression adds."""
    expr = terms.unfold(expr)
    match expr, terms.read(expr):
        case _, Read() as read:
            return [read] if terms.aggregates(expr, SUM) else None
        case Call("add", (left, right)), _:
            first, second = _addends(terms, left), _addends(terms, right)
            return None if first is None or second is None else first + second
        case _:
            return None


def _total(terms: Terms, read: Read) -> _Weights | None:
    join = terms.enter(read, (KEY,))
    found = None if join is None else _weights(terms, join)
    return found if found is not None and found.rows == {*read.labels} else None


def _weigh(terms: Terms, pair: list[Expr]) -> tuple[_Weights, Read] | None:
    """The weights and the values among two factors."""
    if len(pair) != 2:
        return None
    for expr, other in (pair, pair[::-1]):
        values, found = terms.read(other), _weights(terms, expr)
        if found is not None and values is not None and KEY in values.labels:
            return found, values
    return None


def _factors(expr: Expr | None) -> tuple[list[Expr], list[Expr]]:
    """What an expression multiplies, and what it divides that by."""
    match None if expr is None else strip_casts(expr):
        case None:
            return [], []
        case Call("mul", (left, right)):
            a, b = _factors(left)
            c, d = _factors(right)
            return a + c, b + d
        case Call("div", (left, right)):
            a, b = _factors(left)
            return a, [*b, strip_casts(right)]
        case other:
            return [other], []


def _weights(terms: Terms, expr: Expr) -> _Weights | None:
    match terms.unfold(expr):
        case Call("where", (mask, inner, other)) if terms.number(other) == 0:
            found = _weights(terms, inner)
            return None if found is None else found.masked(mask)
        case Call("where", (mask, other, inner)) if terms.number(other) == 0:
            found = _weights(terms, inner)
            return None if found is None else found.masked(call("not", mask))
        case Call("exp", (exponent,)):
            return _exponent(terms, exponent)
        case _:
            return None


def _exponent(terms: Terms, expr: Expr) -> _Weights | None:
    """The weights whose exponents an expression is."""
    expr = terms.unfold(expr)
    match expr:
        case Arg(index):
            read = terms.reads[index]
            is_product = terms.aggregates(expr, SUM) and KEY in read.labels
            return _Weights(read) if is_product else None
        case Call("where", (mask, inner, other)) if (low := _low(terms, other)) is not None:
            found = _exponent(terms, inner)
            return None if found is None else found.masked(mask, low)
        case Call("where", (mask, other, inner)) if (low := _low(terms, other)) is not None:
            found = _exponent(terms, inner)
            return None if found is None else found.masked(call("not", mask), low)
        case Call("mul" | "div" as op, (left, right)):
            first, second = terms.number(left), terms.number(right)
            if op == "div":
                first, second = None, 1 / second if second else None
            found = _exponent(terms, right if second is None else left)
            return None if found is None else found.scaled(first if second is None else second)
        case Call("add", (left, right)):
            return _added(terms, left, right) or _added(terms, right, left)
        case Call("sub", (left, right)):
            return _added(terms, left, call("neg", right))
        case _:
            return None


def _low(terms: Terms, expr: Expr) -> float | None:
    found = terms.number(expr)
    return found if found is not None and found <= _LOWEST else None


def _added(terms: Terms, expr: Expr, term: Expr) -> _Weights | None:
    found = _exponent(terms, expr)
    if found is None:
        return None
    if any(KEY in read.labels for read in terms.read_by(term)):
        return replace(found, biases=(*found.biases, term))
    return replace(found, shifts=(*found.shifts, term))


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


def _multiplied(terms: Terms, scores: Read) -> _Product | None:
    """What scores are a product of."""
    op = terms.graph[scores.name].op
    own = tuple(f"{KEY}{label}" for label in op.aggregated) if isinstance(op, EinSum) else ()
    above, below = _factors(terms.enter(scores, own))
    numbers = [terms.number(expr) for expr in (*above, *below)]
    scale = 1.0
    for place, number in enumerate(numbers):
        if number:
            scale = scale * number if place < len(above) else scale / number
    plain = [expr for expr, number in zip(above, numbers, strict=False) if not number]
    reads = [read for read in map(terms.read, plain) if read is not None]
    if len(plain) != 2 or len(reads) != 2 or not all(numbers[len(above) :]):
        return None
    q, k = reads if KEY in reads[1].labels else reversed(reads)
    if KEY not in k.labels or KEY in q.labels or not {*own} <= {*q.labels} & {*k.labels}:
        return None
    summed = [label for label in q.labels if label in own]
    names = {label: f"{KEY}{n}" for n, label in enumerate(summed)}
    stems = tuple(label.removeprefix(KEY) for label in summed)
    return _Product(q.renamed(names), k.renamed(names), tuple(names.values()), stems, scale)


def _origins(
    graph: Graph, vertex: Vertex, parts: Sequence[_Part], places: Mapping[str, int]
) -> dict[str, frozenset[str]]:
    """The vertices between scores and a result, both among them, each with the scores it is of."""
    scores = {part.weights.scores.name for part in parts}
    names = [*graph][min(places[name] for name in scores) : places[vertex.name] + 1]
    found: dict[str, frozenset[str]] = {}
    for name in names:
        own = (found.get(source, frozenset[str]()) for source in graph[name].inputs)
        found[name] = frozenset({name} & scores).union(*own)
    needed = {vertex.name}
    for name in reversed(names):
        if name in needed and found[name]:
            needed.update(graph[name].inputs)
    return {name: found[name] for name in names if found[name] and name in needed}


@dataclass(frozen=True, slots=True)
class _Roles:
    """The roles of the vertices and labels of a chain that fits."""

    terms: Terms
    vertex: Vertex
    parts: Sequence[_Part]
    products: Sequence[_Product]
    origins: Mapping[str, frozenset[str]]

    def attention(self) -> Attention | None:
        if not self._types_fit() or not self._labels_fit():
            return None
        q = self.products[0].q
        taken, names = {*self.vertex.labels}, dict[str, str]()
        for label, stem in zip(self.products[0].inner, self.products[0].names, strict=True):
            names[label] = _fresh(stem, taken)
        parts = tuple(
            self._part(part, product, names | {KEY: _fresh(self._stem(part), taken)})
            for part, product in zip(self.parts, self.products, strict=True)
        )
        if not all(map(_suits_kernels, self.parts, parts)):
            return None
        only_q = [label for label in q.labels if label in self._only_q]
        seen = {label for part in parts for label in _conditions(part)}
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
            output=Read(self.vertex.name, self.vertex.labels),
            maximum=self._maximum(),
            replaces=tuple(self.origins),
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
        inner = [graph[name].dtype for name in self.origins]
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
            if product.q != self.products[0].q or any(
                len({*read.labels}) < len(read.labels) for read in reads
            ):
                return False
            if self._rows | {*part.values.labels} - {KEY} != {*self.vertex.labels}:
                return False
            seen = self.terms.read_by(*part.weights.masks, *self._biases(part))
            if any(not {*read.labels} <= self._rows | {KEY} for read in seen):
                return False
            if any(read.name in self.origins for read in (*reads, *seen)):
                return False
        return True

    def _biases(self, part: _Part) -> list[Expr]:
        """What is added to the scores: also what is one number for all keys but not made of them.

        That may be infinite.
        """
        return [*part.weights.biases, *(e for e in part.weights.shifts if not self._made(e))]

    def _made(self, expr: Expr) -> list[Read]:
        """What an expression reads that is made of scores."""
        return [read for read in self.terms.read_by(expr) if read.name in self.origins]

    def _stem(self, part: _Part) -> str:
        """What the keys of a part are called."""
        scores = part.weights.scores
        return self.terms.graph[scores.name].labels[scores.labels.index(KEY)]

    def _part(self, part: _Part, product: _Product, names: dict[str, str]) -> KeyPart:
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
            scores=weights.scores.name,
            maximum=self._own_maximum(part),
            total=part.total,
            product=part.product,
        )

    def _maximum(self) -> Read | None:
        """The one vertex made of scores that is subtracted from them."""
        reads = [read for expr in self.parts[0].weights.shifts for read in self._made(expr)]
        return reads[0] if len(reads) == 1 and {*reads[0].labels} == self._rows else None

    def _own_maximum(self, part: _Part) -> Read | None:
        """The maximum of the scores of a part alone, if a vertex of the chain computes it."""
        terms, own = self.terms, frozenset({part.weights.scores.name})
        for read in terms.reads:  # which grow
            agg = next((agg for agg in (None, MAX) if terms.aggregates(terms.arg(read), agg)), SUM)
            if read.name not in self.origins or KEY in read.labels or agg == SUM:
                continue
            entered = terms.enter(read, () if agg is None else (KEY,)) is not None
            alone = self.origins[read.name] == own and {*read.labels} == self._rows
            if agg == MAX and entered and alone:
                return read
        return None


def _suits_kernels(part: _Part, found: KeyPart) -> bool:
    """Whether scores have a scale above 0, and -∞ may stand where they are masked by a number.

    It may where a key counts for every query.
    """
    mask = found.mask
    is_open = mask is not None and mask.is_causal and mask.offset >= 0
    return found.scale > 0 and (is_open or not part.weights.is_finite)


def _conditions(part: KeyPart) -> frozenset[str]:
    """The labels that the mask and the bias of a part depend on."""
    values = [part.bias, part.mask and part.mask.value]
    return frozenset(label for value in values if value is not None for label in value.labels)


def _fresh(stem: str, taken: set[str]) -> str:
    """A label that is not taken, and is from now on."""
    while stem in taken:
        stem += "_"
    taken.add(stem)
    return stem
