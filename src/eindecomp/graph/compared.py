"""Tensors that are compared with each other: each of their values must be computed in one place.

Rounding depends on what a value is computed together with: `a * b - m` may be one instruction. A
value that is computed in two places may have other last bits in one of them, and is then not equal
to itself: no element is the maximum, two have the same rank.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Fill, ScatterAdd
from eindecomp.lang.dtypes import Kind, dtype, kind, type_names
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import PROD, SUM
from eindecomp.lang.scalar import Arg, Call, Expr, used_args, values

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.ops import Op

_JUMPS = frozenset(
    {"lt", "le", "gt", "ge", "eq", "ne", "sign", "floordiv", "mod"}
    | {name for name in type_names if kind(dtype(name)) <= Kind.INT}
)
"""Functions that the last bit of an operand can decide."""


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
    found: set[str] = set()
    for vertex in reversed(tuple(graph.vertices.values())):
        name = vertex.name
        # Whoever is given an output may compare it as well.
        if seen[name] + (name in outputs and seen[name] > 0) > 1:
            found.add(name)
        if name in found and is_view(vertex.op):
            found.update(vertex.inputs)
        if (seen[name] and _hands_on(vertex.op)) or _jumps(vertex.op):
            seen.update(vertex.inputs)
    return found & rounded


def _rounded(graph: Graph) -> set[str]:
    """The tensors that are not computed exactly."""
    found: set[str] = set()
    for name, vertex in graph.vertices.items():
        is_made = isinstance(vertex.op, EinSum | Fill) and not is_view(vertex.op)
        is_float = kind(vertex.dtype) >= Kind.FLOAT
        if (is_made and is_float) or not found.isdisjoint(vertex.inputs):
            found.add(name)
    return found


def is_view(op: Op) -> bool:
    """Whether an operation only says under which labels a tensor is read."""
    return isinstance(op, EinSum) and op.agg is None and isinstance(op.join, Arg)


def _hands_on(op: Op) -> bool:
    """Whether single values of the inputs can be told from the result."""
    sums = op.agg in (SUM, PROD) if isinstance(op, EinSum) else isinstance(op, ScatterAdd)
    return not sums


def _jumps(op: Op) -> bool:
    return isinstance(op, EinSum) and any(map(_has_jump, values(op.join)))


def _has_jump(expr: Expr) -> bool:
    if not isinstance(expr, Call):
        return False
    return (expr.op in _JUMPS and bool(used_args(expr))) or any(map(_has_jump, expr.args))
