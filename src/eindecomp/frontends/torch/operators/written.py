"""Joins written with numbers of a call, and operators that are one join."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.frontends.torch.registry import Number, Operand, Operation
    from eindecomp.frontends.views import View


def number(value: Number) -> str:
    """A number as a join writes it.

    >>> number(-0.5), number(True)
    ('(-0.5)', '(true)')
    """
    return f"({str(value).lower()})"


def register_fractions(joins: Mapping[str, str]) -> None:
    """Register functions of one tensor that yield fractions, of whole numbers too."""
    for name, join in joins.items():

        def imported(op: Operation, x: Operand, join: str = join) -> View:
            return op.fraction(join, x)

        operator(f"aten.{name}")(imported)


def register_maps(joins: Mapping[str, str]) -> None:
    """Register functions of one tensor that keep its kind."""
    for name, join in joins.items():

        def imported(op: Operation, x: Operand, join: str = join) -> View:
            return op.map(join, x)

        operator(f"aten.{name}")(imported)
