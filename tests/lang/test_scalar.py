"""Scalar expressions: building, limits, printing."""

import pytest

from eindecomp import ExpressionError
from eindecomp.lang.scalar import (
    MAX_DEPTH,
    MAX_SIZE,
    Arg,
    Call,
    Const,
    Expr,
    Tuple,
    call,
    to_text,
    used_args,
)
from eindecomp.lang.text.resolve import parse_join


def test_literals_of_different_types_differ() -> None:
    assert len({Const(1), Const(1.0), Const(True), Const(1 + 0j)}) == 4
    assert Const(float("nan")) == Const(float("nan"))
    assert Const(0.0) != Const(-0.0)


def nested(times: int, *, doubled: bool) -> Expr:
    expr: Expr = Arg(0)
    for _ in range(times):
        expr = call("add", expr, expr if doubled else 1)
    return expr


def test_depth_and_size_are_bounded_when_a_node_is_born() -> None:
    assert isinstance(nested(MAX_DEPTH, doubled=False), Call)
    with pytest.raises(ExpressionError, match=f"more than {MAX_DEPTH} deep"):
        nested(MAX_DEPTH + 1, doubled=False)
    with pytest.raises(ExpressionError, match=f"more than {MAX_SIZE} terms"):
        nested(MAX_DEPTH, doubled=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: call("nothing", 1), "unknown function 'nothing'"),
        (lambda: call("exp", 1, 2), "exp takes 1 operands, got 2"),
        (lambda: call("exp", Tuple((Arg(0), Arg(1)))), "a tuple cannot be nested"),
        (lambda: Arg(-1), "0 or more"),
        (lambda: Const(2**64), "64 bits"),
        (lambda: Tuple((Arg(0),)), "two or more"),
    ],
)
def test_malformed_nodes_are_refused(make: object, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        make()  # type: ignore[operator]


PRECEDENCE = [
    ("x + y * z", "x + y * z"),
    ("(x + y) * z", "(x + y) * z"),
    ("x - (y - z)", "x - (y - z)"),
    ("x / y / z", "x / y / z"),
    ("x / (y / z)", "x / (y / z)"),
    ("x**y**z", "x**y**z"),
    ("(x**y)**z", "(x**y)**z"),
    ("-x**2", "-x**2"),
    ("(-x)**2", "(-x)**2"),
    ("2**-x", "2**-x"),
    ("--x", "--x"),
    ("+x", "x"),
    ("not x and y", "not x and y"),
    ("not (x and y)", "not (x and y)"),
    ("(x < y) == z", "(x < y) == z"),
    ("max(x, y, z)", "max(max(x, y), z)"),
    ("-1 - -1", "-1 - -1"),
    ("(-1)**2", "(-1)**2"),
    ("neg(1)", "neg(1)"),
    ("1e3", "1000.0"),
    ("1_000", "1000"),
]


@pytest.mark.parametrize(("text", "printed"), PRECEDENCE)
def test_printing_keeps_the_structure(text: str, printed: str) -> None:
    expr = parse_join(text, 3)
    assert to_text(expr) == printed
    assert parse_join(printed, 3) == expr


def test_inputs_beyond_three_have_numbers() -> None:
    expr = parse_join("x + x3 * x4", 5)
    assert used_args(expr) == (0, 3, 4)
    assert isinstance(expr, Call)
    assert str(expr) == "x + x3 * x4"
