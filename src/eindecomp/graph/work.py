"""What vertices take: how many scalar operations, and how many bytes a partial result has.

A product of three or more tensors that is summed, a fused contraction, is not computed point by
point: kernels contract its operands pair by pair inside a tile, block by block, without storing
more than a block of what lies between. Its operations are those of the best such order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Op, ScatterAdd
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import ScalarItems, Types, concrete, widen
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import Call, Const, Expr, used_args, values
from eindecomp.lang.scalar_types import with_casts

ELEMENTARY = {"exp", "log", "sin", "cos", "tanh", "erf", "sigmoid", "silu", "gelu", "pow"}
"""Functions that processors compute by many operations of their own."""
MOST_OPERANDS = 8
"""The most operands of a fused contraction for which every order of pairs is considered."""


@lru_cache(maxsize=2**12)
def operations_per_point(op: Op) -> int:
    """Operations for each point of the label space, those that only move data counting nothing.

    They are the distinct function calls of the join and of the aggregation's combination, whatever
    the function: 2 for a product that is summed.
    """
    match op:
        case EinSum():
            combine = () if op.agg is None else values(op.agg.combine)
            return len(calls_of(values(op.join))) + len(calls_of(combine))
        case ScatterAdd():
            return 1
        case _:
            return 0


def operations(graph: Graph, vertex: Vertex) -> int:
    """All scalar operations of a vertex.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> graph = parse("input X[i: 2, j: 3], Y[j, k: 4]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z")
    >>> operations(graph, graph["Z"])
    48
    """
    sizes = graph.label_sizes(vertex)
    if isinstance(vertex.op, ScatterAdd):
        rows, index = (graph[name] for name in vertex.inputs)
        sizes = rows.sizes_by(vertex.op.source) | index.sizes_by(vertex.op.index)
    return tile_operations(vertex.op, sizes)


def is_product(op: Op | None) -> bool:
    """Whether a vertex, if it is one, multiplies tensors and sums: fast matrix products do that."""
    return isinstance(op, EinSum) and op.is_contraction and len(op.inputs) > 1


def tile_operations(op: Op, sizes: Mapping[str, Any]) -> Any:
    """All scalar operations on a tile, whose labels have these sizes: numbers, or arrays of them.

    Cutting a label that some step of a fused contraction lacks makes several tiles repeat the step.
    Labels of a fused contraction that have no size here are empty: they cannot be cut, so that
    views leave them out.

    >>> from eindecomp.lang.einsum import EinSum, product
    >>> from eindecomp.lang.monoid import SUM
    >>> chain = EinSum((tuple("ij"), tuple("jk"), tuple("kl")), tuple("il"), product(3), SUM)
    >>> tile_operations(chain, {"i": 2, "j": 5, "k": 5, "l": 5})  # 2·2·5·5 + 2·2·5·5
    200
    """
    # More than two tensors at once are contracted pair by pair inside each tile.
    if isinstance(op, EinSum) and op.is_contraction and 2 < len(op.inputs) <= MOST_OPERANDS:
        return least_operations(op.inputs, op.output, dict.fromkeys(op.labels, 0) | dict(sizes))
    each = operations_per_point(op)
    return each * prod(sizes.values()) if each else 0


def tile_functions(op: Op, sizes: Mapping[str, Any]) -> Any:
    """The calls of elementary functions on a tile, whose labels have these sizes.

    Each is called once for all points that have the same operands.

    >>> from eindecomp.lang.monoid import SUM
    >>> from eindecomp.lang.scalar import Arg, call
    >>> join = call("mul", call("exp", Arg(0)), Arg(1))
    >>> weighted = EinSum((tuple("ij"), tuple("jk")), tuple("ik"), join, SUM)
    >>> tile_functions(weighted, {"i": 2, "j": 5, "k": 100})
    10
    """
    if not isinstance(op, EinSum):
        return 0
    calls = _function_labels(op)
    return sum(prod(size for label, size in sizes.items() if label in own) for own in calls)


@lru_cache(maxsize=2**12)
def _function_labels(op: EinSum) -> tuple[frozenset[str], ...]:
    """For each call of an elementary function the labels of its operands."""
    calls = filter(_is_elementary, calls_of(values(op.join)))
    joins = [frozenset(label for k in used_args(each) for label in op.inputs[k]) for each in calls]
    combine = () if op.agg is None else values(op.agg.combine)
    return (*joins, *(frozenset(op.labels) for each in calls_of(combine) if _is_elementary(each)))


def _is_elementary(each: Call) -> bool:
    if each.op != "pow":
        return each.op in ELEMENTARY
    exponent = each.args[1].value if isinstance(each.args[1], Const) else None
    is_whole = isinstance(exponent, int | float) and float(exponent).is_integer()
    return not is_whole  # those are a few products


def least_operations(inputs: Sequence[Labels], output: Labels, sizes: Mapping[str, Any]) -> Any:
    """The operations of the best order in which tensors are multiplied and summed pair by pair.

    Labels are summed as soon as nothing else needs them.
    """
    return least_of_subsets(inputs, output, sizes)[(1 << len(inputs)) - 1]


def least_of_subsets(
    inputs: Sequence[Labels], output: Labels, sizes: Mapping[str, Any]
) -> dict[int, Any]:
    """The same for every subset of the tensors, given as a bit mask."""
    labels = [kept_labels(inputs, output, mask) for mask in range(1 << len(inputs))]
    least: dict[int, Any] = {1 << k: 0 for k in range(len(inputs))}
    for mask in range(1, 1 << len(inputs)):
        best: Any = None
        for one in halves(mask):
            other = mask ^ one
            step = pair_operations(labels[one], labels[other], labels[mask], sizes)
            total = least[one] + least[other] + step
            if best is None:
                best = total
            elif isinstance(best, int | float) and isinstance(total, int | float):
                best = min(best, total)
            else:
                best = np.minimum(best, total)
        if best is not None:
            least[mask] = best
    return least


def kept_labels(inputs: Sequence[Labels], output: Labels, mask: int) -> frozenset[str]:
    """The labels that the product of a subset of the tensors, given as a bit mask, must keep."""
    if mask.bit_count() == 1:
        return frozenset(inputs[mask.bit_length() - 1])  # by itself, it has not been summed yet
    within: set[str] = set()
    needed = set(output)
    for k, labels in enumerate(inputs):
        (within if mask >> k & 1 else needed).update(labels)
    return frozenset(within & needed)


def pair_operations(
    one: frozenset[str], other: frozenset[str], result: frozenset[str], sizes: Mapping[str, Any]
) -> Any:
    """The operations of one product of two tensors: multiplying and, if it sums, adding."""
    points = one | other
    # Sorted, because floating-point products of the same sizes must be the same.
    return (1 if points <= result else 2) * prod(sizes[label] for label in sorted(points))


def halves(mask: int) -> Iterator[int]:
    """The ways to divide a set in two, each once, by the half that has the last element."""
    last = 1 << (mask.bit_length() - 1) if mask else 0
    rest = mask ^ last
    part = rest
    while part:
        part = (part - 1) & rest
        yield part | last


def calls_of(exprs: Iterable[Expr]) -> list[Call]:
    """All calls in expressions, outer ones first, equal ones once."""
    seen: dict[Call, None] = {}
    left = list(exprs)[::-1]
    while left:
        expr = left.pop()
        if isinstance(expr, Call) and expr not in seen:
            seen[expr] = None
            left += reversed(expr.args)
    return [*seen]


# Partial results


def state_types(graph: Graph, vertex: Vertex) -> Types:
    """The types in which one partial result of a vertex is accumulated: one, or several of a tuple.

    Low precision is rounded once, after the last sum: until then it is float32.
    """
    op = vertex.op
    agg = op.agg if isinstance(op, EinSum) else None
    if not isinstance(op, EinSum) or agg is None or (agg.finish is None and agg.width == 1):
        return (widen(vertex.dtype),)
    types = tuple(graph[name].dtype for name in vertex.inputs)
    return _state_types(op, types, tuple(graph.scalars.items()))


def partial_types(graph: Graph, vertex: Vertex) -> Types:
    """The types of one partial result as it is held, and travels where several devices sum."""
    narrow = vertex.reduce_dtype
    return state_types(graph, vertex) if narrow is None else (narrow,)


def partial_bytes(graph: Graph, vertex: Vertex) -> int:
    """The bytes of one partial result."""
    return sum(dtype.itemsize for dtype in partial_types(graph, vertex))


def reducing_bytes(graph: Graph, vertex: Vertex, parts: Types) -> int:
    """The bytes on which combining parts of these types works: the sum so far, and another part.

    What has travelled in a smaller type is brought into that of the sum first.
    """
    wide = state_types(graph, vertex)
    rounded = () if parts == wide else parts
    return sum(dtype.itemsize for dtype in (*wide, *wide, *rounded))


@lru_cache(maxsize=1 << 12)
def _state_types(op: EinSum, types: Types, scalars: ScalarItems) -> Types:
    assert op.agg is not None  # noqa: S101 - only aggregations have partial results
    known = dict(scalars)
    joined = [with_casts(value, types, known)[1] for value in values(op.join)]
    return tuple(widen(concrete(t)) for t in op.agg.state_types(joined, known))
