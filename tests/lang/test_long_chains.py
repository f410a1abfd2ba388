"""Chains of a thousand terms: read whole, balanced where they are long, and run."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.lang.scalar import MAX_DEPTH, Call, to_text
from eindecomp.lang.text.resolve import parse_join

MANY = 1000


@pytest.mark.long
def test_a_sum_of_a_thousand_tensors() -> None:
    names = [f"X{k}" for k in range(MANY)]
    text = "\n".join(f"input {name}[i: 3]" for name in names)
    signs = ["" if k == 0 else " - " if k % 3 == 1 else " + " for k in range(MANY)]
    total = "".join(f"{sign}{name}[i]" for sign, name in zip(signs, names, strict=True))
    graph = ed.parse(f"{text}\nZ[i] <- {total}\noutput Z")
    assert ed.parse(str(graph)) == graph
    arrays = {name: np.arange(3.0) + k for k, name in enumerate(names)}
    wanted = sum((-x if s == " - " else x) for s, x in zip(signs, arrays.values(), strict=True))
    np.testing.assert_allclose(ed.evaluate(graph, arrays)["Z"], wanted)
    np.testing.assert_allclose(ed.run(ed.plan(graph, 2), arrays)["Z"], wanted)


def test_a_gradient_through_many_terms() -> None:
    total = " - ".join(f"{k} * X[i]" for k in range(200))
    graph = ed.parse(f"input X[i: 3]\nloss[] <- sum {total}\noutput loss")
    graph = ed.grad(graph, "loss", wrt=["X"])
    found = ed.run(ed.plan(graph, 2), {"X": np.ones(3)})["grad_X"]
    np.testing.assert_allclose(found, np.full(3, -sum(range(200))))


@pytest.mark.parametrize("sign", ["+", "-", "*", "or", "and"])
@pytest.mark.parametrize("count", [2, MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 2, 3 * MAX_DEPTH])
def test_what_is_printed_is_read_back(sign: str, count: int) -> None:
    expr = parse_join(f" {sign} ".join(["x"] * count), 1)
    assert isinstance(expr, Call)
    assert expr.depth == (count - 1 if count <= MAX_DEPTH + 1 else int(np.ceil(np.log2(count))))
    assert parse_join(to_text(expr), 1) == expr


@pytest.mark.parametrize("name", ["max", "min"])
def test_functions_of_many_operands(name: str) -> None:
    expr = parse_join(f"{name}({', '.join(['x'] * MANY)})", 1)
    assert parse_join(to_text(expr), 1) == expr


def test_what_cannot_be_regrouped_stays_bounded() -> None:
    with pytest.raises(ed.TextError, match="more than 100 deep, as a chain of as many div"):
        parse_join(" / ".join(["x"] * MANY), 1)
