"""Joins that multiply: which functions of inputs they multiply, and by which constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.lang.dtypes import LOW_PRECISION
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, Call, Const, Expr, call, used_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.kernels.point_program import PointProgram
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum, Labels


_ZERO = (Const(0), Const(0.0), Const(-0.0))
"""What no sum is divided by: of 1/0 and -1/0 it is not infinite."""


@dataclass(frozen=True, slots=True)
class Term:
    """A function of some inputs that one of these has all labels of."""

    expr: Expr
    args: tuple[int, ...]
    labels: Labels

    @property
    def is_input(self) -> bool:
        """Whether it is an input as it is."""
        return isinstance(self.expr, Arg)


@dataclass(frozen=True, slots=True)
class Product:
    """Terms that are multiplied and summed, and what the sum is multiplied by."""

    terms: tuple[Term, ...]
    factors: tuple[Expr, ...]

    @property
    def labels(self) -> set[str]:
        """The labels of all terms."""
        return {label for term in self.terms for label in term.labels}


def product_of(op: EinSum, program: PointProgram, types: Sequence[DType]) -> Product | None:
    """The product that an EinSum sums, if it does and the product can be taken apart.

    A term that runs over labels of several inputs is as large as what it would be multiplied with,
    and nothing is gained.
    """
    if op.agg != SUM or not op.aggregated:
        return None
    terms: list[Term] = []
    factors: list[Expr] = []
    for expr in (_without_widening(e, types) for e in _multiplied(program.join[0])):
        args = used_args(expr)
        if not args:
            factors.append(expr)
            continue
        labels = max((tuple(dict.fromkeys(op.inputs[k])) for k in args), key=len)
        if any(not set(op.inputs[k]) <= set(labels) for k in args):
            return None
        terms.append(Term(expr, args, labels))
    return Product(tuple(terms), tuple(factors)) if len(terms) > 1 else None


def _multiplied(expr: Expr) -> list[Expr]:
    match expr:
        case Call("mul", (left, right)):
            return [*_multiplied(left), *_multiplied(right)]
        case Call("div", (left, right)) if not used_args(right) and right not in _ZERO:
            return [*_multiplied(left), call("div", 1.0, right)]
        case Call("neg", (inner,)) if used_args(inner):
            return [*_multiplied(inner), Const(-1)]
        case _:
            return [expr]


def _without_widening(expr: Expr, types: Sequence[DType]) -> Expr:
    """A low-precision input itself where the join asks for it in float32: sums are in that."""
    match expr:
        case Call("float32", (Arg(index) as arg,)) if types[index] in LOW_PRECISION:
            return arg
        case _:
            return expr
