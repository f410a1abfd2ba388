"""Reading several vertices as one expression, in the labels of the vertex that reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Fill
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import Arg, Call, Const, Expr, replace_args, used_args, used_scalars
from eindecomp.lang.simplify import simplify

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.lang.monoid import Monoid

FLOAT_CASTS = frozenset({"float16", "bfloat16", "float32", "float64"})


@dataclass(frozen=True, slots=True)
class Read:
    """A vertex and the labels under which its dimensions are read."""

    name: str
    labels: Labels

    def renamed(self, names: dict[str, str]) -> Read:
        """The same vertex under other labels."""
        return Read(self.name, tuple(names.get(label, label) for label in self.labels))

    def __str__(self) -> str:
        return f"{self.name}[{','.join(self.labels)}]"


@dataclass(frozen=True, slots=True)
class Value:
    """A scalar function of tensors: input k of `expr` is the element of `reads[k]`."""

    expr: Expr
    reads: tuple[Read, ...]

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
    reads: list[Read] = field(default_factory=list[Read])

    def arg(self, read: Read) -> Arg:
        """The input that stands for a read."""
        if read not in self.reads:
            self.reads.append(read)
        return Arg(self.reads.index(read))

    def read(self, expr: Expr) -> Read | None:
        """The read that an expression is, under any casts between floats."""
        expr = strip_casts(expr)
        return self.reads[expr.index] if isinstance(expr, Arg) else None

    def enter(self, read: Read, aggregated: Labels) -> Expr | None:
        """The join of a vertex in its reader's labels, `aggregated` being those it sums away."""
        op = self.graph[read.name].op
        if not isinstance(op, EinSum) or len(op.aggregated) != len(aggregated):
            return None
        if len(used_args(op.join)) < len(op.inputs) or len({*read.labels}) < len(read.labels):
            return None
        names = dict(zip((*op.output, *op.aggregated), (*read.labels, *aggregated), strict=True))
        inputs = zip(self.graph[read.name].inputs, op.inputs, strict=True)
        return replace_args(op.join, [self.arg(Read(n, own).renamed(names)) for n, own in inputs])

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

    def read_by(self, *exprs: Expr) -> list[Read]:
        """All that expressions read."""
        return [self.reads[index] for expr in exprs for index in used_args(expr)]

    def value(self, expr: Expr, names: dict[str, str]) -> Value:
        """An expression on its own, with labels renamed."""
        used = used_args(expr)
        alone = replace_args(expr, {index: Arg(k) for k, index in enumerate(used)})
        return Value(alone, tuple(self.reads[index].renamed(names) for index in used))


def strip_casts(expr: Expr) -> Expr:
    """An expression without the casts between floats around it."""
    while isinstance(expr, Call) and expr.op in FLOAT_CASTS:
        expr = expr.args[0]
    return expr
