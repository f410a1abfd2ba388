"""Derivatives of scalar expressions, by reverse mode over the tree.

For complex values the convention is that of torch and JAX's conjugate: the adjoint of z = a + bi is
∂L/∂a + i·∂L/∂b, so a holomorphic f passes on `adjoint · conj(f')`, and a real operand keeps the
real part of what reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import pi, sqrt

from eindecomp.lang import dtypes
from eindecomp.lang.dtypes import DType, Kind, ScalarTypes, dtype, kind
from eindecomp.lang.scalar import (
    DEFINITIONS,
    Arg,
    Call,
    Const,
    Expr,
    call,
    chain,
    replace_args,
    used_args,
)
from eindecomp.lang.scalar_types import type_of
from eindecomp.lang.simplify import simplify


def pullback(
    expr: Expr, wrt: int, adjoint: Expr, args: Sequence[DType], scalars: ScalarTypes
) -> Expr | None:
    """What reaches input `wrt` when `adjoint` reaches the expression; None if nothing does.

    `adjoint` is an expression over the same inputs, whose types are `args`; inputs beyond those
    that `expr` reads may stand for it.

    >>> square = call("pow", call("sub", Arg(0), Arg(1)), 2)
    >>> print(pullback(square, 1, Const(1.0), [dtype("float64")] * 2, {}))
    -(2 * (x - y))
    """
    walk = _Pullback(wrt, args, scalars)
    slopes = walk.visit(expr, adjoint)
    return chain("add", slopes) if slopes else None


@dataclass(frozen=True, slots=True)
class _Pullback:
    wrt: int
    args: Sequence[DType]
    scalars: ScalarTypes

    def visit(self, node: Expr, adjoint: Expr) -> list[Expr]:
        """The contributions to input `wrt`, one for each of its uses below `node`."""
        if kind(type_of(node, self.args, self.scalars)) < Kind.FLOAT:
            return []
        if self.is_complex(adjoint) and not self.is_complex(node):
            adjoint = call("real", adjoint)
        match node:
            case Arg(self.wrt):
                return [adjoint]
            case Call(op, operands) if op not in RULES and op in DEFINITIONS:
                return self.visit(replace_args(DEFINITIONS[op], operands), adjoint)
            case Call(op, operands):
                parts: list[Expr] = []
                for operand, rule in zip(operands, RULES.get(op, ()), strict=False):
                    if rule is not None and self.wrt in used_args(operand):
                        parts += self.visit(operand, rule(self, adjoint, node))
                return parts
            case _:
                return []

    def is_complex(self, node: Expr) -> bool:
        return kind(type_of(node, self.args, self.scalars)) is Kind.COMPLEX

    def simplified(self, node: Expr) -> Expr:
        return simplify(node, self.args, self.scalars)

    def times(self, adjoint: Expr, slope: Expr) -> Expr:
        slope = call("conj", slope) if self.is_complex(slope) else slope
        return slope if adjoint in (Const(1), Const(1.0)) else call("mul", adjoint, slope)

    def over(self, adjoint: Expr, divisor: Expr) -> Expr:
        divisor = call("conj", divisor) if self.is_complex(divisor) else divisor
        return call("div", adjoint, divisor)


_Rule = Callable[[_Pullback, Expr, Call], Expr]
"""What an operand gets, from the walk, the adjoint of a call and the call."""


def _pass(_walk: _Pullback, adjoint: Expr, _node: Call) -> Expr:
    return adjoint


def _negate(_walk: _Pullback, adjoint: Expr, _node: Call) -> Expr:
    return call("neg", adjoint)


def _base(walk: _Pullback, adjoint: Expr, node: Call) -> Expr:
    x, y = node.args
    if isinstance(y, Const) and y.value == 0:
        return call("mul", adjoint, 0)
    power = walk.simplified(call("pow", x, walk.simplified(call("sub", y, 1))))
    slope = call("mul", y, power)
    # x**0 is flat, also at 0, where its slope would be 0·∞.
    flat = slope if isinstance(y, Const) else call("where", call("eq", y, 0), 0, slope)
    return walk.times(adjoint, flat)


def _exponent(walk: _Pullback, adjoint: Expr, node: Call) -> Expr:
    # 0**y is flat for y > 0, where its logarithm would give 0·(−∞).
    x = node.args[0]
    logarithm = call("log", call("where", call("eq", x, 0), 1, x))
    return walk.times(adjoint, call("mul", node, logarithm))


def _abs(walk: _Pullback, adjoint: Expr, node: Call) -> Expr:
    [x] = node.args
    if not walk.is_complex(x):
        return walk.times(adjoint, call("sign", x))
    return call("mul", adjoint, call("div", x, call("where", call("eq", node, 0), 1, node)))


def _extreme(op: str, mine: int) -> _Rule:
    """max and min: the chosen operand gets the adjoint; at a tie each gets half."""

    def rule(_walk: _Pullback, adjoint: Expr, node: Call) -> Expr:
        x, y = node.args[mine], node.args[1 - mine]
        half = call("where", call("eq", x, y), call("mul", adjoint, 0.5), 0)
        return call("where", call(op, x, y), adjoint, half)

    return rule


def _gelu_slope(_: Expr, x: Expr) -> Expr:
    cdf = call("mul", call("add", call("erf", call("mul", x, sqrt(0.5))), 1), 0.5)
    density = call("mul", call("exp", call("mul", call("mul", x, x), -0.5)), 1 / sqrt(2 * pi))
    return call("add", cdf, call("mul", x, density))


def _silu_slope(_: Expr, x: Expr) -> Expr:
    s = call("sigmoid", x)
    return call("mul", s, call("add", call("mul", x, call("sub", 1, s)), 1))


_SLOPES: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "exp": lambda z, _: z,
    "sin": lambda _, x: call("cos", x),
    "cos": lambda _, x: call("neg", call("sin", x)),
    "tanh": lambda z, _: call("sub", 1, call("mul", z, z)),
    "rsqrt": lambda z, x: call("mul", call("div", z, x), -0.5),
    "erf": lambda _, x: call("mul", call("exp", call("neg", call("mul", x, x))), 2 / sqrt(pi)),
    "sigmoid": lambda z, _: call("mul", z, call("sub", 1, z)),
    "silu": _silu_slope,
    "gelu": _gelu_slope,
}
"""The derivatives of functions of one operand, from their value z and operand x."""


def _by_slope(slope: Callable[[Expr, Expr], Expr]) -> tuple[_Rule]:
    return (lambda w, g, n: w.times(g, slope(n, n.args[0])),)


RULES: Mapping[str, tuple[_Rule | None, ...]] = {
    "add": (_pass, _pass),
    "sub": (_pass, _negate),
    "mul": (lambda w, g, n: w.times(g, n.args[1]), lambda w, g, n: w.times(g, n.args[0])),
    "div": (
        lambda w, g, n: w.over(g, n.args[1]),
        lambda w, g, n: call("neg", w.over(w.times(g, n), n.args[1])),
    ),
    "floordiv": (None, None),
    # x % y = x − y · (x // y), whose quotient is flat.
    "mod": (_pass, lambda w, g, n: call("neg", w.times(g, call("floordiv", *n.args)))),
    "pow": (_base, _exponent),
    "neg": (_negate,),
    "abs": (_abs,),
    "min": (_extreme("lt", 0), _extreme("lt", 1)),
    "max": (_extreme("gt", 0), _extreme("gt", 1)),
    "where": (
        None,
        lambda _, g, n: call("where", n.args[0], g, 0),
        lambda _, g, n: call("where", n.args[0], 0, g),
    ),
    "relu": (lambda _, g, n: call("where", call("gt", n.args[0], 0), g, 0),),
    "log": (lambda w, g, n: w.over(g, n.args[0]),),
    "sqrt": (lambda w, g, n: w.over(call("mul", g, 0.5), n),),
    "real": (_pass,),
    "imag": (lambda w, g, n: call("mul", g, 1j if w.is_complex(n.args[0]) else 0),),
    "conj": (lambda w, g, _: call("conj", g) if w.is_complex(g) else g,),
    **{name: _by_slope(slope) for name, slope in _SLOPES.items()},
    **{name: (_pass,) for name in dtypes.type_names if kind(dtype(name)) >= Kind.FLOAT},
}
"""For each function one rule per operand; None where it is flat or only steers."""
