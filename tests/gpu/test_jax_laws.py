"""Engine `jax` on the one device that a GPU is: graphs of every kind, types, gradients."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree, arrays_for
from hypothesis import given, settings

import eindecomp as ed
from strategies import graphs

pytest.importorskip("jax", reason="JAX is not installed")


@settings(max_examples=settings.default.max_examples // 2)
@given(graph=graphs())
def test_graphs_of_every_kind(graph):
    arrays = arrays_for(graph)
    found = ed.run(ed.plan(graph, 1, rewrite=False), arrays, "jax")
    agree(found, ed.evaluate(graph, arrays), 1e-9)


@pytest.mark.parametrize("dtype", ["int32", "bfloat16", "float32", "float64", "complex64"])
def test_each_type(dtype):
    text = f"input X[i: 6, j: 10] {dtype}, Y[j, k: 5] {dtype}\nZ[i,k] <- sum X[i,j] * Y[j,k]\n"
    graph = ed.parse(text + "output Z")
    arrays = arrays_for(graph)
    found = ed.run(ed.plan(graph, 1), arrays, "jax")
    agree(found, ed.evaluate(graph, arrays), 3e-2 if dtype == "bfloat16" else 1e-5)


def test_a_function_of_jax_is_imported_and_runs():
    import jax

    def net(w, x):
        return jax.nn.relu(x @ w["up"]) @ w["down"]

    rng = np.random.default_rng(0)
    w = {"up": rng.normal(size=(16, 32)), "down": rng.normal(size=(32, 16))}
    w, x = jax.tree.map(lambda a: jax.numpy.asarray(a, "float32"), (w, rng.normal(size=(8, 16))))
    plan = ed.plan(ed.from_jax(net, w, x), 1)
    found = ed.run(plan, ed.jax_inputs(net, w, x), "jax")
    with jax.default_matmul_precision("highest"):
        np.testing.assert_allclose(found["out"], net(w, x), rtol=1e-4, atol=1e-4)
