"""Reading several vertices as one expression, in the labels of the vertex that reads them.

And what a mask of attention scores says: which keys count for which queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill
from eindecomp.lang.dtypes import Kind, kind
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.scalar import (
    Arg,
    Call,
    Const,
    Expr,
    Scalar,
    call,
    chain,
    replace_args,
    used_args,
    used_scalars,
)
from eindecomp.lang.simplify import simplify

FLOAT_CASTS = frozenset({"float16", "bfloat16", "float32", "float64"})


@dataclass(frozen=True, slots=True)
class TensorRead:
    """A vertex and the labels under which its dimensions are read."""

    name: str
    labels: Labels

    def renamed(self, names: dict[str, str]) -> TensorRead:
        """The same vertex under other labels."""
        return TensorRead(self.name, tuple(names.get(label, label) for label in self.labels))

    def __str__(self) -> str:
        return f"{self.name}[{','.join(self.labels)}]"


@dataclass(frozen=True, slots=True)
class TensorExpr:
    """A scalar function of tensors: input k of `expr` is the element of `reads[k]`."""

    expr: Expr
    reads: tuple[TensorRead, ...]

    @property
    def labels(self) -> frozenset[str]:
        """The labels that it depends on."""
        return frozenset(label for read in self.reads for label in read.labels)


@dataclass(slots=True)
class Terms:
    """Expressions over vertices of a graph.

    Input k of every expression is the k-th read that was ever asked for, so that two expressions
    are equal if they compute the same from the same tensors.
    """

    graph: Graph
    reads: list[TensorRead] = field(default_factory=list[TensorRead])

    def arg(self, read: TensorRead) -> Arg:
        """The input that stands for a read."""
        if read not in self.reads:
            self.reads.append(read)
        return Arg(self.reads.index(read))

    def read(self, expr: Expr) -> TensorRead | None:
        """The read that an expression is, under any casts between floats."""
        expr = strip_casts(expr)
        return self.reads[expr.index] if isinstance(expr, Arg) else None

    def enter(self, read: TensorRead, aggregated: Labels) -> Expr | None:
        """The join of a vertex in its reader's labels, `aggregated` being those it sums away."""
        vertex, op = self.graph[read.name], self.graph[read.name].op
        if not isinstance(op, EinSum) or len(op.aggregated) != len(aggregated) or vertex.windows:
            return None
        if self.graph[read.name].windows:  # a read is of all of a tensor
            return None
        if len(used_args(op.join)) < len(op.inputs) or len({*read.labels}) < len(read.labels):
            return None
        names = dict(zip((*op.output, *op.aggregated), (*read.labels, *aggregated), strict=True))
        inputs = zip(vertex.inputs, op.inputs, strict=True)
        reads = (TensorRead(n, own).renamed(names) for n, own in inputs)
        return replace_args(op.join, [*map(self.arg, reads)])

    def unfold(self, expr: Expr) -> Expr:
        """An expression without casts, an element-wise vertex replaced by what computes it."""
        while True:
            expr = strip_casts(expr)
            if not isinstance(expr, Arg) or not self.aggregates(expr, None):
                return expr
            inner = self.enter(self.reads[expr.index], ())
            if inner is None:
                return expr
            expr = inner

    def aggregates(self, expr: Expr, agg: Monoid | None) -> bool:
        """Whether an expression reads a vertex with this aggregation."""
        read = self.read(expr)
        op = None if read is None else self.graph[read.name].op
        return isinstance(op, EinSum) and op.agg == agg

    def number(self, expr: Expr) -> float | None:
        """The constant that an expression is, a fill with one among them, or None."""
        read = self.read(expr)
        if read is not None:
            op = self.graph[read.name].op
            if not isinstance(op, Fill):
                return None
            expr = op.value
        if used_args(expr) or used_scalars(expr):
            return None
        match strip_casts(simplify(strip_casts(expr))):
            case Const(bool() | int() | float() as value):
                return float(value)
            case _:
                return None

    def read_by(self, *exprs: Expr) -> list[TensorRead]:
        """All that expressions read."""
        return [self.reads[index] for expr in exprs for index in used_args(expr)]

    def value(self, expr: Expr, names: dict[str, str]) -> TensorExpr:
        """An expression on its own, with labels renamed."""
        used = used_args(expr)
        alone = replace_args(expr, {index: Arg(k) for k, index in enumerate(used)})
        return TensorExpr(alone, tuple(self.reads[index].renamed(names) for index in used))


def strip_casts(expr: Expr) -> Expr:
    """An expression without the casts between floats around it."""
    while isinstance(expr, Call) and expr.op in FLOAT_CASTS:
        expr = expr.args[0]
    return expr


_FLIPPED = {"le": "ge", "lt": "gt", "ge": "le", "gt": "lt"}
_OPPOSITE = {"le": "gt", "lt": "ge", "ge": "lt", "gt": "le"}
_INDEX = ""
"""The name of a read that stands for the index along its one label."""


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask, true where a key counts: `value`, which each has, or what says the same in short."""

    value: TensorExpr
    query: str | None = None
    """The label of the queries, of a causal mask."""
    offset: int = 0
    """A causal mask holds where key index <= query index + offset."""
    length: TensorExpr | None = None
    """How many keys count, the first ones; no label of its reads is that of the keys."""

    @property
    def is_causal(self) -> bool:
        """Whether keys up to the query's own index plus an offset count."""
        return self.query is not None


def tell_mask(graph: Graph, value: TensorExpr, key: str, queries: Collection[str]) -> Mask:
    """The mask that a truth value makes for keys with this label; causal only along `queries`."""
    terms, rest = Terms(graph, [*value.reads]), Linear()
    with suppress(_NotLinear):
        rest = _at_most_zero(terms, _opened(terms, value.expr))
    if rest.pop(_index(key), 0) != 1:
        return Mask(value)
    constant = rest.pop(None, 0)
    rest = {leaf: number for leaf, number in rest.items() if number}
    match list(rest.items()):
        case [(TensorRead(name, (label,)), -1)] if name == _INDEX and label in queries:
            return Mask(value, query=label, offset=-constant)
        case _ if _is_length(rest, key):
            return Mask(value, length=_length(rest, 1 - constant))
        case _:
            return Mask(value)


def _opened(terms: Terms, expr: Expr) -> Expr:
    """An expression with fills and element-wise vertices opened, down to indices and tensors."""
    opened: dict[int, Expr] = {}
    for k in used_args(expr):
        read = terms.reads[k]
        vertex = terms.graph.vertices.get(read.name)
        match None if vertex is None else vertex.op:
            case Fill(value=value):
                opened[k] = replace_args(value, [terms.arg(_index(x)) for x in read.labels])
            case EinSum(agg=None) if (inner := terms.enter(read, ())) is not None:
                opened[k] = _opened(terms, inner)
            case _:
                opened[k] = Arg(k)
    return replace_args(expr, opened)


def _index(label: str) -> TensorRead:
    return TensorRead(_INDEX, (label,))


Linear = Counter["TensorRead | Scalar | None"]
"""Integer factors of indices, tensors and run-time scalars; that of None is the constant."""


class _NotLinear(Exception):  # noqa: N818 - no error: the mask stays as it is
    """A truth value compares no linear forms of integers."""


def _at_most_zero(terms: Terms, expr: Expr) -> Linear:
    """The linear form that is at most 0 where a truth value holds; raises if there is none."""
    match expr:
        case Call("not", (Call("not", (inner,)),)):
            return _at_most_zero(terms, inner)
        case Call("not", (Call(op, (left, right)),)) if op in _OPPOSITE:
            return _at_most_zero(terms, call(_OPPOSITE[op], left, right))
        case Call("ge" | "gt" as op, (left, right)):
            return _at_most_zero(terms, call(_FLIPPED[op], right, left))
        case Call("le" | "lt" as op, (left, right)):
            difference = _linear(terms, call("sub", left, right))
            difference[None] += op == "lt"
            return difference
        case _:
            raise _NotLinear


def _linear(terms: Terms, expr: Expr) -> Linear:
    match expr:
        case Arg(index) if (
            terms.reads[index].name == _INDEX
            or kind(terms.graph[terms.reads[index].name].dtype) is Kind.INT
        ):
            return Counter({terms.reads[index]: 1})
        case Scalar(name) as scalar if kind(terms.graph.scalars[name]) is Kind.INT:
            return Counter({scalar: 1})
        case Const(int() as number) if not isinstance(number, bool):
            return Counter({None: number})
        case Call("add" | "sub" as op, (left, right)):
            total = _linear(terms, left)
            (total.update if op == "add" else total.subtract)(_linear(terms, right))
            return total
        case Call("neg", (inner,)):
            return _linear(terms, call("sub", Const(0), inner))
        # Of indices alone: no tensor is so large that they overflow.
        case Call("int32" | "int64", (inner,)) if all(
            terms.reads[k].name == _INDEX for k in used_args(inner)
        ):
            return _linear(terms, inner)
        case _:
            raise _NotLinear


def _is_length(rest: Mapping[TensorRead | Scalar | None, int], key: str) -> bool:
    return bool(rest) and all(
        number == -1
        and not (isinstance(leaf, TensorRead) and (leaf.name == _INDEX or key in leaf.labels))
        for leaf, number in rest.items()
    )


def _length(rest: Iterable[TensorRead | Scalar | None], constant: int) -> TensorExpr:
    """The sum of tensors and run-time scalars, and a constant."""
    reads = tuple(leaf for leaf in rest if isinstance(leaf, TensorRead))
    leaves: list[Expr] = [Arg(k) for k in range(len(reads))]
    leaves += [leaf for leaf in rest if isinstance(leaf, Scalar)]
    if constant:
        leaves.append(Const(constant))
    return TensorExpr(chain("add", leaves), reads)
