"""Engine jax: every kind of vertex, of pieces and of scalar function, as the reference has it."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree, arrays_for
from test_ops import OPS, SIZES, parse

import eindecomp as ed
from eindecomp.graph.rewrites.rebuild import remove_dead
from eindecomp.kernels.jax.functions import JAX
from eindecomp.lang.dtypes import type_names
from eindecomp.lang.scalar import FUNCTIONS

ENGINE = "jax"
KINDS = [(op, [*SIZES][k % len(SIZES)]) for k, op in enumerate(OPS)]


def runs(graph, arrays, tolerance=1e-5, **asked):
    """Plan and run a graph, and check what it computes and what XLA's collectives move."""
    plan = ed.plan(graph, **asked)
    found = ed.run(plan, arrays, ENGINE)
    agree(found, ed.evaluate(graph, arrays), tolerance)
    assert found.stats.bytes_moved == plan.traffic.total
    return found


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("op", "sizes"), KINDS)
def test_each_kind(op, sizes):
    graph = parse(op, SIZES[sizes])
    runs(graph, arrays_for(graph), 1e-4, devices=8, rewrite=False)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("op", "sizes"), KINDS[::3])
def test_each_kind_in_chunks_on_twelve_devices(op, sizes):
    sizes = [*SIZES][([*SIZES].index(sizes) + 1) % len(SIZES)]
    graph = parse(op, SIZES[sizes])
    runs(graph, arrays_for(graph), 1e-4, mesh={"a": 3, "b": 4}, pieces="ceil")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", type_names[1:])
def test_each_type(dtype):
    graph = ed.parse(
        f"input X[i: 6, j: 10] {dtype}, Y[j, k: 5] {dtype}\n"
        "Z[i,k] <- sum X[i,j] * Y[j,k]\nW[i] <- sum Z[i,k] - 1\noutput W, Z"
    )
    low = dtype in ("float16", "bfloat16")
    runs(graph, arrays_for(graph), 3e-2 if low else 1e-5, devices=4, strategy=["j"])


ATTENTION = """
input Q[s: 5, d: 4], K[t: 5, d], V[t, d]
U[s,t] <- sum Q[s,d] * K[t,d]
P[s,t] <- softmax[t] U[s,t]
O[s,d] <- sum P[s,t] * V[t,d]
output O
"""
FUSED = """
input X[i: 5, j: 5, k: 7], A[j, a: 3], B[k, a]
Z[i,a] <- sum X[i,j,k] * A[j,a] * B[k,a]
output Z
"""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("text", [ATTENTION, FUSED], ids=["attention", "fused"])
@pytest.mark.parametrize("strategy", [["t", "j"], ["s", "j", "k"]], ids=str)
def test_chains_over_chunks_of_which_some_are_empty(text, strategy):
    graph = ed.parse(text)
    runs(graph, arrays_for(graph), mesh={"a": 4, "b": 2}, strategy=strategy, pieces="ceil")


REDUCED = """
input X[i: 5, j: 6] {dtype}, Y[i: 5, k: 3] {dtype}
S[j] <- {agg} X[i,j]
P[j,k] <- {agg} X[i,j] * Y[i,k]
A[] <- {agg} X[i,j]
output S, P, A
"""
REDUCTIONS = [
    ("sum", "int8"), ("sum", "uint64"), ("sum", "bfloat16"), ("sum", "complex64"),
    ("prod", "int64"), ("prod", "float16"), ("max", "uint8"), ("max", "bfloat16"),
    ("min", "float32"), ("min", "int16"),
]  # fmt: skip


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("agg", "dtype"), REDUCTIONS)
def test_shares_of_a_sum_of_which_one_is_empty(agg, dtype):
    """One of four devices has none of five rows: 2, 2, 1 and 0."""
    graph = ed.parse(REDUCED.format(agg=agg, dtype=dtype))
    low = dtype in ("float16", "bfloat16")
    runs(
        graph, arrays_for(graph), 3e-2 if low else 1e-5,
        mesh={"a": 4}, strategy=["i"], pieces="ceil",
    )  # fmt: skip


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 300.7, -7.0])
REAL = [
    "x // y", "x % y", "x ** y", "x ** 0.5", "x ** 3", "abs(x)", "sign(x)", "max(x, y)",
    "min(x, y)", "where(x < y, x, 1)", "relu(x)", "sigmoid(x)", "tanh(x)", "exp(x)", "log(x)",
    "sqrt(x)", "rsqrt(x)", "sin(x)", "cos(x)", "erf(x)", "silu(x)", "gelu(x)", "x / 3", "-x",
    "int8(x)", "uint8(x)", "int32(x)", "uint64(x)", "bool(x)", "float16(x)", "bfloat16(x)",
    "x == y", "x != y", "x <= y and y > 0", "not (x > y) or x == 1", "complex64(x)",
]  # fmt: skip
WHOLE = ["x // y", "x % y", "x ** 2", "abs(x)", "sign(x)", "max(x, y)", "-x", "x * y - 3",
         "uint8(x)", "int64(x)", "x == y", "float32(x) / 2", "x // 3", "x % 3"]  # fmt: skip
COMPLEX = ["x * y", "x / y", "x ** 2", "x ** y", "abs(x)", "real(x)", "imag(x)", "conj(x)",
           "exp(x)", "sqrt(x)", "x == y", "float32(x)"]  # fmt: skip


def all_pairs(values, dtype):
    values = values.astype(dtype)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def map_all(expressions, dtype, values, tolerance):
    """Compute many expressions of the same pairs of numbers in one program."""
    x, y = all_pairs(values, dtype)
    graph = ed.Graph()
    n = {"i": len(x)}
    inputs = [graph.input(name, n, dtype=dtype) for name in ("X", "Y")]
    for k, join in enumerate(expressions):
        own = inputs if "y" in join else inputs[:1]
        spec = ", ".join("i" for _ in own) + " -> i"
        graph.output(graph.einsum(spec, *own, join=join, name=f"Z{k}"))
    arrays = {"X": x, "Y": y}
    found, wanted = ed.run(ed.plan(graph, 1), arrays, ENGINE), ed.evaluate(graph, arrays)
    for k, join in enumerate(expressions):
        left, right = found[f"Z{k}"], wanted[f"Z{k}"]
        assert left.dtype == right.dtype, join
        wide = np.complex128 if right.dtype.kind == "c" else np.float64
        left, right = left.astype(wide), right.astype(wide)
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=1e-30, err_msg=join)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-12)])
def test_functions_of_special_numbers(dtype, tolerance):
    map_all(REAL, dtype, SPECIAL, tolerance)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_functions_of_whole_numbers(dtype):
    limits = np.iinfo(dtype)
    values = np.array([0, 1, -1, 2, -3, 7, limits.max, limits.min])
    map_all(WHOLE, dtype, values, 0)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_functions_of_unsigned_numbers(dtype):
    values = np.array([0, 1, 2, 7, np.iinfo(dtype).max], np.uint64)
    map_all(WHOLE, dtype, values, 0)


def test_functions_of_complex_numbers():
    values = np.array([0, 1, -1, 1j, 2 - 3j, -0.5 + 0.25j])
    map_all(COMPLEX, "complex64", values, 1e-4)


def test_nothing_is_computed_that_no_output_needs():
    """XLA leaves out what a plan without rewrites would compute for nobody."""
    graph = ed.parse("input X[i: 8, j: 8]\nA[i] <- sum X[i,j]\nB[j] <- sum X[i,j]\noutput B")
    arrays = arrays_for(graph)
    plan = ed.plan(graph, 4, strategy=["j"], rewrite=False)
    found = ed.run(plan, arrays, ENGINE)
    agree(found, ed.evaluate(graph, arrays), 1e-5)
    assert found.stats.bytes_moved < plan.traffic.total
    runs(remove_dead(graph), arrays, devices=4, strategy=["j"], rewrite=False)


@pytest.mark.parametrize("rewrite", [True, False])
@pytest.mark.parametrize("devices", [1, 4])
def test_a_tensor_equals_its_own_maximum(devices, rewrite):
    """However often XLA computes an element anew, it comes out the same."""
    graph = ed.parse(
        "input X[i: 37, k: 29], W[k, j: 53]\nY[i,j] <- sum X[i,k] * W[k,j]\n"
        "S[i,j] <- exp(Y[i,j]) * 0.37 + Y[i,j] * 1.7 / 3\nM[i] <- max S[i,j]\n"
        "C[i] <- sum where(S[i,j] == M[i], 1.0, 0.0)\noutput C"
    )
    plan = ed.plan(graph, devices, rewrite=rewrite)
    assert (ed.run(plan, arrays_for(graph), ENGINE)["C"] == 1).all()


@pytest.mark.parametrize("shape", [(7, 1000), (33, 4097), (3, 100003)])
def test_long_sums(shape):
    graph = ed.parse(
        f"input X[i: {shape[0]}, j: {shape[1]}]\nA[i] <- sum X[i,j]\nB[j] <- sum exp(X[i,j])\n"
        "C[] <- sum X[i,j] * X[i,j]\nD[i] <- max abs(X[i,j])\noutput A, B, C, D"
    )
    arrays = arrays_for(graph)
    agree(ed.run(ed.plan(graph, 1), arrays, ENGINE), ed.evaluate(graph, arrays), 2e-5)


def test_tensors_of_nothing():
    graph = ed.parse(
        "input X[i: 0, j: 5]\nS[j] <- sum X[i,j]\nM[i] <- max X[i,j]\n"
        "Z[j,k: 5] <- sum X[i,j] * X[i,k]\noutput S, M, Z"
    )
    runs(graph, {"X": np.zeros((0, 5), "float32")}, devices=6)


def test_every_function_of_the_language_has_a_form():
    assert set(JAX) >= set(FUNCTIONS)
