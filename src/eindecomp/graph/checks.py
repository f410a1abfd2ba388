"""Checking what Python callers pass, so that a mistake gets a message instead of a stack trace."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from eindecomp.errors import GraphError
from eindecomp.lang.einsum import product
from eindecomp.lang.scalar import Arg, Call, Const, Expr, Scalar, Tuple
from eindecomp.lang.text.resolve import parse_expr, parse_join

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

T = TypeVar("T")


def expect(value: object, kinds: type[T] | tuple[type[T], ...], what: str) -> T:
    """Return `value` if it is of the right kind.

    >>> expect(5, str, "a name")
    Traceback (most recent call last):
    eindecomp.errors.GraphError: expected a name, got 5
    """
    if not isinstance(value, kinds):
        raise GraphError(f"expected {what}, got {value!r}")
    return value


def whole_number(value: object, what: str) -> int:
    """Return `value` as an int if it is one, NumPy's included."""
    if isinstance(value, bool):
        raise GraphError(f"{what} must be a whole number, got {value!r}")
    try:
        return index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise GraphError(f"{what} must be a whole number, got {value!r}") from None


def label_map(given: object) -> dict[str, int]:
    """Return sizes as a dict from labels to whole numbers."""
    if not isinstance(given, Mapping):
        raise GraphError(f"sizes must map labels to whole numbers, got {given!r}")
    found: dict[str, int] = {}
    for label, size in given.items():  # pyright: ignore[reportUnknownVariableType]
        name = expect(label, str, "a label")  # pyright: ignore[reportUnknownArgumentType]
        found[name] = whole_number(size, f"the size of {name!r}")  # pyright: ignore[reportUnknownArgumentType]
    return found


def join_of(given: object, arity: int, labels: Sequence[str], scalars: Container[str]) -> Expr:
    """Return a join from a string, an expression, or None for the product of all inputs.

    A label in a string stands for its own number, which comes as an input after the others.
    """
    match given:
        case None:
            return product(arity)
        case str():
            return parse_join(given, arity, scalars, labels)
        case Arg() | Const() | Scalar() | Call() | Tuple():
            return given
        case _:
            raise GraphError(f"expected a join, got {given!r}")


def fill_value(given: object, labels: Iterable[str], scalars: Container[str]) -> Expr:
    """Return the value of a fill from a string over its labels, an expression or a number."""
    match given:
        case str():
            return parse_expr(given, labels, scalars, "fill")
        case bool() | int() | float() | complex():
            return Const(given)
        case Arg() | Const() | Scalar() | Call() | Tuple():
            return given
        case _:
            raise GraphError(f"expected the value of a fill, got {given!r}")


def window(given: object, label: str) -> tuple[int, int] | int:
    """Return a range as a start and a stop, or one index."""
    match given:
        case int() | np.integer():  # pyright: ignore[reportUnknownVariableType]
            return whole_number(given, f"the index of {label!r}")
        case (start, stop):  # pyright: ignore[reportUnknownVariableType]
            what = f"an end of the range of {label!r}"
            return whole_number(start, what), whole_number(stop, what)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            raise GraphError(
                f"a range must be a start and a stop, or one index, but {label!r} has {given!r}"
            )
