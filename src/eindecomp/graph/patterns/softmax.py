"""Softmax in a graph: sums over keys of values, weighted by exponentials that add up to 1.

Of the maximum that is subtracted from the scores only one thing matters: it is one number for all
keys of a row. So it cancels, and nobody asks how it is computed. Inside an aggregation over keys
their label is `KEY`, whatever it is called there, so that equal weights are equal expressions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from eindecomp.graph.patterns.terms import TensorRead, Terms, strip_casts
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, Call, Expr, call

KEY = "@"
"""What the label of the keys is called; no label of a graph has this name."""
_LOWEST = -1e30
"""A score so low that its exponential is 0 beside that of any other."""


@dataclass(frozen=True, slots=True)
class Weights:
    """exp(scale · scores + biases + shifts) where all masks hold, and 0 elsewhere."""

    scores: TensorRead
    scale: float = 1.0
    masks: frozenset[Expr] = frozenset()
    biases: tuple[Expr, ...] = ()
    shifts: tuple[Expr, ...] = ()
    """Added terms that are the same for all keys."""
    is_finite: bool = False
    """Whether a very low score stands for -∞: then keys count alike where no mask holds."""

    def masked(self, mask: Expr, other: float | None = -inf) -> Weights:
        """The weights where a further mask holds; elsewhere scores are `other`."""
        is_finite = self.is_finite or other != -inf
        return replace(self, masks=self.masks | {mask}, is_finite=is_finite)

    def scaled(self, factor: float | None) -> Weights | None:
        """What a number above 0 times the exponent makes of them."""
        if factor is None or not 0 < factor < inf:
            return None
        biases = tuple(call("mul", term, factor) for term in self.biases)
        shifts = tuple(call("mul", term, factor) for term in self.shifts)
        return replace(self, scale=self.scale * factor, biases=biases, shifts=shifts)

    @property
    def rows(self) -> set[str]:
        """The labels of one softmax each."""
        return {*self.scores.labels} - {KEY}


@dataclass(frozen=True, slots=True)
class SoftmaxPart:
    """The weights of some keys, and their values."""

    weights: Weights
    values: TensorRead
    divided_early: bool
    """Whether weights are divided by their sum before they are multiplied by values."""


def softmax_parts(terms: Terms, vertex: Vertex) -> list[SoftmaxPart] | None:
    """The sets of keys over which a vertex is a softmax times values, None if it is not.

    All have the same rows and subtract the same from them.
    """
    op, output = vertex.op, TensorRead(vertex.name, vertex.labels)
    if not isinstance(op, EinSum):
        return None
    parts: list[SoftmaxPart] | None = None
    if op.agg is None:
        parts = _divided_late(terms, output)
    elif op.agg == SUM and len(op.aggregated) == 1:
        parts = _divided_early(terms, output)
    if not parts:
        return None
    first, *others = (part.weights for part in parts)
    alike = all((own.rows, own.shifts) == (first.rows, first.shifts) for own in others)
    is_each_its_own = len({part.weights.scores for part in parts}) == len(parts)
    return parts if alike and is_each_its_own else None


def _divided_late(terms: Terms, output: TensorRead) -> list[SoftmaxPart] | None:
    """(A + …) / (Z + …), sums over keys."""
    match terms.unfold(terms.arg(output)):
        case Call("div", (numerator, denominator)):
            products, totals = _addends(terms, numerator), _addends(terms, denominator)
        case _:
            return None
    if products is None or totals is None or len(products) != len(totals):
        return None
    sums = {_total(terms, read) for read in totals}
    parts: list[SoftmaxPart] = []
    for read in products:
        above, below = factors_of(terms.enter(read, (KEY,)))
        pair = None if below else _weigh(terms, above)
        if pair is None or pair[0] not in sums:
            return None
        parts.append(SoftmaxPart(*pair, divided_early=False))
    return parts


def _divided_early(terms: Terms, output: TensorRead) -> list[SoftmaxPart] | None:
    """The sum over keys of quotients times values."""
    above, below = factors_of(terms.enter(output, (KEY,)))
    ways = [(above, below)]
    for k, expr in enumerate(above):
        match terms.unfold(expr):
            case Call("div", (weight, total)):
                ways.append(([weight, *above[:k], *above[k + 1 :]], [*below, total]))
            case _:
                pass
    for factors, divisors in ways:
        pair = _weigh(terms, factors)
        totals = _addends(terms, divisors[0]) if len(divisors) == 1 else None
        if pair and totals and len(totals) == 1 and _total(terms, totals[0]) == pair[0]:
            return [SoftmaxPart(*pair, divided_early=True)]
    return None


def _addends(terms: Terms, expr: Expr) -> list[TensorRead] | None:
    """The sums over keys that an expression adds."""
    expr = terms.unfold(expr)
    match expr, terms.read(expr):
        case _, TensorRead() as read:
            return [read] if terms.aggregates(expr, SUM) else None
        case Call("add", (left, right)), _:
            first, second = _addends(terms, left), _addends(terms, right)
            return None if first is None or second is None else first + second
        case _:
            return None


def _total(terms: Terms, read: TensorRead) -> Weights | None:
    join = terms.enter(read, (KEY,))
    weights = None if join is None else _weights(terms, join)
    return weights if weights is not None and weights.rows == {*read.labels} else None


def _weigh(terms: Terms, factors: list[Expr]) -> tuple[Weights, TensorRead] | None:
    """The weights and the values among two factors."""
    if len(factors) != 2:
        return None
    for expr, other in (factors, factors[::-1]):
        values, weights = terms.read(other), _weights(terms, expr)
        if weights is not None and values is not None and KEY in values.labels:
            return weights, values
    return None


def factors_of(expr: Expr | None) -> tuple[list[Expr], list[Expr]]:
    """What an expression multiplies, and what it divides that by."""
    match None if expr is None else strip_casts(expr):
        case None:
            return [], []
        case Call("mul", (left, right)):
            a, b = factors_of(left)
            c, d = factors_of(right)
            return a + c, b + d
        case Call("div", (left, right)):
            a, b = factors_of(left)
            return a, [*b, strip_casts(right)]
        case other:
            return [other], []


def product_of(terms: Terms, expr: Expr | None) -> tuple[list[TensorRead], float] | None:
    """The two tensors that an expression multiplies, and the number that it has beside them."""
    above, below = factors_of(expr)
    numbers = [terms.number(factor) for factor in (*above, *below)]
    scale = 1.0
    for place, number in enumerate(numbers):
        if number:
            scale = scale * number if place < len(above) else scale / number
    plain = [factor for factor, number in zip(above, numbers, strict=False) if not number]
    reads = [read for read in map(terms.read, plain) if read is not None]
    is_product = len(plain) == len(reads) == 2 and all(numbers[len(above) :])
    return (reads, scale) if is_product else None


def _weights(terms: Terms, expr: Expr) -> Weights | None:
    match terms.unfold(expr):
        case Call("where", (mask, left, right)) if 0 in (terms.number(left), terms.number(right)):
            if terms.number(left) == 0:
                mask, left = call("not", mask), right
            weights = _weights(terms, left)
            return None if weights is None else weights.masked(mask)
        case Call("exp", (exponent,)):
            return _exponent(terms, exponent)
        case _:
            return None


def _exponent(terms: Terms, expr: Expr) -> Weights | None:
    """The weights whose exponents an expression is."""
    expr = terms.unfold(expr)
    match expr:
        case Arg(index):
            read = terms.reads[index]
            is_product = terms.aggregates(expr, SUM) and KEY in read.labels
            return Weights(read) if is_product else None
        case Call("where", (mask, left, right)):
            low = terms.number(right)
            if low is None or low > _LOWEST:
                mask, left, low = call("not", mask), right, terms.number(left)
            weights = None if low is None or low > _LOWEST else _exponent(terms, left)
            return None if weights is None else weights.masked(mask, low)
        case Call("mul" | "div" as op, (left, right)):
            first, second = terms.number(left), terms.number(right)
            if op == "div":
                first, second = None, 1 / second if second else None
            weights = _exponent(terms, right if second is None else left)
            return None if weights is None else weights.scaled(first if second is None else second)
        case Call("add", (left, right)):
            return _added(terms, left, right) or _added(terms, right, left)
        case Call("sub", (left, right)):
            return _added(terms, left, call("neg", right))
        case _:
            return None


def _added(terms: Terms, expr: Expr, term: Expr) -> Weights | None:
    weights = _exponent(terms, expr)
    if weights is None:
        return None
    if any(KEY in read.labels for read in terms.read_by(term)):
        return replace(weights, biases=(*weights.biases, term))
    return replace(weights, shifts=(*weights.shifts, term))
