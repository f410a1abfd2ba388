"""Functions of elements that lose no digits near 0, as joins."""

from __future__ import annotations


def log1p(x: str) -> str:
    """log(1 + x): what is lost in rounding 1 + x is made up for by a quotient."""
    one_more = f"(1 + ({x}))"
    return (
        f"where({one_more} == 1, {x}, where(abs({x}) > 0.5, log{one_more}, "
        f"log{one_more} * (({x}) / ({one_more} - 1))))"
    )


def expm1(x: str) -> str:
    """exp(x) - 1 of a real number, which is tanh(x / 2) (exp(x) + 1)."""
    return f"where(({x}) > 1, exp({x}) - 1, tanh(({x}) / 2) * (exp(min({x}, 1)) + 1))"
