"""Exchanging two operations where the other order takes less.

Factors that do not depend on what is summed are taken out of a sum, and a softmax is divided by its
sum after the product that reads it. Rows are looked up in a table before they are sliced, so that
of a table that is not in memory only those are read.
"""

from __future__ import annotations

from math import isfinite, prod
from typing import TypeVar

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Gather, Range, Window, sliced
from eindecomp.graph.rewrites.rebuild import rebuilt, remove_dead
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.windows import with_windows_apart
from eindecomp.lang.dtypes import LOW_PRECISION, Kind, kind
from eindecomp.lang.einsum import EinSum, Labels, Operand
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import (
    Arg,
    Call,
    Const,
    Expr,
    call,
    chain,
    replace_args,
    used_args,
    used_scalars,
)
from eindecomp.lang.scalar_types import type_of
from eindecomp.lang.simplify import simplify

T = TypeVar("T")
Factors = list[tuple[str, Expr]]
"""What a value is multiplied by (`mul`), divided by (`div`), or negated for (`neg`)."""


@with_windows_apart
def factor_out(graph: Graph) -> Graph:
    """Turn Σ a·b·c into c·Σ a·b, and so for quotients and signs.

    What is left is a plain product, which fast kernels compute.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "input A[i: 4, j: 9], B[j, k: 2], s[i]\\nZ[i,k] <- sum A[i,j] * B[j,k] / 3 / s[i]"
    >>> print(factor_out(parse(f"{text}\\noutput Z")))
    input A[i: 4, j: 9]
    input B[j: 9, k: 2]
    input s[i: 4]
    Z_1[i,k] <- sum A[i,j] * B[j,k]
    Z[i,k] <- Z_1[i,k] / 3 / s[i]
    output Z
    """

    def put(vertex: Vertex, made: Graph) -> bool:
        factors, op = _taken_out(vertex, graph), vertex.op
        if factors is None or not isinstance(op, EinSum):
            return False
        inside, outside = factors
        operands = list(zip(vertex.inputs, op.inputs, strict=True))
        name = made.fresh(f"{vertex.name}_1")
        operands.append((name, op.output))
        whole: Expr = Arg(len(vertex.inputs))
        for how, by in outside:
            whole = call("neg", whole) if how == "neg" else call(how, whole, by)
        for join, agg, own in ((chain("mul", inside), op.agg, name), (whole, None, vertex.name)):
            used = used_args(join)
            numbered = replace_args(join, {k: Arg(place) for place, k in enumerate(used)})
            made.add_einsum(op.output, [operands[k] for k in used], numbered, agg, own)
        return True

    return rebuilt(graph, put)


def _taken_out(vertex: Vertex, graph: Graph) -> tuple[list[Expr], Factors] | None:
    """What stays in the sum, and the factors that leave it; None if that is wrong or no gain."""
    op = vertex.op
    if not isinstance(op, EinSum) or op.agg != SUM or len(used_args(op.join)) < len(op.inputs):
        return None
    inside: list[Expr] = []
    outside: Factors = []
    for how, factor in _factors(op.join):
        own = {label for k in used_args(factor) for label in op.inputs[k]}
        # A tensor as it is stays: in which order tensors are multiplied is chosen later.
        stays = (how == "mul" and isinstance(factor, Arg)) or not _is_number(factor)
        if own <= {*op.output} and not stays:
            outside.append((how, factor))
        elif how == "mul":
            inside.append(factor)
        else:
            return None
    args = {k for factor in inside for k in used_args(factor)}
    seen = {label for k in args for label in op.inputs[k]}
    if len(args) < 2 or not outside or not {*op.aggregated, *op.output} <= seen:
        return None
    if 0 in (size for name in vertex.inputs for size in graph[name].shape):
        return None  # a sum of nothing is 0, also if the factor divides by 0
    # Whole numbers wrap around or are divided one by one; half-width floats may not hold the sum.
    types = {vertex.dtype, *(graph[name].dtype for name in vertex.inputs)}
    if len(types) > 1 or kind(vertex.dtype) < Kind.FLOAT or types & LOW_PRECISION:
        return None
    of = [graph[name].dtype for name in vertex.inputs]
    same = type_of(chain("mul", inside), of, graph.scalars) == vertex.dtype
    return (inside, outside) if same else None


def _is_number(factor: Expr) -> bool:
    """Whether a factor is no literal that makes a sum infinite: of 1/0 and -1/0 it would be nan."""
    value = simplify(factor, (), {}) if not used_args(factor) + used_scalars(factor) else factor
    return not isinstance(value, Const) or (isfinite(abs(value.value)) and value.value != 0)


def _factors(expr: Expr) -> Factors:
    match expr:
        case Call("mul", (left, right)):
            return [*_factors(left), *_factors(right)]
        case Call("div", (left, right)):
            return [*_factors(left), ("div", right)]
        case Call("neg", (inner,)):
            return [*_factors(inner), ("neg", Const(1))] if used_args(inner) else [("mul", expr)]
        case _:
            return [("mul", expr)]


_QUOTIENT = call("div", Arg(0), Arg(1))


@with_windows_apart
def divide_late(graph: Graph) -> Graph:
    """Turn Σ (E / ΣE) · V into (Σ E · V) / ΣE: the same weighted mean, divided once a result.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "S[i] <- sum E[i,t]\\nP[i,t] <- E[i,t] / S[i]\\nO[i,d] <- sum P[i,t] * V[t,d]"
    >>> print(divide_late(parse(f"input E[i: 4, t: 9], V[t, d: 2]\\n{text}\\noutput O")))
    input E[i: 4, t: 9]
    input V[t: 9, d: 2]
    S[i] <- sum E[i,t]
    O_1[i,d] <- sum E[i,t] * V[t,d]
    O[i,d] <- O_1[i,d] / S[i]
    output O
    """
    reads = graph.reads()
    outputs = {vertex.name for vertex in graph.outputs}

    def put(vertex: Vertex, late: Graph) -> bool:
        op = vertex.op
        for k, name in enumerate(vertex.inputs):
            if reads[name] == 1 and name not in outputs and isinstance(op, EinSum):
                quotient = _weights(graph, vertex, op, k)
                if quotient is not None:
                    whole, total = quotient
                    operands = list(zip(vertex.inputs, op.inputs, strict=True))
                    operands[k] = whole
                    made = late.fresh(f"{vertex.name}_1")
                    late.add_einsum(op.output, operands, op.join, op.agg, made, vertex.sizes)
                    divided = [(made, op.output), total]
                    late.add_einsum(op.output, divided, _QUOTIENT, name=vertex.name)
                    return True
        return False

    return remove_dead(rebuilt(graph, put))


def _weights(graph: Graph, vertex: Vertex, op: EinSum, k: int) -> tuple[Operand, Operand] | None:
    """What an input of a product divides by its sum, and that sum, in the product's labels."""
    share = graph[vertex.inputs[k]]
    inner = share.op
    if not (op.is_contraction and len(op.inputs) == 2 and isinstance(inner, EinSum)):
        return None
    if inner.join != _QUOTIENT or inner.agg is not None or share.elements <= vertex.elements:
        return None
    types = {graph[name].dtype for name in (*share.inputs, share.name, vertex.name)}
    # Before it is divided the sum is larger: half-width floats may not hold it.
    if len(types) > 1 or types & LOW_PRECISION or kind(share.dtype) is not Kind.FLOAT:
        return None
    whole, total = (graph[name] for name in share.inputs)
    rename = dict(zip(inner.output, op.inputs[k], strict=True))
    if not {*inner.inputs[0], *inner.inputs[1]} <= set(rename):
        return None
    read, divisor = (tuple(rename[label] for label in own) for own in inner.inputs)
    if not _is_sum(total, whole, inner) or not set(divisor) <= set(op.output):
        return None
    return (whole.name, read), (total.name, divisor)


def _is_sum(total: Vertex, whole: Vertex, quotient: EinSum) -> bool:
    """Whether one tensor is another's sum over what the quotient repeats it for."""
    op = total.op
    if not isinstance(op, EinSum) or op.agg != SUM or op.join != Arg(0):
        return False
    rename = dict(zip(op.inputs[0], quotient.inputs[0], strict=True))
    return total.inputs == (whole.name,) and quotient.inputs[1] == tuple(
        rename[label] for label in op.output
    )


@with_windows_apart
def gather_early(graph: Graph) -> Graph:
    """Exchange gathers and the slices they read where fewer elements are made.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "S[v,a] <- T[v, a in 0:2]\\nZ[b,a] <- S[ids[b], a]\\noutput Z"
    >>> print(gather_early(parse("input T[v: 99, a: 9], ids[b: 3] int32\\n" + text)))
    input T[v: 99, a: 9]
    input ids[b: 3] int32
    S[v,a] <- T[v, a in 0:2]
    Z_1[b,a] <- T[ids[b], a]
    Z[b,a] <- Z_1[b, a in 0:2]
    output Z
    """
    return rebuilt(graph, _exchanged)


def _exchanged(vertex: Vertex, graph: Graph) -> bool:
    """Add a gather and then a slice in the place of a vertex, if that is the better order."""
    op = vertex.op
    cut = graph[vertex.inputs[0]] if isinstance(op, Gather) else None
    if not isinstance(op, Gather) or cut is None or not isinstance(cut.op, Window):
        return False
    source = graph[cut.inputs[0]]
    ranges = cut.op.ranges(source.shape)
    if ranges is None:
        return False
    kept = [k for k, window in enumerate(ranges) if not isinstance(window, int)]
    axis = kept[op.axis]
    labels = _labels(op, ranges, axis)
    cuts = zip(labels, _but(axis, ranges), strict=True)
    windows: dict[str, Range] = {label: window for label, window in cuts if window is not None}
    # Where a row is looked up along what is cut, or its place depends on that, the order matters.
    if ranges[axis] is not None or set(windows) & set(op.index):
        return False
    sizes = vertex.sizes | dict(zip(labels, _but(axis, source.shape), strict=True))
    output = (*op.output, *(label for label in labels if label not in op.output))
    if prod(sizes[label] for label in output) >= cut.elements:
        return False
    name = graph.fresh(f"{vertex.name}_1")
    made = graph.add(Gather(labels, axis, op.index, output), [source.name, vertex.inputs[1]], name)
    left = [windows.get(label) for label in output]
    graph.add(sliced(op.output, left, made.shape), [name], vertex.name)
    return True


def _labels(op: Gather, ranges: tuple[Range, ...], axis: int) -> Labels:
    """A label for every dimension of the table but the one that is looked up."""
    own = iter(op.table)
    taken = {*op.table, *op.index, *op.output}
    free = (label for k in range(10**6) if (label := f"gone{k}") not in taken)
    left = _but(axis, ranges)
    return tuple(next(free) if isinstance(window, int) else next(own) for window in left)


def _but(place: int, items: tuple[T, ...]) -> tuple[T, ...]:
    return (*items[:place], *items[place + 1 :])
