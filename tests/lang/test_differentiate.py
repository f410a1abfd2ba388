"""Derivatives of scalar expressions."""

import math

import numpy as np
import pytest
from hypothesis import given

from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.differentiate import RULES, pullback
from eindecomp.lang.dtypes import dtype
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.scalar import DEFINITIONS, FUNCTIONS, Arg, Call, Const, Expr
from eindecomp.lang.scalar_types import with_casts
from eindecomp.lang.simplify import simplify
from eindecomp.lang.text.resolve import parse_join
from strategies import SMOOTH, exprs


def derivative(expr: Expr, wrt: int) -> Expr:
    """The derivative of an expression over two real inputs by one of them."""
    real = [dtype("float64")] * 2
    slope = pullback(expr, wrt, Const(1.0), real, {})
    return Const(0.0) if slope is None else simplify(slope, real, {})


def value(expr: Expr, x: float, y: float) -> float:
    explicit, _ = with_casts(expr, [dtype("float64")] * 2, {})
    with np.errstate(all="ignore"):
        return float(compile_scalar(explicit, 2, NUMPY)(np.float64(x), np.float64(y)))


def slope(expr: Expr, x: float, y: float) -> float:
    step = 1e-6
    return (value(expr, x + step, y) - value(expr, x - step, y)) / (2 * step)


@given(exprs(2, SMOOTH))
def test_against_finite_differences(expr: Expr) -> None:
    found = value(derivative(expr, 0), 0.3, -0.7)
    expected = slope(expr, 0.3, -0.7)
    assert math.isclose(found, expected, rel_tol=1e-4, abs_tol=1e-5)


STEPS = {"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "sign", "imag"}


# Complex values are compared with torch's in the graph's tests.
REAL = sorted(name for name in FUNCTIONS if "complex" not in name)


@pytest.mark.parametrize("name", REAL)
def test_every_function_has_its_derivative(name: str) -> None:
    function = FUNCTIONS[name]
    is_flat = name in STEPS or (function.result.name == "CAST" and "float" not in name)
    args = (Arg(0), Arg(1), Arg(1))[: function.arity]
    if name == "where":
        args = (Call("gt", (Arg(0), Arg(1))), Arg(0), Arg(1))
    expr = Call(name, args)
    found = value(derivative(expr, 0), 0.6, 0.4)
    expected = 0.0 if is_flat else 1.0 if "float" in name else slope(expr, 0.6, 0.4)
    assert math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-7)
    if function.arity == 1:  # a branch that is not taken may not spoil the one that is
        for x in (-800.0, -50.0, 50.0, 800.0):
            with np.errstate(all="ignore"):
                if math.isfinite(value(expr, x, 0.4)):
                    assert not math.isnan(value(derivative(expr, 0), x, 0.4)), x


@pytest.mark.parametrize("name", DEFINITIONS)
def test_without_a_rule_the_definition_is_differentiated(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expr = Call(name, (Call("mul", (Arg(0), Arg(1))),))
    by_rule = value(derivative(expr, 0), 0.6, 0.4)
    others = {other: rules for other, rules in RULES.items() if other != name}
    monkeypatch.setattr("eindecomp.lang.differentiate.RULES", others)
    assert math.isclose(value(derivative(expr, 0), 0.6, 0.4), by_rule, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("text", "by_x"),
    [
        ("(x - y)**2", "2 * (x - y)"),
        ("x * y", "y"),
        ("y", "0.0"),
        ("max(x, y)", "where(x > y, 1.0, where(x == y, 0.5, 0))"),
    ],
)
def test_forms(text: str, by_x: str) -> None:
    assert str(derivative(parse_join(text, 2), 0)) == by_x


def test_zero_to_a_power_is_flat() -> None:
    assert value(derivative(parse_join("x**y", 2), 1), 0.0, 2.0) == 0.0
