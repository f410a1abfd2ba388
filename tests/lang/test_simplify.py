"""Simplifying keeps value and type, also for NaN and infinities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.errors import ExpressionError
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import dtype, type_names
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.scalar import FUNCTIONS, Arg, Call, Expr, size_of
from eindecomp.lang.scalar_types import type_of, with_casts
from eindecomp.lang.simplify import simplify
from eindecomp.lang.text.resolve import parse_join
from strategies import exprs

FIXTURES = [
    ("x - 0", "x"), ("x + 0", "x + 0"), ("0 - x", "0 - x"), ("x * 1", "x"), ("1.0 * x", "x"),
    ("x / 1", "x"), ("x * -1", "-x"), ("x**1", "x"), ("--x", "x"), ("sqrt(64)", "8.0"),
    ("2 * 3 + x", "6 + x"), ("where(true, x, y)", "x"), ("where(x > 0, y, y)", "y"),
    ("relu(relu(x))", "relu(x)"), ("float16(float16(x))", "float16(x)"),
    ("x * 0", "x * 0"), ("x - x", "x - x"), ("x / x", "x / x"),
    ("4611686018427387904 * 4", "4611686018427387904 * 4"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), FIXTURES)
def test_fixtures(before: str, after: str) -> None:
    assert simplify(parse_join(before, 2)) == parse_join(after, 2)


@pytest.mark.parametrize(
    ("text", "kept"), [("x * 1.0", "int32"), ("x + 0", "bool"), ("x * 1", "bool")]
)
def test_what_would_change_the_type_stays(text: str, kept: str) -> None:
    expr = parse_join(text, 1)
    assert simplify(expr, [dtype(kept)]) == expr


@given(exprs(2), st.sampled_from(["float32", "float64", "int32", "bool"]))
def test_value_and_type_stay(expr: Expr, name: str) -> None:
    types = [dtype(name)] * 2
    values = [0, 1, 1, 1, 0] if name == "bool" else [0, 1, -1, 2, 3]
    x = np.array(values).astype(name)
    y = x[::-1].copy()
    if name.startswith("float"):
        x[-1], y[0] = np.nan, np.inf
    try:
        found_type = type_of(expr, types, {})
    except ExpressionError:  # uint64 with int64
        return
    simple = simplify(expr, types)
    assert type_of(simple, types, {}) == found_type
    assert size_of(simple) <= size_of(expr)
    with np.errstate(all="ignore"):
        try:
            before = compile_scalar(with_casts(expr, types, {})[0], 2, NUMPY)(x, y)
        except ValueError:  # an integer to a negative power
            return
        after = compile_scalar(with_casts(simple, types, {})[0], 2, NUMPY)(x, y)
    # Literals fold in double precision, which the unfolded expression may not have had.
    np.testing.assert_allclose(
        np.asarray(after, complex), np.asarray(before, complex), rtol=1e-3, atol=1e-3
    )


def test_only_what_repeats_without_effect_is_dropped() -> None:
    unary = [name for name, function in FUNCTIONS.items() if function.arity == 1]
    repeated = {name: Call(name, (Call(name, (Arg(0),)),)) for name in unary}
    dropped = {name for name, expr in repeated.items() if simplify(expr) != expr}
    assert dropped <= {"abs", "relu", "sign", "real", "neg", "not", "conj", *type_names}
