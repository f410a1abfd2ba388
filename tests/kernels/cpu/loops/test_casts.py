"""Casts between all types, at the values where machines disagree: one rule for every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cast_rules import expected, same, values
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.kernels.cpu.loops.launch import Loops
from eindecomp.kernels.point_program import PointProgram
from eindecomp.lang.dtypes import DType, dtype, type_names
from eindecomp.lang.scalar import Arg, Expr, Scalar, call
from eindecomp.lang.scalar_types import with_casts


def both(graph: ed.Graph, inputs: dict[str, Any]) -> tuple[Any, Any]:
    wanted = ed.evaluate(graph, inputs)["Y"]
    return ed.run(ed.plan(graph, 2), inputs)["Y"], wanted


def loops(exprs: list[Expr], types: list[DType], x: Any, scalar: Any = None) -> list[Any]:
    """The values of several casts, as generated loops compute them all at once."""
    given = {} if scalar is None else {"s0": scalar.dtype}
    program = PointProgram(tuple(with_casts(e, [x.dtype], given)[0] for e in exprs), tuple(types))
    scalars = [] if scalar is None else [scalar]
    run = Loops(program, [("i",)], ("i",), tuple(s.dtype for s in scalars))
    outputs = [np.empty(x.shape, t) for t in types]
    run.run([x], outputs, scalars)
    return outputs


@pytest.mark.one_in(3)
@pytest.mark.parametrize("of", type_names)
def test_of_elements(of: str) -> None:
    x = values(of)
    made = loops([call(to, Arg(0)) for to in type_names], [dtype(to) for to in type_names], x)
    for to, found in zip(type_names, made, strict=True):
        graph = ed.parse(f"input X[i: {len(x)}] {of}\nY[i] <- {to}(X[i])\noutput Y")
        wanted = ed.evaluate(graph, {"X": x})["Y"]
        same(found, wanted)
        same(wanted, np.array([expected(number, to) for number in x.tolist()], dtype(to)))


@pytest.mark.one_in(2)
@pytest.mark.long("complex128")
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


@pytest.mark.one_in(8)
@pytest.mark.long("complex128", "float16")
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
