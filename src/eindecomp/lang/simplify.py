"""Simplifying scalar expressions without changing their value or type.

Rules that hold only for finite numbers (`x*0 → 0`, `x - x → 0`) are left out: NaN and ∞ pass
through.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from eindecomp.errors import ExpressionError
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import (
    FLOAT32,
    LOW_PRECISION,
    DType,
    Kind,
    ScalarItems,
    ScalarTypes,
    Type,
    Types,
    concrete,
    kind,
    type_names,
)
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.scalar import (
    FUNCTIONS,
    Call,
    Const,
    Expr,
    ResultKind,
    Tuple,
    used_args,
    used_scalars,
)
from eindecomp.lang.scalar_types import call_type, exact_integer, type_of, with_casts


def simplify(
    expr: Expr, args: Sequence[DType] | None = None, scalars: ScalarTypes | None = None
) -> Expr:
    """Fold literals and drop operations that do nothing, for inputs of the given types (float32).

    >>> from eindecomp.lang.scalar import Arg, call
    >>> print(simplify(call("div", call("mul", Arg(0), 1), call("sqrt", 64))))
    x / 8.0
    """
    if args is None:
        args = [FLOAT32] * (1 + max(used_args(expr), default=-1))
    known = scalars or {}
    used = tuple((name, known[name]) for name in used_scalars(expr) if name in known)
    return _simplified(expr, tuple(args), used)


# Models repeat the same joins in every layer.
@lru_cache(maxsize=2**12)
def _simplified(expr: Expr, args: Types, scalars: ScalarItems) -> Expr:
    if isinstance(expr, Tuple):
        return Tuple(tuple(_simplified(item, args, scalars) for item in expr.items))
    return _simplify(expr, args, dict(scalars))[0] if isinstance(expr, Call) else expr


def _simplify(expr: Expr, args: Sequence[DType], scalars: ScalarTypes) -> tuple[Expr, Type | None]:
    """The expression and its type, which is found once for every operation; None if it has none."""
    if not isinstance(expr, Call):
        return expr, type_of(expr, args, scalars)
    parts = [_simplify(operand, args, scalars) for operand in expr.args]
    types = [own for _, own in parts if own is not None]
    before = Call(expr.op, tuple(part for part, _ in parts))
    try:
        if len(types) < len(parts):
            return expr, None
        result = call_type(before, types)
    except ExpressionError:  # a folded literal need not fit where the computation did
        return expr, _type_if_any(expr, args, scalars)
    after = _fold(before) if _is_literal(before) else _drop(before)
    # A value of low precision is computed in float32: there a cast to its type rounds it.
    is_cast = FUNCTIONS[expr.op].result is ResultKind.CAST and result not in LOW_PRECISION
    if is_cast and result == types[0]:
        after = before.args[0]  # it is of that type already
    # Adding 0 turns −0.0 into 0.0, and 0 − x is 0.0 where −x is −0.0.
    is_signed = kind(result) >= Kind.FLOAT and _adds_zero(before)
    if after is before or is_signed or type_of(after, args, scalars) != result:
        return before, result
    return after, result


def _type_if_any(expr: Expr, args: Sequence[DType], scalars: ScalarTypes) -> Type | None:
    try:
        return type_of(expr, args, scalars)
    except ExpressionError:
        return None


def _is_literal(call: Call) -> bool:
    return all(isinstance(arg, Const) for arg in call.args)


def _fold(call: Call) -> Expr:
    """The value of a function of literals, where its type is the literal's own weak one."""
    own = type_of(call, (), {})
    if not isinstance(own, Kind) and concrete(kind(own)) != own:
        return call
    whole = exact_integer(call)
    if whole is not None:
        return Const(whole) if -(2**63) <= whole < 2**64 else call
    explicit, _ = with_casts(call, (), {})
    with np.errstate(all="ignore"):
        try:
            value = np.asarray(compile_scalar(explicit, 0, NUMPY)()).item()
        except ValueError:  # an integer to a negative power
            return call
    # Past 2^53 NumPy's wrapping integers and exact ones may disagree: leave those to the backend.
    is_large = isinstance(value, int) and abs(value) >= 2**53
    given = [arg.value for arg in call.args if isinstance(arg, Const)]
    is_large |= any(isinstance(each, int) and abs(each) >= 2**26 for each in given)
    return call if is_large else Const(value)


def _drop(call: Call) -> Expr:
    """The same value with less to do; a literal counts as one under a cast as well."""
    match Call(call.op, tuple(_without_cast(arg) for arg in call.args)):
        case Call("add" | "sub", (x, Const(value))) if _is(value, 0):
            return x
        case Call("add", (Const(value), x)) if _is(value, 0):
            return x
        case Call("sub", (Const(value), x)) if _is(value, 0):
            return Call("neg", (x,))
        case Call("mul" | "div" | "pow", (x, Const(value))) if _is(value, 1):
            return x
        case Call("mul", (Const(value), x)) if _is(value, 1):
            return x
        case Call("mul" | "div", (x, Const(value))) | Call("mul", (Const(value), x)) if _is(
            value, -1
        ):
            return Call("neg", (x,))
        case _:
            return _drop_repeated(call)


def _without_cast(arg: Expr) -> Expr:
    match arg:
        case Call(op, (Const() as literal,)) if FUNCTIONS[op].result is ResultKind.CAST:
            return literal
        case _:
            return arg


def _drop_repeated(call: Call) -> Expr:
    match call:
        case Call("neg" | "conj" as op, (Call(inner, (x,)),)) if op == inner:
            return x
        case Call("not", (Call("not", (x,)),)):
            return x
        case Call("and", (Const(value), x) | (x, Const(value))):
            return x if value else Const(False)
        case Call("or", (Const(value), x) | (x, Const(value))):
            return Const(True) if value else x
        case Call("bool", (Call("where", (x, Const(True), Const(False))),)):
            return x
        case Call("where", (_, x, y)) if x == y:
            return x
        case Call("where", (Const(value), x, y)):
            return x if value else y
        case Call(op, (Call(inner, _) as x,)) if op == inner and op in _IDEMPOTENT:
            return x
        case _:
            return call


_IDEMPOTENT = frozenset({"abs", "relu", "sign", "real", *type_names} - {"bool"})


def _adds_zero(call: Call) -> bool:
    match call:
        case Call("add", (Const(), _) | (_, Const())) | Call("sub", (Const(), _)):
            return not _is_literal(call)
        case _:
            return False


def _is(value: object, number: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == number
