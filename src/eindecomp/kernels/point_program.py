"""What a loop computes at each point, apart from the loop: join, combination, finish, and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eindecomp.graph.ops import Fill
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import (
    INT64,
    DType,
    Kind,
    ScalarTypes,
    Types,
    concrete,
    dtype,
    kind,
    widen,
)
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM, Monoid
from eindecomp.lang.neutral import safe_combine
from eindecomp.lang.scalar import Expr, Scalar, substitute, used_scalars, values
from eindecomp.lang.scalar_types import result_type, with_casts

# Literals and run-time scalars alone compute as NumPy computes Python's numbers.
WIDE = {
    Kind.BOOL: dtype("bool"),
    Kind.INT: dtype("int64"),
    Kind.FLOAT: dtype("float64"),
    Kind.COMPLEX: dtype("complex128"),
}
UNSIGNED = dtype("uint64")
"""Holds unsigned run-time scalars and large literals, until they meet numbers of another type."""


@dataclass(frozen=True, slots=True)
class PointProgram:
    """The scalar functions of a loop, their conversions explicit.

    `join` reads inputs and gives the values of a state, `combine` two states, `finish` one state.
    """

    join: tuple[Expr, ...]
    state: Types
    combine: tuple[Expr, ...] | None = None
    identity: tuple[Any, ...] = ()
    finish: tuple[Expr, ...] | None = None
    fuses: bool = False
    """Whether a state is a plain sum of floats, whose last multiplication may be fused with it."""


def numbered_program(
    op: EinSum, types: Sequence[DType], scalars: Sequence[tuple[str, DType]]
) -> PointProgram:
    """Like `make_program`, with run-time scalars named s0, s1, … so that no user's name is left."""
    position: dict[Expr, Expr] = {
        Scalar(name): Scalar(f"s{k}") for k, (name, _) in enumerate(scalars)
    }
    join = substitute(op.join, position.get)
    numbered = {f"s{k}": of for k, (_, of) in enumerate(scalars)}
    return make_program(replace(op, join=join), types, numbered)


def held_types(program: PointProgram, finish: object, out: DType) -> Types:
    """The types of partial results: a result's own, if wide enough, where nothing is finished."""
    return (widen(out),) if finish is None and len(program.state) == 1 else program.state


def scalar_type(of: DType) -> DType:
    """The type in which kernels are given a run-time scalar."""
    return UNSIGNED if of.kind == "u" else WIDE[kind(of)]


def make_program(op: EinSum, types: Sequence[DType], scalars: ScalarTypes) -> PointProgram:
    """The program of an EinSum over inputs of the given types, up to its unfinished state."""
    typed = [with_casts(value, types, scalars) for value in values(op.join)]
    join = tuple(expr for expr, _ in typed)
    if op.agg is None:
        return PointProgram(join, (concrete(typed[0][1]),))
    state = tuple(widen(concrete(t)) for t in op.agg.state_types([t for _, t in typed], scalars))
    both = [*state, *state]
    combine = tuple(with_casts(v, both, {})[0] for v in values(safe_combine(op.agg, state)))
    identity = tuple(op.agg.identity_for(state))
    fuses = op.agg == SUM and state[0].kind == "f"
    return PointProgram(join, state, combine, identity, None, fuses)


def finish_of(agg: Monoid, state: Sequence[DType]) -> tuple[Expr, ...] | None:
    """How a state becomes the result; None where it is the result."""
    return None if agg.finish is None else (with_casts(agg.finish, state, {})[0],)


def finish_program(finish: tuple[Expr, ...], state: Sequence[DType]) -> PointProgram:
    """The map from states, given as inputs, to results."""
    kinds = tuple(concrete(with_casts(expr, state, {})[1]) for expr in finish)
    return PointProgram(finish, kinds)


def fill_function(
    op: Fill, types: ScalarTypes, backend: Mapping[str, Callable[..., Any]]
) -> tuple[Callable[..., Any], tuple[str, ...], DType]:
    """The function of indices, then run-time scalars; which scalars; and the result's type."""
    indices = [INT64] * len(op.output)
    explicit, _ = with_casts(op.value, indices, types)
    names = used_scalars(explicit)
    function = compile_scalar(explicit, len(indices), backend, names)
    return function, names, result_type(op.value, indices, types)
