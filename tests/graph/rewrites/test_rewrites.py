"""Rewrites keep what a graph computes, and make it cheaper in the ways they promise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given

import eindecomp as ed
from eindecomp.graph.rewrites.exchange import divide_late, factor_out
from eindecomp.graph.rewrites.fuse import MAX_INPUTS, MAX_SIZE, fuse
from eindecomp.graph.rewrites.order_contractions import order_contractions
from eindecomp.graph.rewrites.rebuild import merge_common
from eindecomp.graph.rewrites.rewrite import PASSES, rewrite
from eindecomp.lang.scalar import size_of
from strategies import arrays, graphs

Pass = Callable[[ed.Graph], ed.Graph]


@pytest.mark.parametrize("run", [*PASSES, rewrite])
@given(graph=graphs())
def test_a_pass_keeps_the_computation(run: Pass, graph: ed.Graph) -> None:
    before = str(graph)
    after = run(graph)
    after.verify()
    assert str(graph) == before
    assert ed.parse(str(after)) == after
    assert after.inputs == graph.inputs
    assert after.ties == graph.ties
    assert [(v.name, v.shape, v.dtype) for v in after.outputs] == [
        (v.name, v.shape, v.dtype) for v in graph.outputs
    ]
    values = arrays(graph)
    expected = ed.evaluate(graph, values)
    for name, found in ed.evaluate(after, values).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-5)


@given(graph=graphs(smooth=True))
def test_rewriting_adds_no_contraction(graph: ed.Graph) -> None:
    def contractions(g: ed.Graph) -> int:
        return sum(
            isinstance(v.op, ed.EinSum) and v.op.agg is not None for v in g.vertices.values()
        )

    assert contractions(fuse(graph)) <= contractions(graph)


HEAD = "input A[i: 5, j: 6], B[j, k: 7], C[k, l: 2], D[j, l], square[q: 6, r: 6], v[k]\n"
_SHARE = "S[i] <- sum A[i,j]\nP[i,j] <- A[i,j] / S[i]"
_MEAN = "Z[i,l] <- sum P[i,j] * D[j,l]"
FIXTURES: list[tuple[Pass, str, str]] = [
    # Fusion: chains, maps into aggregations, views into everything, cheap ones into all readers.
    (fuse, "X[i,j] <- exp(A[i,j])\nZ[i,j] <- X[i,j] + 1", "Z[i,j] <- exp(A[i,j]) + 1"),
    (fuse, "X[i,j] <- exp(A[i,j])\nZ[i] <- sum X[i,j]", "Z[i] <- sum exp(A[i,j])"),
    (fuse, "T[j,i] <- A[i,j]\nZ[i,k] <- sum T[j,i] * B[j,k]", "Z[i,k] <- sum A[i,j] * B[j,k]"),
    (fuse, "o[k: 7] <- fill 2.0\nZ[k] <- v[k] * o[k]", "Z[k] <- v[k] * 2.0"),
    (
        fuse,
        "X[i,j] <- A[i,j] * 2\nM[i] <- max X[i,j]\nZ[i,j] <- exp(X[i,j] - M[i])",
        "M[i] <- max A[i,j] * 2\nZ[i,j] <- exp(A[i,j] * 2 - M[i])",
    ),
    # What must not be fused: a map into a matrix product, a costly map that is read twice, an
    # output, a map that a broadcast would repeat.
    (fuse, "X[i,j] <- exp(A[i,j])\nZ[i,k] <- sum X[i,j] * B[j,k]", "same"),
    (fuse, "X[i,j] <- exp(A[i,j])\nM[i] <- max X[i,j]\nZ[i,j] <- X[i,j] - M[i]", "same"),
    (fuse, "X[i,j] <- exp(square[i,j])\nZ[i,j] <- X[i,j] - X[j,i]", "same"),
    (fuse, "X[i,j] <- exp(A[i,j])\noutput X\nZ[i,j] <- X[i,j] + 1", "same"),
    (fuse, "x[k] <- exp(v[k])\nZ[j,k] <- B[j,k] * x[k]", "same"),
    (fuse, "X[i] <- sum A[i,j]\nZ[i,k] <- X[i] * v[k]", "same"),
    # A costly map that is read twice under other labels.
    (
        fuse,
        "X[i,j] <- exp(A[i,j])\nT[j,i] <- X[i,j]\nM[i] <- max T[j,i]\nZ[i,j] <- T[j,i] - M[i]",
        "X[i,j] <- exp(A[i,j])\nM[i] <- max X[i,j]\nZ[i,j] <- X[i,j] - M[i]",
    ),
    # What is compared: with its own maximum, its neighbours, by a difference, under other labels.
    (fuse, "X[i,j] <- A[i,j] * 2\nM[i] <- max X[i,j]\nZ[i,j] <- int64(X[i,j] == M[i])", "same"),
    (fuse, "X[j] <- D[j,0] / 3\nZ[j] <- sum int64(X[r] > X[j])", "same"),
    (
        fuse,
        "X[i,j] <- A[i,j] * 2\nM[i] <- max X[i,j]\nY[i,j] <- X[i,j] - M[i]\nZ[i,j] <- sign(Y[i,j])",
        "X[i,j] <- A[i,j] * 2\nM[i] <- max X[i,j]\nZ[i,j] <- sign(X[i,j] - M[i])",
    ),
    (
        fuse,
        "X[i,j] <- A[i,j] * 2\nT[j,i] <- X[i,j]\nM[i] <- max T[j,i]\nZ[i,j] <- T[j,i] >= M[i]",
        "X[i,j] <- A[i,j] * 2\nM[i] <- max X[i,j]\nZ[i,j] <- X[i,j] >= M[i]",
    ),
    # One that is compared once, or with a number, is in one place anyway.
    (
        fuse,
        "X[i,j] <- A[i,j] * 2\nY[i,j] <- where(X[i,j] > 0, A[i,j], 1)\nZ[i,j] <- Y[i,j] + X[i,j]",
        "Z[i,j] <- where(A[i,j] * 2 > 0, A[i,j], 1) + A[i,j] * 2",
    ),
    # A broadcast that an aggregation runs over counts: it stays.
    (fuse, "x[k, w: 3] <- v[k]\nZ[k] <- sum x[k,w]", "same"),
    # Contraction order, for every semiring.
    (
        order_contractions,
        "Z[i,l] <- sum A[i,j] * B[j,k] * C[k,l]",
        "Z_1[j,l] <- sum B[j,k] * C[k,l]\nZ[i,l] <- sum A[i,j] * Z_1[j,l]",
    ),
    (
        order_contractions,
        "Z[i] <- max A[i,j] + B[j,k] + exp(v[k]) + 2",
        "Z_1[j] <- max B[j,k] + exp(v[k])\nZ[i] <- max A[i,j] + 2 + Z_1[j]",
    ),
    # No semiring: parts that are no larger than their surroundings are split off, others stay.
    (
        order_contractions,
        "Z[i] <- max A[i,j] * (B[j,k] * v[k])",
        "Z_1[j,k] <- B[j,k] * v[k]\nZ[i] <- max A[i,j] * Z_1[j,k]",
    ),
    (order_contractions, "Z[i] <- max A[i,j] * B[j,k] * v[k]", "same"),
    (order_contractions, "Z[i] <- sum where(A[i,j] > 0, B[j,k], v[k])", "same"),
    (
        merge_common,
        "X[i] <- sum A[i,j]\nY[a] <- sum A[a,b]\nZ[i] <- X[i] - Y[i]",
        "X[i] <- sum A[i,j]\nZ[i] <- X[i] - X[i]",
    ),
    # Factors that do not depend on what is summed: numbers, signs, tensors that are divided by.
    (
        factor_out,
        "Z[i,k] <- sum -A[i,j] / 40 * B[j,k] * sqrt(2)",
        "Z_1[i,k] <- sum A[i,j] * B[j,k]\nZ[i,k] <- -Z_1[i,k] / 40 * sqrt(2)",
    ),
    (
        factor_out,
        "Z[i,k] <- sum exp(A[i,j]) * B[j,k] / v[k] * exp(v[k])",
        "Z_1[i,k] <- sum exp(A[i,j]) * B[j,k]\nZ[i,k] <- Z_1[i,k] / v[k] * exp(v[k])",
    ),
    # None: of one tensor, one that only a divisor has, one that the sum runs over, maxima.
    (factor_out, "Z[i] <- sum A[i,j] * A[i,j] / 6", "same"),
    (factor_out, "Z[i,k] <- sum A[i,j] * D[j,l] / v[k]", "same"),
    (factor_out, "Z[i,k] <- sum A[i,j] * B[j,k] / A[i,j]", "same"),
    (factor_out, "Z[i,k] <- sum A[i,j] * B[j,k] * v[k]", "same"),
    (factor_out, "Z[i,k] <- max A[i,j] * B[j,k] / 4", "same"),
    # Weights that are divided by their sum: after the product, if that is fewer divisions.
    (
        divide_late,
        "S[k] <- sum B[j,k]\nP[j,k] <- B[j,k] / S[k]\nZ[x,k] <- sum A[x,y] * P[y,k]",
        "S[k] <- sum B[j,k]\nZ_1[x,k] <- sum A[x,y] * B[y,k]\nZ[x,k] <- Z_1[x,k] / S[k]",
    ),
    # What must not be: by another sum, one that the product sums over, read twice, an output, more.
    (divide_late, "S[i] <- max A[i,j]\nP[i,j] <- A[i,j] / S[i]\n" + _MEAN, "same"),
    (divide_late, "S[j] <- sum A[i,j]\nP[i,j] <- A[i,j] / S[j]\n" + _MEAN, "same"),
    (divide_late, f"{_SHARE}\n{_MEAN}\nY[i,j] <- P[i,j] + 1\noutput Y", "same"),
    (divide_late, f"{_SHARE}\n{_MEAN}\noutput P", "same"),
    (divide_late, f"{_SHARE}\nZ[i,k] <- sum P[i,j] * P[k,j]", "same"),
    (divide_late, f"{_SHARE}\nZ[i,k] <- sum P[i,j] * B[j,k]", "same"),
]


@pytest.mark.parametrize(("run", "before", "after"), FIXTURES)
def test_fixtures(run: Pass, before: str, after: str) -> None:
    after = before if after == "same" else after
    graph = ed.parse(f"{HEAD}{before}\noutput Z")
    expected = ed.parse(f"{HEAD}{after}\noutput Z")
    assert str(run(graph)) == str(expected)


def test_a_sum_of_nothing_is_nothing_whatever_it_is_divided_by() -> None:
    text = "input A[i: 2, j: 0], B[j, k: 3], c[i]\nZ[i,k] <- sum A[i,j] * B[j,k] / c[i]\noutput Z"
    graph = ed.parse(text)
    given = {"A": np.ones((2, 0)), "B": np.ones((0, 3)), "c": np.zeros(2)}
    arrays = {name: array.astype(np.float32) for name, array in given.items()}
    assert not ed.run(ed.plan(graph, 2), arrays)["Z"].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_factors_stay_where_a_sum_may_not_fit(dtype: str) -> None:
    text = f"input A[i: 5, j: 6] {dtype}, B[j, k: 7] {dtype}\nZ[i,k] <- sum A[i,j] * B[j,k] / 4"
    graph = ed.parse(f"{text}\noutput Z")
    assert factor_out(graph) == graph


def test_an_output_that_equals_another_becomes_a_copy_of_it() -> None:
    graph = ed.parse(
        f"{HEAD}X[i] <- sum A[i,j]\nY[i] <- sum A[i,j]\nW[i] <- sum A[i,j]\n"
        "Q[i] <- exp(X[i])\noutput Y, W, Q"
    )
    merged = merge_common(graph)
    assert str(merged).partition("input v[k: 7]\n")[2] == (
        "Y[i] <- sum A[i,j]\nW[i] <- Y[i]\nQ[i] <- exp(Y[i])\noutput Y, W, Q"
    )


def test_a_long_chain_fuses_into_pieces_of_bounded_size() -> None:
    g = ed.Graph()
    x = g.input("X", {"i": 3})
    for _ in range(2000):
        x = g.einsum("i->i", x, join="x * 0.999 + 0.001")
    g.output(x)
    fused = fuse(g)
    assert len(fused) < 200
    for vertex in fused.vertices.values():
        if isinstance(vertex.op, ed.EinSum):
            assert size_of(vertex.op.join) <= MAX_SIZE
            assert len(vertex.inputs) <= MAX_INPUTS


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_fusion_keeps_the_rounding_of_low_precision(dtype: str) -> None:
    graph = ed.parse(f"input X[i: 3] {dtype}\nB[i] <- X[i] * 3\nZ[i] <- B[i] / 3 - X[i]\noutput Z")
    values = {"X": [0.1, 40000.0, 0.7]}
    fused = fuse(graph)
    assert len(fused) == 2
    np.testing.assert_array_equal(ed.evaluate(fused, values)["Z"], ed.evaluate(graph, values)["Z"])


def test_partial_contractions_are_as_wide_as_the_whole() -> None:
    graph = ed.parse(
        "input A[i: 4, j: 4] float16, B[j, k: 4] float16, C[k, l: 2] float64\n"
        "Z[i,l] <- sum A[i,j] * B[j,k] * C[k,l] * 1e-3\noutput Z"
    )
    values = arrays(graph)
    values["A"] = values["A"] * 300
    found = ed.evaluate(order_contractions(graph), values)["Z"]
    np.testing.assert_allclose(found, ed.evaluate(graph, values)["Z"], rtol=1e-6)


@pytest.mark.parametrize("join", ["X[i,j] * Y[j,k] * Z[k]", "Y[j,k] * Z[k] * X[i,j]"])
@pytest.mark.parametrize(
    ("wide", "narrow", "number"),
    [
        ("int64", "int8", 100),
        ("float32", "int8", 100),
        ("float64", "int32", 1_000_000),
        ("float64", "float32", 1e30),
        ("complex128", "complex64", 1e30),
        ("int64", "bool", 1),
    ],
)
def test_contractions_of_mixed_types_wrap_and_overflow_where_they_are_written_to(
    join: str, wide: str, narrow: str, number: float
) -> None:
    text = f"input X[i: 3, j: 4] {wide}, Y[j, k: 5] {narrow}, Z[k] {narrow}\nW[i] <- sum {join}"
    graph = ed.parse(f"{text}\noutput W")
    values = {
        "X": np.ones((3, 4), wide),
        "Y": np.full((4, 5), number, narrow),
        "Z": np.full(5, number, narrow),
    }
    wanted = ed.evaluate(graph, values)["W"]
    np.testing.assert_allclose(ed.evaluate(ed.rewrite(graph), values)["W"], wanted, rtol=1e-6)
    np.testing.assert_allclose(ed.run(ed.plan(graph, 2), values)["W"], wanted, rtol=1e-6)


def test_partial_contractions_of_float16_do_not_overflow() -> None:
    head = "input A[i: 2, j: 2] float16, B[j, k: 2] float16, C[k, l: 2] float16\n"
    graph = ed.parse(f"{head}Z[i,l] <- sum A[i,j] * B[j,k] * C[k,l]\noutput Z")
    large = [[300, 0], [0, 1]]
    values = {"A": large, "B": large, "C": [[1e-3, 0], [0, 1]]}
    after = order_contractions(graph)
    assert all(len(v.inputs) <= 2 for v in after.vertices.values())
    np.testing.assert_array_equal(ed.evaluate(after, values)["Z"], ed.evaluate(graph, values)["Z"])


def test_fusion_keeps_types() -> None:
    graph = ed.parse(
        "input X[i: 3] bfloat16\no[i: 3] <- fill float32(2)\nZ[i] <- X[i] * o[i]\noutput Z"
    )
    assert fuse(graph)["Z"].dtype == graph["Z"].dtype == np.float32
