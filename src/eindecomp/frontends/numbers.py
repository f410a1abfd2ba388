"""Numbers that stand for whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.lang.dtypes import Kind, concrete, kind
from eindecomp.lang.monoid import BUILTIN
from eindecomp.lang.scalar import Const, Expr, call
from eindecomp.lang.scalar_types import kind_of_number

if TYPE_CHECKING:
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.scalar import Number


def cast_number(value: Number, dtype: DType) -> Number:
    """A number as a type of a kind holds it: an int for integers, and so on."""
    match kind(dtype):
        case Kind.BOOL:
            return bool(value)
        case Kind.INT:
            return int(value.real) if isinstance(value, complex) else int(value)
        case Kind.FLOAT:
            return float(value.real) if isinstance(value, complex) else float(value)
        case Kind.COMPLEX:
            return complex(value)


def weak_number(value: Number, dtype: DType) -> Const:
    """A number in an expression that other operands give a type."""
    return Const(cast_number(value, dtype))


def typed_number(value: Number, dtype: DType) -> Expr:
    """A number in an expression, of just this type."""
    number = weak_number(value, dtype)
    own = concrete(kind_of_number(number.value))
    return number if own == dtype else call(dtype.name, number)


def neutral(agg: str, dtype: DType) -> Number:
    """The number of a type that changes no aggregate.

    >>> import numpy as np
    >>> neutral("max", np.dtype("int8")), neutral("min", np.dtype("float32"))
    (-128, inf)
    """
    return BUILTIN[agg].identity_for([dtype])[0].item()
