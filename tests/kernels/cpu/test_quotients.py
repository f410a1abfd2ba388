"""`//` and `%` round down as NumPy's do, and integers divided by zero are zero."""

from __future__ import annotations

import numpy as np
import pytest
from dividends import numbers

import eindecomp as ed


@pytest.mark.parametrize("of", ["int8", "int32", "int64", "uint8", "uint64", "float32", "float64",
                                "float16", "bfloat16"])  # fmt: skip
@pytest.mark.parametrize("sign", ["//", "%"])
def test_of_all_pairs(sign: str, of: str) -> None:
    x = numbers(of)
    n = len(x)
    text = f"input X[i: {n}] {of}, Y[j: {n}] {of}\nZ[i,j] <- X[i] {sign} Y[j]\noutput Z"
    graph = ed.parse(text)
    assert ed.parse(str(graph)) == graph
    wanted = ed.evaluate(graph, {"X": x, "Y": x})["Z"]
    found = ed.run(ed.plan(graph, 3), {"X": x, "Y": x})["Z"]
    assert found.dtype == wanted.dtype == x.dtype
    if "float" in of:
        wide = found.astype(float), wanted.astype(float)
        np.testing.assert_array_equal(*wide)
        left, right = (np.where(np.isnan(part), 0, np.signbit(part)) for part in wide)
        np.testing.assert_array_equal(left, right)
    else:
        np.testing.assert_array_equal(found, wanted)
    with np.errstate(all="ignore"):
        by_numpy = {"//": np.floor_divide, "%": np.remainder}[sign]
        if of not in ("float16", "bfloat16"):  # those compute in float32
            np.testing.assert_array_equal(wanted, by_numpy(x[:, None], x[None, :]))
    if x.dtype.kind in "iu":
        assert not found[:, x == 0].any()


@pytest.mark.parametrize(
    ("text", "value"),
    [("7 // 2", 3), ("-7 // 2", -4), ("-7 % 3", 2), ("7 % -3", -2), ("5 // 0", 0), ("5 % 0", 0),
     ("7.5 // 2", 3), ("-7.5 % 2", 0.5), ("10 - 7 % 4 * 2", 4), ("2**3 % 5 // 2", 1)],
)  # fmt: skip
def test_of_literals(text: str, value: float) -> None:
    graph = ed.parse(f"input X[i: 2]\nY[i] <- X[i] * 0 + ({text})\noutput Y")
    x = {"X": np.ones(2)}
    for made in (graph, ed.rewrite(graph)):
        assert ed.evaluate(made, x)["Y"].tolist() == [value] * 2
    assert ed.run(ed.plan(graph, 2), x)["Y"].tolist() == [value] * 2


def test_truth_values_are_counted() -> None:
    graph = ed.parse("input X[i: 2] bool\nY[i] <- X[i] // X[i]\nZ[i] <- X[i] % 2\noutput Y, Z")
    assert {name: v.dtype for name, v in graph.vertices.items()}["Y"] == np.int64
    found = ed.run(ed.plan(graph, 2), {"X": [False, True]})
    assert (found["Y"].tolist(), found["Z"].tolist()) == ([0, 1], [0, 1])


def test_complex_numbers_have_no_remainder() -> None:
    with pytest.raises(ed.EinDecompError, match="mod is not defined on complex"):
        ed.parse("input X[i: 2] complex64\nY[i] <- X[i] % 2\noutput Y")


def test_large_unsigned_powers_are_exact() -> None:
    graph = ed.parse("input X[i: 2] uint64, Y[i] uint64\nZ[i] <- X[i] ** Y[i]\noutput Z")
    x = {"X": np.array([3, 7], np.uint64), "Y": np.array([40, 22], np.uint64)}
    assert ed.evaluate(graph, x)["Z"].tolist() == [3**40, 7**22]
    assert ed.run(ed.plan(graph, 2), x)["Z"].tolist() == [3**40, 7**22]
