"""Every kind of vertex, type and scalar runs, on any number of devices, as the reference does."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import JAX, TORCH, agree, arrays_for, engine_of
from hypothesis import given
from hypothesis import strategies as st
from test_ops import OPS, SIZES, parse

import eindecomp as ed
from strategies import graphs

every_engine = pytest.mark.parametrize("engine", ["threads", "apart", TORCH, JAX])
no_compiler = pytest.mark.parametrize("engine", ["threads", "apart", TORCH])  # quick to prepare


@pytest.mark.one_in(3)
@pytest.mark.parametrize("devices", [1, 3, 8])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("op", OPS)
@no_compiler
def test_each_kind(engine, op, sizes, devices):
    graph = parse(op, SIZES[sizes])
    arrays = arrays_for(graph)
    for rewrite in (True, False):
        plan = ed.plan(graph, devices, rewrite=rewrite)
        found = ed.run(plan, arrays, engine_of(engine))
        agree(found, ed.evaluate(graph, arrays), 1e-4)
        assert found.stats.bytes_moved == plan.cost


@every_engine
@given(graph=graphs(), devices=st.integers(1, 16))
def test_graphs_of_every_kind(engine, graph, devices):
    arrays = arrays_for(graph)
    plan = ed.plan(graph, devices, rewrite=False)
    agree(ed.run(plan, arrays, engine_of(engine)), ed.evaluate(graph, arrays), 1e-9)


TYPES = ["int8", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64",
         "complex64", "complex128"]  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("strategy", [["i"], ["j"], "sqrt"])
@no_compiler
def test_each_type(engine, dtype, strategy):
    text = f"""
    input X[i: 6, j: 10] {dtype}, Y[j, k: 5] {dtype}
    Z[i,k] <- sum X[i,j] * Y[j,k]
    W[i] <- sum Z[i,k] - 1
    output W, Z
    """
    graph = ed.parse(text)
    arrays = arrays_for(graph)
    plan = ed.plan(graph, 4, strategy=strategy)
    low = dtype in ("float16", "bfloat16")
    agree(
        ed.run(plan, arrays, engine_of(engine)), ed.evaluate(graph, arrays), 3e-2 if low else 1e-5
    )


SUMS = [[2048] + [1] * 15, [60000, 60000, -60000] + [0] * 13]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("values", SUMS, ids=["rounding", "overflow"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "left", ["Z[]", "Z[i]", "Z[v: 2 = ids[j]]"], ids=["sum", "gemm", "scatter"]
)
@every_engine
def test_low_precision_is_rounded_once(engine, left, dtype, values):
    right = "sum X[j] * Y[j,i]" if left == "Z[i]" else "sum X[j]"
    graph = ed.parse(
        f"input X[j: 16] {dtype}, Y[j, i: 2] {dtype}, ids[j] int64\n{left} <- {right}\noutput Z"
    )
    arrays = {"X": np.array(values, dtype), "Y": np.ones((16, 2), dtype), "ids": np.ones(16, int)}
    plan = ed.plan(graph, 16, strategy=["j"])
    found = ed.run(plan, arrays, engine_of(engine))
    assert found.stats.bytes_moved == plan.cost > 0
    assert found["Z"].tolist() == ed.evaluate(graph, arrays)["Z"].tolist()


@every_engine
def test_gradients_run(engine):
    graph = ed.parse("input X[b: 8, f: 6], W[f, o: 4]\nY[b,o] <- sum X[b,f] * W[f,o]\n"
                     "loss[] <- sum relu(Y[b,o])**2\noutput loss")  # fmt: skip
    graph = ed.grad(graph, "loss", wrt=["W"])
    arrays = arrays_for(graph)
    agree(ed.run(ed.plan(graph, 4), arrays, engine_of(engine)), ed.evaluate(graph, arrays), 1e-4)
