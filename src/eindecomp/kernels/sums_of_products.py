"""Sums of products: which terms are multiplied, and what their sum is multiplied by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eindecomp.kernels.point_program import PointProgram
from eindecomp.lang.dtypes import LOW_PRECISION, DType
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, Call, Const, Expr, call, used_args

_ZERO = (Const(0), Const(0.0), Const(-0.0))
"""Divisors that stay in the join: the sum of 1/0 and -1/0 is not infinite."""


@dataclass(frozen=True, slots=True)
class Term:
    """A function of some inputs, one of which has all of their labels."""

    expr: Expr
    args: tuple[int, ...]
    labels: Labels

    @property
    def is_input(self) -> bool:
        """Whether it is an input as it is."""
        return isinstance(self.expr, Arg)


@dataclass(frozen=True, slots=True)
class SumOfProducts:
    """Terms that are multiplied and summed, and what the sum is multiplied by."""

    terms: tuple[Term, ...]
    factors: tuple[Expr, ...]

    @property
    def labels(self) -> set[str]:
        """The labels of all terms."""
        return {label for term in self.terms for label in term.labels}


def product_of(op: EinSum, program: PointProgram, types: Sequence[DType]) -> SumOfProducts | None:
    """The product that an EinSum sums; None if it sums none, or none that can be taken apart.

    A term that runs over the labels of several inputs is as large as the product itself, so that
    nothing would be gained.
    """
    if op.agg != SUM or not op.aggregated:
        return None
    terms: list[Term] = []
    factors: list[Expr] = []
    for expr in _multiplied(program.join[0], types):
        args = used_args(expr)
        if not args:
            factors.append(expr)
            continue
        labels = max((tuple(dict.fromkeys(op.inputs[k])) for k in args), key=len)
        if any(not set(op.inputs[k]) <= set(labels) for k in args):
            return None
        terms.append(Term(expr, args, labels))
    return SumOfProducts(tuple(terms), tuple(factors)) if len(terms) > 1 else None


def _multiplied(expr: Expr, types: Sequence[DType]) -> list[Expr]:
    match expr:
        case Call("mul", (left, right)):
            return [*_multiplied(left, types), *_multiplied(right, types)]
        case Call("div", (left, right)) if not used_args(right) and right not in _ZERO:
            return [*_multiplied(left, types), call("div", 1.0, right)]
        case Call("neg", (inner,)) if used_args(inner):
            return [*_multiplied(inner, types), Const(-1)]
        case Call("float32", (Arg(index) as arg,)) if types[index] in LOW_PRECISION:
            return [arg]  # sums are in float32 in any case
        case _:
            return [expr]
