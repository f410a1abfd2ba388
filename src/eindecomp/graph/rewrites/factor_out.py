"""Taking factors that do not depend on what is summed out of a sum of products.

What is left is a plain product, which fast kernels compute; the factor is applied once a result.
"""

from __future__ import annotations

from functools import reduce
from math import isfinite
from typing import TYPE_CHECKING

from eindecomp.graph.rewrites.rebuild import copy_vertex, empty_like, end_like
from eindecomp.lang.dtypes import LOW_PRECISION, Kind, kind
from eindecomp.lang.einsum import EinSum
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

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

Factors = list[tuple[str, Expr]]
"""What a value is multiplied by (`mul`), divided by (`div`), or negated for (`neg`)."""


def factor_out(graph: Graph) -> Graph:
    """Turn Σ a·b·c into c·Σ a·b, and so for quotients and signs.

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
    made = empty_like(graph)
    for vertex in graph.vertices.values():
        factors = _taken_out(vertex, graph)
        if factors is None:
            copy_vertex(vertex, made)
        else:
            _add(vertex, *factors, made)
    end_like(graph, made)
    return made


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


def _applied(value: Expr, factor: tuple[str, Expr]) -> Expr:
    how, by = factor
    return call("neg", value) if how == "neg" else call(how, value, by)


def _add(vertex: Vertex, inside: list[Expr], outside: Factors, into: Graph) -> None:
    op = vertex.op
    assert isinstance(op, EinSum)  # noqa: S101
    operands = list(zip(vertex.inputs, op.inputs, strict=True))
    name = into.fresh(f"{vertex.name}_1")
    operands.append((name, op.output))
    whole: Expr = Arg(len(vertex.inputs))
    product, scaled = chain("mul", inside), reduce(_applied, outside, whole)
    for join, agg, made in ((product, op.agg, name), (scaled, None, vertex.name)):
        used = used_args(join)
        numbered = replace_args(join, {k: Arg(place) for place, k in enumerate(used)})
        into.add_einsum(op.output, [operands[k] for k in used], numbered, agg, made)
