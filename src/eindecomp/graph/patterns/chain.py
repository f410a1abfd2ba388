"""The chain of vertices that computes softmax(scores) · values, however its parts are arranged.

Every part has keys of its own: weights exp(scores - maximum), their sum, and their product with
values. All parts share the maximum. Inside an aggregation over keys their label is `KEY`, whatever
it is called there, so that equal scores are equal expressions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from eindecomp.graph.patterns.terms import Read, Terms, strip_casts
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import MAX, SUM
from eindecomp.lang.scalar import Arg, Call, Expr, call

if TYPE_CHECKING:
    from eindecomp.graph.vertex import Vertex

KEY = "@"
"""What the label of the keys is called; no label of a graph has this name."""


_LOWEST = -1e30


@dataclass(frozen=True, slots=True)
class Scores:
    """scale · product + biases where all masks hold, and -∞ elsewhere."""

    product: Read
    scale: float = 1.0
    masks: frozenset[Expr] = frozenset()
    biases: tuple[Expr, ...] = ()
    is_finite: bool = False
    """Whether a very low number stands for -∞: then keys count alike where no mask holds."""

    def masked(self, mask: Expr, other: float = -inf) -> Scores:
        """The scores where a further mask holds, and `other` elsewhere."""
        is_finite = self.is_finite or other != -inf
        return replace(self, masks=self.masks | {mask}, is_finite=is_finite)

    def scaled(self, factor: float) -> Scores | None:
        """The scores times a number, which must not turn -∞ around."""
        if self.masks and not 0 < factor < inf:
            return None
        biases = tuple(call("mul", bias, factor) for bias in self.biases)
        return replace(self, scale=self.scale * factor, biases=biases)

    def biased(self, bias: Expr) -> Scores:
        """The scores plus a bias."""
        return replace(self, biases=(*self.biases, bias))

    @property
    def rows(self) -> set[str]:
        """The labels of one softmax each."""
        return {*self.product.labels} - {KEY}


@dataclass(frozen=True, slots=True)
class Weights:
    """exp(scores - maximum), where the maximum is that of several scores."""

    scores: Scores
    maximum: Expr
    maxima: frozenset[Scores]

    def scaled(self, factor: float) -> Weights | None:
        """What a number times the exponent makes of them."""
        scores = self.scores.scaled(factor)
        maxima = frozenset(scaled for each in self.maxima if (scaled := each.scaled(factor)))
        if scores is None or factor <= 0 or len(maxima) < len(self.maxima):
            return None
        return Weights(scores, self.maximum, maxima)

    def masked(self, mask: Expr) -> Weights:
        """The weights, and 0 where a further mask does not hold."""
        return replace(self, scores=self.scores.masked(mask))


@dataclass(frozen=True, slots=True)
class Part:
    """The weights of some keys, their values, and the vertices of their sum and product."""

    weights: Weights
    values: Read
    total: Read
    product: Read | None
    """None where the weights are divided before they are multiplied by the values."""


def match_chain(terms: Terms, vertex: Vertex) -> tuple[Part, ...] | None:
    """The parts of a softmax times values that a vertex completes, or None."""
    op = vertex.op
    if not isinstance(op, EinSum):
        return None
    if op.agg is None:
        parts = _divided_late(terms, vertex)
    elif op.agg == SUM and len(op.aggregated) == 1:
        part = _divided_early(terms, vertex)
        parts = None if part is None else (part,)
    else:
        parts = None
    return parts if parts and _share_maximum(parts) else None


def own_maximum(terms: Terms, part: Part) -> Read | None:
    """The maximum of the scores of a part alone, if a vertex of the chain computes it."""
    scores = part.weights.scores
    for read in tuple(terms.reads):
        if read.name not in terms.taken or {*read.labels} != scores.rows:
            continue
        join = terms.enter(read, (KEY,)) if terms.aggregates(terms.arg(read), MAX) else None
        if join is None:
            continue
        found = terms.attempt(lambda join=join: _scores(terms, join))
        if found is not None and found.product == scores.product:
            return read
    return None


def _share_maximum(parts: tuple[Part, ...]) -> bool:
    first = parts[0].weights
    scores = frozenset(part.weights.scores for part in parts)
    return len(scores) == len(parts) and all(
        part.weights.maximum == first.maximum
        and part.weights.maxima == scores
        and part.weights.scores.rows == first.scores.rows
        for part in parts
    )


def _divided_late(terms: Terms, vertex: Vertex) -> tuple[Part, ...] | None:
    match terms.unfold(terms.arg(Read(vertex.name, vertex.labels))):
        case Call("div", (numerator, denominator)):
            products = _addends(terms, numerator)
            totals = _addends(terms, denominator)
        case _:
            return None
    if products is None or totals is None or len(products) != len(totals):
        return None
    sums = {_total(terms, read): read for read in totals}
    parts: list[Part] = []
    for read in products:
        found = _product(terms, read)
        if found is None or found[0] not in sums:
            return None
        parts.append(Part(found[0], found[1], sums[found[0]], read))
    return tuple(parts)


def _addends(terms: Terms, expr: Expr) -> list[Read] | None:
    """The sums over keys that an expression adds."""
    expr = terms.unfold(expr)
    read = terms.read(expr)
    if read is not None:
        return [read] if terms.aggregates(expr, SUM) else None
    match expr:
        case Call("add", (left, right)):
            first, second = _addends(terms, left), _addends(terms, right)
            return None if first is None or second is None else first + second
        case _:
            return None


def _total(terms: Terms, read: Read) -> Weights | None:
    join = terms.enter(read, (KEY,))
    found = None if join is None else _weights(terms, join)
    return found if found is not None and found.scores.rows == {*read.labels} else None


def _product(terms: Terms, read: Read) -> tuple[Weights, Read] | None:
    join = terms.enter(read, (KEY,))
    if join is None:
        return None
    above, below = factors(join)
    return _weigh(terms, above) if not below else None


def _weigh(terms: Terms, pair: list[Expr]) -> tuple[Weights, Read] | None:
    """The weights and the values among two factors."""
    if len(pair) != 2:
        return None
    for expr, other in (pair, pair[::-1]):
        values = terms.read(other)
        found = terms.attempt(lambda expr=expr: _weights(terms, expr))
        if found is not None and values is not None and KEY in values.labels:
            return found, values
    return None


def _divided_early(terms: Terms, vertex: Vertex) -> Part | None:
    join = terms.enter(Read(vertex.name, vertex.labels), (KEY,))
    if join is None:
        return None
    above, below = factors(join)
    if below:
        return _share(terms, above, below)
    for k, expr in enumerate(above):
        match terms.attempt(lambda expr=expr: _quotient(terms, expr)):
            case (weight, total):
                return _share(terms, [weight, *above[:k], *above[k + 1 :]], [total])
            case _:
                continue
    return None


def _quotient(terms: Terms, expr: Expr) -> tuple[Expr, Expr] | None:
    match terms.unfold(expr):
        case Call("div", (above, below)):
            return above, below
        case _:
            return None


def _share(terms: Terms, above: list[Expr], below: list[Expr]) -> Part | None:
    """Weights times values over the sum of the weights."""
    found = _weigh(terms, above)
    if found is None or len(below) != 1:
        return None
    totals = _addends(terms, below[0])
    if totals is None or len(totals) != 1 or _total(terms, totals[0]) != found[0]:
        return None
    return Part(found[0], found[1], totals[0], None)


def factors(expr: Expr) -> tuple[list[Expr], list[Expr]]:
    """What an expression multiplies, and what it divides that by."""
    match strip_casts(expr):
        case Call("mul", (left, right)):
            a, b = factors(left)
            c, d = factors(right)
            return a + c, b + d
        case Call("div", (left, right)):
            a, b = factors(left)
            return a, [*b, strip_casts(right)]
        case other:
            return [other], []


def _weights(terms: Terms, expr: Expr) -> Weights | None:
    match terms.unfold(expr):
        case Call("where", (mask, inner, other)) if terms.number(other) == 0:
            found = _weights(terms, inner)
            return None if found is None else found.masked(mask)
        case Call("where", (mask, other, inner)) if terms.number(other) == 0:
            found = _weights(terms, inner)
            return None if found is None else found.masked(call("not", mask))
        case Call("exp", (exponent,)):
            return _shifted(terms, exponent)
        case _:
            return None


def _shifted(terms: Terms, expr: Expr) -> Weights | None:
    """Scores less their maximum, both perhaps times a number."""
    expr = terms.unfold(expr)
    match expr:
        case Call("sub", (left, right)):
            scores = _scores(terms, left)
            maxima = None if scores is None else _maxima(terms, right)
            if scores is None or maxima is None:
                return None
            return Weights(scores, strip_casts(right), maxima)
        case Call("where", (mask, inner, other)) if terms.number(other) == -inf:
            found = _shifted(terms, inner)
            return None if found is None else found.masked(mask)
        case Call("mul" | "div"):
            inner, factor = _scaled(terms, expr)
            found = None if factor is None else _shifted(terms, inner)
            return None if found is None or factor is None else found.scaled(factor)
        case _:
            return None


def _scaled(terms: Terms, expr: Call) -> tuple[Expr, float | None]:
    """What an expression multiplies by a number, or divides by one, and that number."""
    left, right = expr.args
    first, second = terms.number(left), terms.number(right)
    if second is not None:
        return left, second if expr.op == "mul" else 1 / second if second else None
    return right, first if expr.op == "mul" else None


def _scores(terms: Terms, expr: Expr) -> Scores | None:
    expr = terms.unfold(expr)
    match expr:
        case Arg(index):
            read = terms.reads[index]
            is_product = terms.aggregates(expr, SUM) and KEY in read.labels
            return Scores(read) if is_product else None
        case Call("where", (mask, inner, other)) if (low := _low(terms, other)) is not None:
            found = _scores(terms, inner)
            return None if found is None else found.masked(mask, low)
        case Call("where", (mask, other, inner)) if (low := _low(terms, other)) is not None:
            found = _scores(terms, inner)
            return None if found is None else found.masked(call("not", mask), low)
        case Call("mul" | "div"):
            inner, factor = _scaled(terms, expr)
            found = None if factor is None else _scores(terms, inner)
            return None if found is None or factor is None else found.scaled(factor)
        case Call("add", (left, right)):
            return _biased(terms, left, right) or _biased(terms, right, left)
        case Call("sub", (left, right)):
            return _biased(terms, left, call("neg", right))
        case _:
            return None


def _low(terms: Terms, expr: Expr) -> float | None:
    """A number so low that its exponential is 0 beside that of any other score."""
    found = terms.number(expr)
    return found if found is not None and found <= _LOWEST else None


def _biased(terms: Terms, expr: Expr, bias: Expr) -> Scores | None:
    found = terms.attempt(lambda: _scores(terms, expr))
    return None if found is None else found.biased(bias)


def _maxima(terms: Terms, expr: Expr) -> frozenset[Scores] | None:
    """The scores that an expression is the maximum of."""
    expr = terms.unfold(expr)
    read = terms.read(expr)
    if read is None:
        match expr:
            case Call("max", (left, right)):
                return _union(_maxima(terms, left), _maxima(terms, right))
            case _:
                return None
    join = terms.enter(read, (KEY,)) if terms.aggregates(expr, MAX) else None
    found = None if join is None else _largest(terms, join)
    if found is None or any(scores.rows != {*read.labels} for scores in found[0]):
        return None
    return found[0] | found[1]


def _largest(terms: Terms, expr: Expr) -> tuple[frozenset[Scores], frozenset[Scores]] | None:
    """The scores of the keys that a maximum runs over, and those of other keys."""
    whole = terms.attempt(lambda: _scores(terms, expr))
    if whole is not None:
        return frozenset({whole}), frozenset()
    match terms.unfold(expr):
        case Call("where", (mask, inner, other)) if terms.number(other) == -inf:
            found = _largest(terms, inner)
            return None if found is None else (_masked(found[0], mask), found[1])
        case Call("max", (left, right)):
            first, second = _side(terms, left), _side(terms, right)
            if first is None or second is None:
                return None
            return first[0] | second[0], first[1] | second[1]
        case _:
            return None


def _side(terms: Terms, expr: Expr) -> tuple[frozenset[Scores], frozenset[Scores]] | None:
    read = terms.read(expr)
    if read is None or KEY in read.labels:
        return _largest(terms, expr)
    others = _maxima(terms, expr)
    return None if others is None else (frozenset(), others)


def _masked(found: frozenset[Scores], mask: Expr) -> frozenset[Scores]:
    return frozenset(scores.masked(mask) for scores in found)


def _union(
    first: frozenset[Scores] | None, second: frozenset[Scores] | None
) -> frozenset[Scores] | None:
    return None if first is None or second is None else first | second
