"""Which functions partial results pass through, by the types of what they read."""

from __future__ import annotations

import numpy as np
import pytest

from eindecomp.lang.dtypes import dtype
from eindecomp.lang.homomorphism import carried, parts_of_join
from eindecomp.lang.monoid import MAX, MIN, PROD, SUM, monoid
from eindecomp.lang.scalar import Arg, Const, call

X, Y = Arg(0), Arg(1)
TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int64", "complex64")
JOINS = {
    "x + y": call("add", X, Y),
    "x - y": call("sub", X, Y),
    "-x": call("neg", X),
    "x * y": call("mul", X, Y),
    "x / y": call("div", X, Y),
    "x / 2": call("div", X, Const(2)),
    "2 * x": call("mul", Const(2), X),
    "0.5 * x": call("mul", Const(0.5), X),
    "max(x, y)": call("max", X, Y),
    "min(x, y)": call("min", X, Y),
    "float32(x)": call("float32", X),
    "float64(x)": call("float64", X),
    "int32(x)": call("int32", X),
    "where(y > 0, x, 0)": call("where", call("gt", Y, Const(0)), X, Const(0)),
    "exp(x)": call("exp", X),
    "x**2": call("pow", X, Const(2)),
}
WHOLE = {
    SUM: {"x + y", "x - y", "-x", "x * y", "2 * x", "where(y > 0, x, 0)"},
    PROD: {"x * y", "x**2"},
    MAX: {"max(x, y)", "min(x, y)", "where(y > 0, x, 0)"},
    MIN: {"max(x, y)", "min(x, y)", "where(y > 0, x, 0)"},
}


@pytest.mark.parametrize("agg", [SUM, PROD, MAX, MIN], ids=lambda agg: agg.name)
@pytest.mark.parametrize("of", ["int8", "uint8", "int64"])
def test_whole_numbers_wrap_around(of, agg):
    passed = {name for name, join in JOINS.items() if parts_of_join(join, agg, (dtype(of),) * 2)}
    assert passed == WHOLE[agg]


@pytest.mark.parametrize(
    ("of", "to", "passes"),
    [
        ("float32", "float64", True), ("float64", "float32", False), ("float32", "bfloat16", True),
        ("bfloat16", "float16", True), ("float64", "bfloat16", False), ("float32", "int32", False),
        ("int64", "float64", False), ("float32", "complex64", True),
        ("float64", "complex64", False),
    ],
)  # fmt: skip
def test_no_part_is_rounded_before_it_is_combined(of, to, passes):
    found = carried(call(to, X), frozenset({0}), SUM, (dtype(of),))
    assert found == (SUM if passes else None)


@pytest.mark.parametrize("agg", [SUM, PROD, MAX, MIN], ids=lambda agg: agg.name)
@pytest.mark.parametrize("of", ["uint8", "float64"])
def test_what_passes_is_a_homomorphism(of, agg):
    """On numbers for which floats are exact and small whole numbers wrap around."""
    rng = np.random.default_rng(0)
    function = {SUM: np.add, PROD: np.multiply, MAX: np.maximum, MIN: np.minimum}
    values = rng.integers(1, 9 if of == "float64" else 250, (4, 50)).astype(of)
    x, x2, y, y2 = values
    for name, join in JOINS.items():
        for parts in parts_of_join(join, agg, (dtype(of),) * 2):
            left, right = (
                (x, y),
                tuple(b if k in parts else a for k, (a, b) in enumerate(((x, x2), (y, y2)))),
            )
            both = tuple(
                function[agg](a, b) if k in parts else a
                for k, (a, b) in enumerate(((x, x2), (y, y2)))
            )
            made = carried(join, parts, agg, (dtype(of),) * 2)
            wanted = function[made](applied(name, *left), applied(name, *right))
            np.testing.assert_allclose(
                applied(name, *both), wanted, 1e-12, err_msg=f"{name} {parts}"
            )


def applied(name, x, y):
    """What an expression gives in NumPy."""
    known = {"where": np.where, "max": np.maximum, "min": np.minimum, "exp": np.exp}
    kinds = {of: getattr(np, of) for of in ("float32", "float64", "int32")}
    return np.asarray(eval(name, known | kinds, {"x": x, "y": y}))  # noqa: S307 - our own texts


def test_a_monoid_of_ones_own_passes_only_through_itself():
    own = monoid("hypot", "sqrt(x**2 + y**2)", 0)
    both = call("sqrt", call("add", call("pow", X, Const(2)), call("pow", Y, Const(2))))
    assert carried(both, frozenset({0, 1}), own) == own
    assert carried(both, frozenset({0}), own) is None
    assert carried(call("neg", X), frozenset({0}), own) is None
    assert carried(X, frozenset({0}), own) == own
