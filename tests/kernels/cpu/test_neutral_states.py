"""Neutral states, in data and between tiles: every engine passes over them alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.kernels.cpu.einsum import einsum_kernel
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.text.resolve import parse_join
from eindecomp.tra import from_tensor, rewrite_einsum, to_tensor

INF = math.inf
LSE = ed.monoid("lse", "max(x, y) + log(exp(x - max(x, y)) + exp(y - max(x, y)))", -INF)
SOFT = ed.monoid(
    "soft",
    "(max(x0, y0), x1 * exp(x0 - max(x0, y0)) + y1 * exp(y0 - max(x0, y0)))",
    (-INF, 0),
    finish="x0 + log(x1)",
)
MEAN = ed.monoid("mean_of", "(x0 + y0, (x0 * x1 + y0 * y1) / (x0 + y0))", (0, 0), finish="x1")
DEEP = ed.monoid("deep", "max(x, y) + log(exp(x - max(x, y)) + exp(y - max(x, y)))", -1e300)


def expected(monoid: Monoid, x: Any) -> Any:
    with np.errstate(all="ignore"):
        if monoid in (LSE, SOFT):
            return np.logaddexp.reduce(x.astype(float), axis=1)
        weight = (x > 0).astype(float)
        shown = np.where(x > 0, x, 0)
        return np.where(weight.sum(1) > 0, (shown * weight).sum(1) / weight.sum(1), 0)


JOINS = {"lse": "x", "soft": "(x, 1)", "mean_of": "(where(x > 0, 1, 0), x)"}
MONOIDS = {"lse": LSE, "soft": SOFT, "mean_of": MEAN}


def table(rows: int, size: int, masked: list[int], seed: int) -> Any:
    """Numbers with whole rows and many elements at −∞."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, size)) * 3
    x[rng.random((rows, size)) < 0.5] = -INF
    x[[row % rows for row in masked]] = -INF
    return x


@pytest.mark.parametrize("of", ["float32", "float16"])
@pytest.mark.parametrize("name", sorted(MONOIDS))
@settings(max_examples=settings.default.max_examples // 3)
@given(
    rows=st.integers(1, 5),
    size=st.sampled_from([1, 2, 7, 33]),
    masked=st.lists(st.integers(0, 9), max_size=3),
    devices=st.integers(1, 8),
    seed=st.integers(0, 9),
    by=st.sampled_from(["i", "j"]),
)
def test_run_is_evaluate(
    name: str, of: str, rows: int, size: int, masked: list[int], devices: int, seed: int, by: str
) -> None:
    x = table(rows, size, masked, seed)
    x = (np.where(np.isinf(x), -1, x) if name == "mean_of" else x).astype(of)
    graph = ed.Graph()
    graph.input("X", {"i": rows, "j": size}, of)
    made = graph.einsum("ij->i", "X", join=JOINS[name], agg=MONOIDS[name], name="Z")
    graph.output(made)
    assert ed.parse(str(graph)) == graph
    wanted = ed.evaluate(graph, {"X": x})["Z"]
    near = {"rtol": 2e-3, "atol": 2e-3} if of == "float16" else {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(wanted, expected(MONOIDS[name], x), **near)
    found = ed.run(ed.plan(graph, devices, strategy=[by]), {"X": x})["Z"]
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), **near)
    op = made.op
    assert isinstance(op, EinSum)
    pieces = {"j": min(devices, size)}
    by_algebra = rewrite_einsum(op, pieces, [from_tensor(x, (1, 1))])
    np.testing.assert_allclose(to_tensor(by_algebra).astype(float), wanted.astype(float), **near)


@pytest.mark.parametrize("name", sorted(MONOIDS))
def test_kernels_combine_neutral_parts(name: str) -> None:
    f8 = np.dtype("float64")
    arity = parse_join(JOINS[name], 1)
    kernel = einsum_kernel(EinSum((("i", "j"),), ("i",), arity, MONOIDS[name]), (f8,), f8)
    x = np.array([[-INF, -INF, 2.0], [-INF, -INF, -INF], [-INF, 1.0, 1.0]])
    parts = []
    for columns in (slice(0, 0), slice(0, 1), slice(1, 1), slice(1, 3), slice(0, 0)):
        state = [np.empty(3, t) for t in kernel.state]
        kernel.partial([x[:, columns]], state)
        parts.append(state)
    first, *rest = parts
    for part in rest:
        kernel.combine(first, part)
    out = np.empty(3)
    kernel.finish(first, out)
    whole = np.empty(3)
    kernel.whole([x], whole)
    np.testing.assert_allclose(out, expected(MONOIDS[name], x))
    np.testing.assert_allclose(whole, out)


def test_an_identity_that_is_infinite_in_a_narrower_type() -> None:
    graph = ed.Graph()
    graph.input("X", {"i": 2, "j": 5})
    graph.output(graph.einsum("ij->i", "X", agg=DEEP, name="Z"))
    x = np.array([[-INF] * 5, [-INF, 1, -INF, -INF, -INF]], np.float32)
    for found in (ed.evaluate(graph, {"X": x}), ed.run(ed.plan(graph, 4), {"X": x})):
        assert found["Z"].tolist() == [-INF, 1]


@pytest.mark.parametrize("of", ["int64", "uint64"])
def test_a_large_identity_is_exact(of: str) -> None:
    end = int(np.iinfo(of).max)
    text = f"monoid least(x; y) = min(x, y) identity {end}\ninput X[i: 3] {of}\n"
    graph = ed.parse(text + "Z[] <- least X[i]\noutput Z")
    assert ed.parse(str(graph)) == graph
    for values in ([end, end, end], [end - 1, end, end]):
        x = {"X": np.array(values, of)}
        assert ed.evaluate(graph, x)["Z"] == min(values)
        assert ed.run(ed.plan(graph, 2), x)["Z"] == min(values)
