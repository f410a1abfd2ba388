"""argmax, argmin, cumsum and top_k are NumPy's, however they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed

CALLS = {
    "argmax": "Z[i] <- argmax[j] X[i,j]",
    "argmin": "Z[i] <- argmin[j] X[i,j]",
    "cumsum": "Z[j,i] <- cumsum[j] X[i,j]",
    "top_k": "Z[i, r: 3] <- top_k[j, r] X[i,j]",
    "arg_top_k": "Z[r: 3, i] <- arg_top_k[j, r] X[i,j]",
}


def expected(name: str, x: Any) -> Any:
    match name:
        case "argmax" | "argmin":
            return getattr(x, name)(axis=1)
        case "cumsum":
            return np.cumsum(x, axis=1).T
        case "top_k" | "arg_top_k":
            # NaN first, then downwards; of equal ones the first.
            order = np.lexsort((np.broadcast_to(np.arange(x.shape[1]), x.shape), -x.astype(float)))
            nan = np.isnan(x.astype(float))
            order = np.argsort(np.where(nan, 0, 1 + np.argsort(order, axis=1)), 1, kind="stable")
            chosen = order[:, :3]
            return np.take_along_axis(x, chosen, 1) if name == "top_k" else chosen.T
        case _:
            raise AssertionError(name)


@pytest.mark.parametrize("of", ["float32", "int32"])
@pytest.mark.parametrize("name", sorted(CALLS))
@settings(max_examples=max(1, settings.default.max_examples // 4))
@given(
    rows=st.sampled_from([1, 3]),
    size=st.sampled_from([3, 7, 40]),
    devices=st.integers(1, 8),
    seed=st.integers(0, 9),
    special=st.booleans(),
)
def test_against_numpy(
    name: str, of: str, rows: int, size: int, devices: int, seed: int, special: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (rows, size)).astype(of)
    if special and of == "float32":
        x[rng.random(x.shape) < 0.3] = -np.inf
        if name.startswith("arg") and name != "arg_top_k":
            x[0, size // 2 :] = np.nan
    elif special:
        x[:] = np.iinfo(of).min if name == "argmax" else x
    graph = ed.parse(f"input X[i: {rows}, j: {size}] {of}\n{CALLS[name]}\noutput Z")
    assert ed.parse(str(graph)) == graph
    wanted = ed.evaluate(graph, {"X": x})["Z"]
    np.testing.assert_array_equal(wanted, expected(name, x))
    assert wanted.dtype == (np.int64 if "arg" in name else x.dtype)
    plan = ed.plan(graph, devices)
    found = ed.run(plan, {"X": x})
    np.testing.assert_allclose(found["Z"], wanted)
    assert found.stats.bytes_moved == plan.cost


def test_the_largest_may_be_nan() -> None:
    x = np.array([[1, np.nan, 3, np.nan, 2]], np.float32)
    for name, wanted in (("top_k", [[np.nan, np.nan, 3]]), ("arg_top_k", [[1], [3], [2]])):
        graph = ed.parse(f"input X[i: 1, j: 5]\n{CALLS[name]}\noutput Z")
        np.testing.assert_array_equal(ed.run(ed.plan(graph, 2), {"X": x})["Z"], wanted)


@pytest.mark.parametrize("name", ["cumsum", "top_k"])
def test_gradients(name: str) -> None:
    text = f"input X[i: 2, j: 5] float64\n{CALLS[name]}\nloss[] <- sum Z[p,q] ** 2\noutput loss"
    graph = ed.grad(ed.parse(text), "loss", wrt=["X"])
    x = np.array([[3.0, -1, 4, 1, 5], [9, 2, 6, -5, 3.5]])
    found = ed.run(ed.plan(graph, 3), {"X": x})["grad_X"]
    step = 1e-6
    for place in np.ndindex(x.shape):
        low, high = x.copy(), x.copy()
        low[place] -= step
        high[place] += step
        slope = ed.evaluate(graph, {"X": high})["loss"] - ed.evaluate(graph, {"X": low})["loss"]
        assert np.isclose(found[place], slope / (2 * step), rtol=1e-5, atol=1e-5)


def test_a_text_may_define_their_names_itself() -> None:
    text = "monoid NAME(x; y) = max(x, y) identity -inf\ninput X[i: 3]\nZ[] <- NAME X[i]\noutput Z"
    assert ed.evaluate(ed.parse(text.replace("NAME", "argmax")), {"X": [1, 5, 2]})["Z"] == 5
    with pytest.raises(ed.TextError, match="'first_max' is defined in two ways"):
        ed.parse(text.replace("NAME", "first_max") + "\nY[] <- argmax[i] X[i]")
