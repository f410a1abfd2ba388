"""The types of scalar expressions, and making every conversion in them explicit."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from eindecomp.errors import ExpressionError
from eindecomp.lang.dtypes import (
    BOOL,
    LOW_PRECISION,
    DType,
    Kind,
    ScalarTypes,
    Type,
    concrete,
    dtype,
    fits,
    kind,
    promote,
    to_float,
    to_number,
    to_real,
    widen,
)
from eindecomp.lang.scalar import (
    FUNCTIONS,
    Arg,
    Call,
    Const,
    Expr,
    Function,
    Number,
    ResultKind,
    Scalar,
    Tuple,
    to_text,
)


def type_of(expr: Expr, args: Sequence[Type], scalars: ScalarTypes) -> Type:
    """The type of an expression over inputs and run-time scalars of the given types.

    >>> from eindecomp.lang.scalar import call
    >>> type_of(call("mul", Arg(0), 2.5), [dtype("bfloat16")], {})
    dtype(bfloat16)
    """
    match expr:
        case Arg(index):
            return args[index]
        case Const(value):
            return kind_of_number(value)
        case Scalar(name):
            return kind(scalars[name])
        case Tuple():
            raise ExpressionError(f"{expr} has several values where one is expected")
        case Call():
            return call_type(expr, [type_of(operand, args, scalars) for operand in expr.args])


def call_type(expr: Call, types: list[Type]) -> Type:
    """The type of a function of operands of the given types."""
    function = FUNCTIONS[expr.op]
    result = _result_type(function, types, expr)
    _check_literals(function, expr.args, types, expr)
    return result


def result_type(expr: Expr, args: Sequence[Type], scalars: ScalarTypes) -> DType:
    """The type of a tensor of an expression's values; literals alone get that of their kind."""
    own = type_of(expr, args, scalars)
    if own is Kind.INT:
        _check_fits(expr, own, expr)
    return concrete(own)


def exact_integer(expr: Expr) -> int | None:
    """The value of arithmetic of integer literals alone, which never wraps around.

    >>> from eindecomp.lang.scalar import call
    >>> exact_integer(call("sub", call("pow", 2, 64), 1))
    18446744073709551615
    """
    match expr:
        case Const(int() as value) if not isinstance(value, bool):
            return value
        case Call(op, operands) if op in _EXACT:
            known: list[int] = []
            for operand in operands:
                if (one := exact_integer(operand)) is None:
                    return None
                known.append(one)
            if op == "pow" and known[1] < 0:
                return None
            if op in ("floordiv", "mod") and not known[1]:
                return 0
            if op == "pow" and abs(known[0]) > 1 and known[1] > _MAX_BITS:
                raise ExpressionError(f"{to_text(expr)} does not fit 64 bits")
            value: int = _EXACT[op](*known)
            if value.bit_length() > _MAX_BITS:
                raise ExpressionError(f"{to_text(expr)} does not fit 64 bits")
            return value
        case _:
            return None


_MAX_BITS = 128
_EXACT: Mapping[str, Any] = {
    "min": min,
    "max": max,
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "abs", "pow")},
    **{name: getattr(operator, name) for name in ("floordiv", "mod")},
}
_LOGICAL = ("and", "or", "not")


def kind_of_number(value: Number) -> Kind:
    """The weak type of a literal."""
    match value:
        case bool():
            return Kind.BOOL
        case int():
            return Kind.INT
        case float():
            return Kind.FLOAT
        case complex():
            return Kind.COMPLEX


def with_casts(expr: Expr, args: Sequence[DType], scalars: ScalarTypes) -> tuple[Expr, Type]:
    """Make every conversion explicit, so that any backend computes the same types.

    Low-precision inputs are taken to have been widened to float32 already; a cast to such a type
    rounds and widens again.

    >>> from eindecomp.lang.scalar import call
    >>> types = [dtype("int32"), dtype("float16")]
    >>> print(*with_casts(call("mul", Arg(0), Arg(1)), types, {}))
    float32(x) * y float32
    """
    whole = exact_integer(expr)
    if whole is not None:
        # Beyond all integers it meets floats, or its type would have been refused.
        is_held = -(2**63) <= whole < 2**64
        return (Const(whole), Kind.INT) if is_held else (Const(float(whole)), Kind.FLOAT)
    match expr:
        case Call(op, operands):
            pairs = [with_casts(operand, args, scalars) for operand in operands]
            types = [own for _, own in pairs]
            function = FUNCTIONS[op]
            result = _result_type(function, types, expr)
            wanted = _operand_types(function, types, result)
            if function.result is not ResultKind.CAST:
                pairs = [(_signed(e, w), t) for (e, t), w in zip(pairs, wanted, strict=True)]
            cast = Call(op, tuple(_cast(e, t, w) for (e, t), w in zip(pairs, wanted, strict=True)))
            if result in LOW_PRECISION:
                return Call("float32", (cast,)), dtype("float32")
            return cast, result
        case Arg(index):
            return expr, widen(args[index])
        case _:
            return expr, type_of(expr, (), scalars)


def _result_type(function: Function, types: list[Type], expr: Expr) -> Type:
    if not function.complex and any(kind(each) is Kind.COMPLEX for each in types):
        raise ExpressionError(f"{function.name} is not defined on complex numbers: {to_text(expr)}")
    match function.result:
        case ResultKind.TRUTH:
            return BOOL
        case ResultKind.CAST:
            return dtype(function.name)
        case ResultKind.SELECT:
            return reduce(promote, types[1:])
        case ResultKind.REAL:
            return to_real(types[0])
        case ResultKind.SAME:
            return reduce(promote, types)
        case ResultKind.ARITHMETIC:
            return to_number(reduce(promote, types))
        case ResultKind.FRACTION:
            return to_float(reduce(promote, types))


def _check_literals(
    function: Function, operands: tuple[Expr, ...], types: list[Type], expr: Expr
) -> None:
    """Refuse literals that the integers they meet cannot hold, and integers to negative powers."""
    if function.result in (ResultKind.CAST, ResultKind.REAL) or function.name in _LOGICAL:
        for operand in operands:
            Const(exact_integer(operand) or 0)  # refuses what no type holds
        return
    meet = reduce(promote, types[1:] if function.result is ResultKind.SELECT else types)
    if kind(meet) is not Kind.INT:
        return
    # Intermediate values of literal arithmetic may be large: only its result must fit.
    if exact_integer(expr) is None:
        for operand in operands:
            _check_fits(operand, meet, expr)
    if function.name == "pow" and (exact_integer(operands[1]) or 0) < 0:
        raise ExpressionError(f"an integer to a negative power: {to_text(expr)}; cast it first")


def _check_fits(operand: Expr, meet: Type, expr: Expr) -> None:
    value = exact_integer(operand)
    if value is not None and not fits(value, meet):
        where = "" if operand is expr else f" in {to_text(expr)}"
        raise ExpressionError(f"literal {to_text(operand)} does not fit {concrete(meet)}{where}")


def _operand_types(function: Function, types: list[Type], result: Type) -> list[Type]:
    """The types the operands are brought to before the function is applied."""
    match function.result:
        case ResultKind.TRUTH if function.name in _LOGICAL:
            return [BOOL] * len(types)
        case ResultKind.TRUTH:
            return [reduce(promote, types)] * len(types)
        case ResultKind.SELECT:
            return [BOOL, result, result]
        case ResultKind.CAST | ResultKind.REAL:
            return types
        case _:
            return [result] * len(types)


def _signed(expr: Expr, wanted: Type) -> Expr:
    """An integer scalar that no tensor gives a type: int64, even if it is declared unsigned."""
    return Call("int64", (expr,)) if wanted is Kind.INT and isinstance(expr, Scalar) else expr


def _cast(expr: Expr, given: Type, wanted: Type) -> Expr:
    if isinstance(wanted, Kind):
        if kind(given) == wanted:
            return expr
        to = concrete(wanted)
        return _convert(expr, to) if isinstance(expr, Const) else Call(to.name, (expr,))
    if isinstance(expr, Const):
        return expr if kind(given) == kind(wanted) else _convert(expr, wanted)
    # Strong operands of one function must meet in one type; a weak one gets it by a cast as well,
    # because backends disagree about how literals and scalars promote.
    return expr if given == wanted else Call(wanted.name, (expr,))


def _convert(literal: Const, wanted: DType) -> Expr:
    match kind(wanted):
        case Kind.BOOL:
            return Const(bool(literal.value))
        case Kind.INT if isinstance(literal.value, bool):
            return Const(int(literal.value))
        case Kind.FLOAT if not isinstance(literal.value, complex):
            return Const(float(literal.value))
        case Kind.COMPLEX:
            return Const(complex(literal.value))
        case _:
            return Call(concrete(wanted).name, (literal,))
