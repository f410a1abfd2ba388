"""Casts between all types, at the values where machines disagree: one rule for every engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.kernels.cpu.loops.launch import Loops
from eindecomp.kernels.point_program import PointProgram
from eindecomp.lang.dtypes import DType, Kind, dtype, kind, type_names, widen
from eindecomp.lang.scalar import Arg, Expr, Scalar, call
from eindecomp.lang.scalar_types import with_casts

SPECIAL = [
    0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 5e-324, -5e-324, 1e-45, 1e-40, 6e-8,
    1e30, -1e30, 1e300, -1e300, math.inf, -math.inf, math.nan, 65504.0, 65520.0,
    *(sign * (2.0**bits + step) for bits in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64)
      for sign in (1, -1) for step in (-1.0, -0.5, 0.0, 0.5, 1.0)),
]  # fmt: skip


def values(name: str) -> np.ndarray[Any, Any]:
    """The special values that a type has, its limits among them."""
    of = dtype(name)
    if kind(of) is Kind.BOOL:
        return np.array([False, True])
    if kind(of) is Kind.INT:
        ends = np.iinfo(name)
        steps = {0, 1, 2, 100, ends.max - 1, ends.max, ends.min, ends.min + 1}
        steps |= {sign * (2**bits + step) for bits in (7, 8, 15, 16, 24, 31, 32, 53)
                  for sign in (1, -1) for step in (-1, 0, 1)}  # fmt: skip
        return np.array([n for n in sorted(steps) if ends.min <= n <= ends.max], of)
    with np.errstate(all="ignore"):
        real = np.array(SPECIAL).astype(of)
        if kind(of) is Kind.COMPLEX:
            parts = np.array([complex(x, y) for x in SPECIAL for y in (0.0, -1.0, math.nan)])
            return np.concatenate([real, parts.astype(of)])
    return real


def expected(number: Any, to: str) -> Any:
    """The rule, one number at a time."""
    of = dtype(to)
    if kind(of) is Kind.BOOL:
        return bool(number != 0)
    if isinstance(number, complex) and kind(of) is not Kind.COMPLEX:
        number = number.real
    if kind(of) is not Kind.INT:
        with np.errstate(all="ignore"):
            return np.asarray(number).astype(of).item()
    ends = np.iinfo(to)
    if isinstance(number, float):
        if math.isnan(number):
            return 0
        if math.isinf(number):
            return int(ends.max if number > 0 else ends.min)
        return max(int(ends.min), min(int(ends.max), int(number)))
    return (int(number) - int(ends.min)) % 2 ** (8 * of.itemsize) + int(ends.min)


def same(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    wide = widen(found.dtype)
    np.testing.assert_array_equal(found.astype(wide), wanted.astype(wide))


def both(graph: ed.Graph, inputs: dict[str, Any]) -> tuple[Any, Any]:
    wanted = ed.evaluate(graph, inputs)["Y"]
    return ed.run(ed.plan(graph, 2), inputs)["Y"], wanted


def loops(exprs: list[Expr], types: list[DType], x: Any, scalar: Any = None) -> list[Any]:
    """The values of several casts, as generated loops compute them all at once."""
    given = {} if scalar is None else {"s0": scalar.dtype}
    program = PointProgram(tuple(with_casts(e, [x.dtype], given)[0] for e in exprs), tuple(types))
    scalars = [] if scalar is None else [scalar]
    run = Loops(program, [("i",)], ("i",), [s.dtype for s in scalars])
    outputs = [np.empty(x.shape, t) for t in types]
    run.run([x], outputs, scalars)
    return outputs


@pytest.mark.parametrize("of", type_names)
def test_of_elements(of: str) -> None:
    x = values(of)
    made = loops([call(to, Arg(0)) for to in type_names], [dtype(to) for to in type_names], x)
    for to, found in zip(type_names, made, strict=True):
        graph = ed.parse(f"input X[i: {len(x)}] {of}\nY[i] <- {to}(X[i])\noutput Y")
        wanted = ed.evaluate(graph, {"X": x})["Y"]
        same(found, wanted)
        same(wanted, np.array([expected(number, to) for number in x.tolist()], dtype(to)))


@pytest.mark.parametrize("of", ["bool", "int64", "uint64", "float64", "complex128"])
def test_of_run_time_scalars(of: str) -> None:
    x = np.zeros(1)
    graph = ed.parse(
        f"scalar a {of}\ninput X[i: 1]\n"
        + "\n".join(f"Y{k}[i] <- {to}(a) with X[i]" for k, to in enumerate(type_names))
        + f"\noutput {', '.join(f'Y{k}' for k in range(len(type_names)))}"
    )
    exprs: list[Expr] = [call(to, Scalar("s0")) for to in type_names]
    types = [dtype(to) for to in type_names]
    for number in values(of):
        made = loops(exprs, types, x, np.asarray(number))
        wanted = ed.evaluate(graph, {"a": number, "X": x})
        for k, (to, found) in enumerate(zip(type_names, made, strict=True)):
            same(found, wanted[f"Y{k}"])
            same(found, np.array([expected(number.item(), to)], dtype(to)))


@pytest.mark.parametrize("to", type_names)
def test_of_literals(to: str) -> None:
    numbers = [n for of in ("int64", "uint64", "float64") for n in values(of).tolist()]
    made = loops([call(to, n) for n in numbers], [dtype(to)] * len(numbers), np.zeros(1))
    for number, found in zip(numbers, made, strict=True):
        graph = ed.parse(f"input X[i: 1]\nY[i] <- {to}({number!r}) with X[i]\noutput Y")
        assert ed.parse(str(graph)) == graph
        wanted = ed.evaluate(ed.rewrite(graph), {"X": np.zeros(1)})["Y"]
        same(found, wanted)
        same(wanted, np.array([expected(number, to)], dtype(to)))


@given(data=st.data(), of=st.sampled_from(type_names), to=st.sampled_from(type_names))
@settings(max_examples=10)
def test_engines_follow(data: st.DataObject, of: str, to: str) -> None:
    x = values(of)
    graph = ed.parse(f"input X[i: {len(x)}] {of}\nY[i] <- {to}(X[i])\noutput Y")
    same(*both(graph, {"X": x[data.draw(st.permutations(range(len(x))))]}))


@pytest.mark.parametrize("of", ["float32", "float64", "uint64"])
@pytest.mark.parametrize("text", ["2**63", "9223372036854775808", "2**62 * 2", "2**64 - 2**63"])
def test_literal_arithmetic_is_exact(of: str, text: str) -> None:
    graph = ed.parse(f"input X[i: 3] {of}\nY[i] <- X[i] + ({text})\noutput Y")
    x = np.array([0, 1, 5], of)
    found, wanted = both(graph, {"X": x})
    same(found, wanted)
    same(wanted, x + np.asarray(2**63).astype(of))


@pytest.mark.parametrize(
    "text", ["X[i] + 2**63", "2**63 with X[i]", "where(true, 2**63, 1) with X[i]",
             "uint64(2**64) with X[i]", "int64(10**10**10) with X[i]"]
)  # fmt: skip
def test_literals_that_nothing_holds_are_refused(text: str) -> None:
    with pytest.raises(ed.EinDecompError, match=r"does not fit int64|fit 64 bits"):
        ed.parse(f"input X[i: 3] int64\nY[i] <- {text}\noutput Y")


@pytest.mark.parametrize("join", ["a + 1", "max(a, b)", "a == b", "a * b", "float32(a)"])
def test_integer_scalars_among_themselves_are_int64(join: str) -> None:
    graph = ed.parse(f"scalar a uint64, b int64\ninput X[i: 2]\nY[i] <- {join} with X[i]\noutput Y")
    found, wanted = both(graph, {"a": 2**63 + 5, "b": -7, "X": np.zeros(2)})
    same(found, wanted)
