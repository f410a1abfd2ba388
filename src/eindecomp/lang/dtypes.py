"""The element types of tensors: names, kinds, promotion and accumulation.

Promotion follows torch and JAX rather than NumPy: a value of a higher kind (bool < integer < float
< complex) decides the type, so `int32 + float32` stays float32. Literals and run-time scalars are
weak: they contribute their kind but never widen a tensor of the same kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import ml_dtypes
import numpy as np

from eindecomp.errors import ExpressionError, suggest

type_names = (
    "bool",
    "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip

Array = np.ndarray[Any, Any]
DType = np.dtype[np.generic]

BFLOAT16: DType = np.dtype(ml_dtypes.bfloat16)
_BY_NAME: dict[str, DType] = {
    name: np.dtype(name) for name in type_names
}  # which ml_dtypes adds to
BOOL = _BY_NAME["bool"]
INT64 = _BY_NAME["int64"]
FLOAT32 = _BY_NAME["float32"]
COMPLEX64 = _BY_NAME["complex64"]
LOW_PRECISION = frozenset({_BY_NAME["float16"], BFLOAT16})


class Kind(IntEnum):
    """What sort of number a type holds; used alone it is the weak type of a literal."""

    BOOL = 0
    INT = 1
    FLOAT = 2
    COMPLEX = 3


_LETTERS = {"b": Kind.BOOL, "i": Kind.INT, "u": Kind.INT, "f": Kind.FLOAT, "c": Kind.COMPLEX}
_KIND = {t: Kind.FLOAT if t == BFLOAT16 else _LETTERS[t.kind] for t in _BY_NAME.values()}

Types = tuple[DType, ...]
ScalarValues = Mapping[str, Any]
"""The values of run-time scalars, by name."""
ScalarTypes = Mapping[str, DType]
"""The types of run-time scalars, by name."""
ScalarItems = tuple[tuple[str, DType], ...]
"""The same as a part of keys."""
Type = DType | Kind
"""The type of a scalar expression: a dtype, or the weak kind of literals alone."""


def dtype(given: object) -> DType:
    """Read a dtype from a name, a NumPy dtype or a scalar type.

    >>> dtype("bfloat16"), dtype(np.float32)
    (dtype(bfloat16), dtype('float32'))
    """
    if isinstance(given, str):
        if given in _BY_NAME:
            return _BY_NAME[given]
        raise ExpressionError(f"unknown dtype {given!r}{suggest(given, type_names)}")
    if given is None:
        raise ExpressionError("None is not a dtype")
    try:
        read: DType = np.dtype(given)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]
    except TypeError:
        raise ExpressionError(f"{given!r} is not a dtype") from None
    if read.name not in _BY_NAME:
        raise ExpressionError(f"dtype {read.name} is not supported; use one of {type_names}")
    return _BY_NAME[read.name]


def kind(of: Type) -> Kind:
    """Say what sort of number a type holds.

    >>> kind(dtype("uint8")).name
    'INT'
    """
    return of if isinstance(of, Kind) else _KIND[of]


def concrete(of: Type) -> DType:
    """Turn a weak kind into the dtype that a tensor of such literals has."""
    if not isinstance(of, Kind):
        return of
    return {Kind.BOOL: BOOL, Kind.INT: INT64, Kind.FLOAT: FLOAT32, Kind.COMPLEX: COMPLEX64}[of]


def fits(value: int, of: Type) -> bool:
    """Whether an integer type holds a value.

    >>> fits(200, dtype("uint8")), fits(200, dtype("int8"))
    (True, False)
    """
    limits = np.iinfo(concrete(of).name)
    return int(limits.min) <= value <= int(limits.max)


def promote(a: Type, b: Type) -> Type:
    """Find the type that holds both.

    >>> promote(dtype("int32"), dtype("float16")), promote(dtype("float32"), Kind.FLOAT)
    (dtype('float16'), dtype('float32'))
    >>> promote(dtype("float16"), dtype("bfloat16")), promote(dtype("float64"), Kind.COMPLEX)
    (dtype('float32'), dtype('complex128'))
    """
    low, high = sorted((a, b), key=kind)
    if isinstance(low, Kind) and isinstance(high, Kind):
        return high
    if kind(low) == kind(high):
        return _promote_same_kind(low, high)
    if kind(high) == Kind.COMPLEX and low == np.float64:
        return _BY_NAME["complex128"]
    return concrete(high)


def _promote_same_kind(a: Type, b: Type) -> DType:
    if isinstance(a, Kind):
        a = b
    if isinstance(b, Kind):
        b = a
    a, b = concrete(a), concrete(b)
    if a == b:
        return a
    if kind(a) == Kind.FLOAT and LOW_PRECISION.issuperset({a, b}):
        return FLOAT32
    both = np.promote_types(a, b)
    if kind(both) != kind(a):
        raise ExpressionError(f"no integer type holds both {a} and {b}; cast one of them")
    return both


def to_float(of: Type) -> Type:
    """Give the type of a function that yields fractions, such as exp or a quotient."""
    if kind(of) >= Kind.FLOAT:
        return of
    return Kind.FLOAT if isinstance(of, Kind) else FLOAT32


def to_number(of: Type) -> Type:
    """Give the type of arithmetic on a value: truth values count as integers."""
    if kind(of) > Kind.BOOL:
        return of
    return Kind.INT if isinstance(of, Kind) else INT64


def to_real(of: Type) -> Type:
    """Give the type of the parts of a number."""
    if kind(of) < Kind.COMPLEX:
        return of
    if isinstance(of, Kind):
        return Kind.FLOAT
    return np.dtype("float64") if of == np.complex128 else FLOAT32


def widen(of: DType) -> DType:
    """Give the type that computes and accumulates for `of`: float32 for low-precision floats."""
    return FLOAT32 if of in LOW_PRECISION else of
