"""Fusing element-wise vertices into the vertices that read them.

A vertex that only moves values (a transpose, a broadcast, a diagonal) goes into all its readers.
One that computes goes into its reader when nothing is computed twice for it: the reader is the only
one and runs over the same labels, or the computation is cheap and reads one tensor of that size.
Multiply-sum contractions keep their plain inputs, so that they stay matrix products. The result of
an attention stays a vertex, so that one kernel can compute all of it, and so do tensors that are
compared with each other. So may sums of results that devices leave in parts: fused into a reader
that needs them combined, each of them would be combined by itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from eindecomp.errors import ExpressionError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Op, ScatterAdd
from eindecomp.graph.parts import sums_in_parts
from eindecomp.graph.patterns.attention import find_attention
from eindecomp.graph.rewrites.rebuild import rebuilt, remove_dead
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.windows import with_windows_apart
from eindecomp.graph.work import is_product
from eindecomp.lang.dtypes import LOW_PRECISION, Kind, dtype, kind, type_names
from eindecomp.lang.einsum import EinSum, Labels, Operand, canonical_inputs
from eindecomp.lang.monoid import PROD, SUM
from eindecomp.lang.scalar import (
    Arg,
    Call,
    Const,
    Expr,
    Scalar,
    call,
    replace_args,
    size_of,
    used_args,
    values,
)
from eindecomp.lang.scalar_types import type_of

MAX_SIZE = 64
MAX_INPUTS = 8
CHEAP_TERMS = 4
"""How many terms a computation may have that is repeated rather than stored."""
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "neg", "abs", "min", "max", "relu"})

_JUMPS = frozenset(
    {"lt", "le", "gt", "ge", "eq", "ne", "sign", "floordiv", "mod"}
    | {name for name in type_names if kind(dtype(name)) <= Kind.INT}
)
"""Functions that the last bit of an operand can decide."""


@with_windows_apart
def fuse(graph: Graph, *, keeps_sums: bool = False) -> Graph:
    """Merge chains of element-wise vertices, and maps into the aggregations that read them.

    It may keep sums that devices can leave in parts until their reader needs them.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "A[i,j] <- exp(X[i,j])\\nB[i,j] <- 2 * A[i,j]\\nZ[i] <- sum B[i,j]\\noutput Z"
    >>> print(fuse(parse("input X[i: 3, j: 4]\\n" + text)))
    input X[i: 3, j: 4]
    Z[i] <- sum 2 * exp(X[i,j])
    output Z
    """
    stored = {vertex.name for vertex in graph.outputs}
    stored |= {attention.result for attention in find_attention(graph)} | compared(graph)
    stored |= sums_in_parts(graph) if keeps_sums else set()
    users, reads = graph.users(), _reads(graph)

    def put(vertex: Vertex, fused: Graph) -> bool:
        op = vertex.op
        if isinstance(op, EinSum):
            form = _Fusion(graph, fused, users, reads, stored).absorb(vertex, op)
            own = (form.output, form.operands, form.join)
            fused.add_einsum(*own, op.agg, vertex.name, vertex.sizes)
        return isinstance(op, EinSum)

    return remove_dead(rebuilt(graph, put))


@dataclass(frozen=True, slots=True)
class _Form:
    """An EinSum in the making, without its aggregation."""

    output: Labels
    operands: tuple[Operand, ...]
    join: Expr

    @property
    def labels(self) -> set[str]:
        return {*self.output, *(label for _, labels in self.operands for label in labels)}


@dataclass(frozen=True, slots=True)
class _Fusion:
    graph: Graph
    fused: Graph
    users: dict[str, list[str]]
    reads: dict[str, int]
    stored: set[str]
    """Vertices that stay, whoever reads them."""

    def absorb(self, vertex: Vertex, op: EinSum) -> _Form:
        """Take in producers, one at a time, until none is left to take."""
        form = _Form(op.output, tuple(zip(vertex.inputs, op.inputs, strict=True)), op.join)
        rejected: set[Operand] = set()
        while left := [operand for operand in form.operands if operand not in rejected]:
            larger = self.take(form, left[0], vertex, op)
            if larger is None:
                rejected.add(left[0])
            else:
                form = larger
        return form

    def take(self, form: _Form, operand: Operand, vertex: Vertex, op: EinSum) -> _Form | None:
        """The form with one operand replaced by what makes it, or None where that is no gain."""
        name, labels = operand
        producer = self.fused[name]
        match producer.op:
            case EinSum(agg=None) as inner:
                is_moved = is_view(inner)
                if size_of(form.join) + size_of(inner.join) > MAX_SIZE + 1:
                    return None
                if name in self.stored and not is_moved:
                    return None
                if not is_moved and not self.may_compute_in(producer, inner.join, form, labels, op):
                    return None
                larger = _substitute(form, operand, producer, inner.inputs, inner.join)
            case Fill(value=value) if not used_args(value):
                larger = _substitute(form, operand, producer, (), value)
            case _:
                return None
        if larger is None or larger.labels != form.labels or not self.fits(larger, vertex, op):
            return None
        return larger

    def may_compute_in(
        self, producer: Vertex, join: Expr, form: _Form, labels: Labels, op: EinSum
    ) -> bool:
        if is_product(op):
            return False
        is_cheap = _is_cheap(join)
        if form.labels != set(labels) and not is_cheap:
            return False
        if self.reads[producer.name] == 1:
            return True
        # Repeating the sum of two tensors would make every reader read both.
        large = [n for n in producer.inputs if self.fused[n].elements >= producer.elements]
        return is_cheap and len(set(large)) <= 1 and self.all_take(producer.name)

    def all_take(self, producer: str) -> bool:
        """Whether every reader takes a cheap computation in, so that it need not be stored."""
        ops = [self.graph[reader].op for reader in self.users[producer]]
        return all(
            isinstance(op, EinSum) and not is_product(op) and len(op.inputs) < MAX_INPUTS
            for op in ops
        )

    def fits(self, form: _Form, vertex: Vertex, op: EinSum) -> bool:
        if size_of(form.join) > MAX_SIZE or len(form.operands) > MAX_INPUTS:
            return False
        types = [self.fused[name].dtype for name, _ in form.operands]
        before = [self.graph[name].dtype for name in vertex.inputs]
        scalars = self.graph.scalars
        after = [type_of(v, types, scalars) for v in values(form.join)]
        return after == [type_of(v, before, scalars) for v in values(op.join)]


def _reads(graph: Graph) -> dict[str, int]:
    """How often every vertex is read where those that only move it are gone."""
    counts = {vertex.name: 1 for vertex in graph.outputs}
    for vertex in reversed(tuple(graph.vertices.values())):
        name = vertex.name
        times = counts.setdefault(name, 0) if is_view(vertex.op) else 1
        for read in vertex.inputs:
            counts[read] = counts.get(read, 0) + times
    return counts


def _substitute(
    form: _Form, operand: Operand, producer: Vertex, inputs: tuple[Labels, ...], value: Expr
) -> _Form | None:
    """The form with an operand replaced by the value that makes it of these inputs."""
    rename = dict(zip(producer.labels, operand[1], strict=True))
    pairs = zip(producer.inputs, inputs, strict=True)
    taken = [(name, tuple(rename[label] for label in labels)) for name, labels in pairs]
    at = form.operands.index(operand)
    shifted = replace_args(value, [Arg(len(form.operands) + k) for k in range(len(taken))])
    if taken and producer.dtype in LOW_PRECISION and not isinstance(shifted, Arg):
        # As a vertex it was rounded; it must be as a part of another one.
        shifted = call(producer.dtype.name, shifted)
    by: list[Expr] = [shifted if k == at else Arg(k) for k in range(len(form.operands))]
    try:
        join, order = canonical_inputs(replace_args(form.join, by), [*form.operands, *taken])
    except ExpressionError:  # too deep or too large an expression
        return None
    # What is no longer read stands last; dropping it moves no other input.
    kept = tuple(each for each in order if each != operand)
    if len(kept) < len(order) - 1 or (operand in order and order.index(operand) < len(kept)):
        return None
    return _Form(form.output, kept, join)


def _is_cheap(join: Expr) -> bool:
    match join:
        case Call(op, args):
            return op in _ARITHMETIC and size_of(join) <= CHEAP_TERMS and all(map(_is_cheap, args))
        case Arg() | Const() | Scalar():
            return True
        case _:
            return False


# Tensors that are compared with each other: each of their values must be computed in one place.
# Rounding depends on what a value is computed together with: `a * b - m` may be one instruction. A
# value that is computed in two places may have other last bits in one of them, and is then not
# equal to itself: no element is the maximum, two have the same rank.


def compared(graph: Graph) -> set[str]:
    """The tensors that comparisons see twice or more, at once or by what was made of them.

    A sum of many is nothing that anybody expects to be equal to another one: what it adds up does
    not count.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "Y[i] <- X[i] / 3\\nm[] <- max Y[i]\\nZ[i] <- where(Y[i] == m[], Y[i], 0)\\noutput Z"
    >>> compared(parse(f"input X[i: 9]\\n{text}"))
    {'Y'}
    """
    rounded = _rounded(graph)
    outputs = {vertex.name for vertex in graph.outputs}
    seen = Counter[str]()
    twice: set[str] = set()
    for vertex in reversed(tuple(graph.vertices.values())):
        name = vertex.name
        # Whoever is given an output may compare it as well.
        if seen[name] + (name in outputs and seen[name] > 0) > 1:
            twice.add(name)
        if name in twice and is_view(vertex.op):
            twice.update(vertex.inputs)
        op = vertex.op
        # Of a sum, single values of the inputs cannot be told.
        sums = op.agg in (SUM, PROD) if isinstance(op, EinSum) else isinstance(op, ScatterAdd)
        jumps = isinstance(op, EinSum) and any(map(_has_jump, values(op.join)))
        if (seen[name] and not sums) or jumps:
            seen.update(vertex.inputs)
    return twice & rounded


def _rounded(graph: Graph) -> set[str]:
    """The tensors that are not computed exactly."""
    rounded: set[str] = set()
    for name, vertex in graph.vertices.items():
        is_made = isinstance(vertex.op, EinSum | Fill) and not is_view(vertex.op)
        is_float = kind(vertex.dtype) >= Kind.FLOAT
        if (is_made and is_float) or not rounded.isdisjoint(vertex.inputs):
            rounded.add(name)
    return rounded


def is_view(op: Op) -> bool:
    """Whether an operation only says under which labels a tensor is read."""
    return isinstance(op, EinSum) and op.agg is None and isinstance(op.join, Arg)


def _has_jump(expr: Expr) -> bool:
    if not isinstance(expr, Call):
        return False
    return (expr.op in _JUMPS and bool(used_args(expr))) or any(map(_has_jump, expr.args))
