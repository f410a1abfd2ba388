"""Monoids as text: making one from strings, and writing one as a declaration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eindecomp.errors import ExpressionError
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.scalar import Const, Number, from_values, to_text
from eindecomp.lang.text.resolve import parse_expr


def monoid(
    name: str,
    combine: str,
    identity: Number | Sequence[Number],
    finish: str | None = None,
    grad: str | None = None,
) -> Monoid:
    """Define an aggregation of your own, to be passed as `agg`.

    Over one value the states are `x` and `y`; over k values `x0, …` and `y0, …`.

    Args:
        name: What it is called, such as `"hypot"`.
        combine: The combined state, such as `"sqrt(x**2 + y**2)"`.
        identity: The neutral state, such as `0` or `(0, 0)`.
        finish: The result, of the final state under the left names, such as `"x0 / x1"`.
        grad: ∂result/∂value for each value, such as `"x / result"`: its left names are a joined
            value, its right ones the final state, and `result` is the result.

    Raises:
        ExpressionError: It is not well formed, or no commutative monoid.

    Examples:
        >>> hypot = monoid("hypot", "sqrt(x**2 + y**2)", identity=0, grad="x / result")
        >>> print(declaration(hypot))
        monoid hypot(x; y) = sqrt(x**2 + y**2) identity 0 grad x / result
    """
    neutral = tuple(Const(value) for value in _as_tuple(identity))
    names = _names(len(neutral))
    return Monoid(
        name,
        parse_expr(combine, names, what=f"combine of {name}"),
        neutral,
        None if finish is None else parse_expr(finish, names, what=f"finish of {name}"),
        None if grad is None else parse_expr(grad, [*names, "result"], what=f"grad of {name}"),
    )


def declaration(monoid: Monoid) -> str:
    """Write a monoid as a `monoid` declaration of the text syntax."""
    k = monoid.width
    names = _names(k)
    text = (
        f"monoid {monoid.base_name}({', '.join(names[:k])}; {', '.join(names[k:])}) = "
        f"{to_text(monoid.combine, names)} identity {to_text(from_values(monoid.identity))}"
    )
    # A selected field is part of the name that a statement uses, not of the declaration.
    if monoid.finish is not None and monoid.name == monoid.base_name:
        text += f" finish {to_text(monoid.finish, names)}"
    if monoid.rule is not None:
        text += f" grad {to_text(monoid.rule, [*names, 'result'])}"
    return text


def _names(width: int) -> list[str]:
    if width == 1:
        return ["x", "y"]
    return [f"{side}{k}" for side in "xy" for k in range(width)]


def _as_tuple(identity: Number | Sequence[Number]) -> tuple[Number, ...]:
    items = identity if isinstance(identity, Sequence) else (identity,)
    return tuple(_number(item) for item in items)


def _number(item: object) -> Number:
    if not isinstance(item, Number | np.number | np.bool_):
        raise ExpressionError(f"an identity must consist of numbers, got {item!r}")
    return np.asarray(item).item()
