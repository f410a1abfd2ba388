"""Gradients: taken by JAX before the import, or by EinDecomp after it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_twins import (
    layer_arguments,
    llama_layer,
    mlp_arguments,
    mlp_loss,
    scanned_llama,
    scanned_llama_arguments,
)

import eindecomp as ed


def layer_loss(p, x):
    return jnp.mean(llama_layer(p, x) ** 2)


def cross_entropy(params, tokens):
    logits = scanned_llama(params, tokens[:, :-1])
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
    return -picked.mean()


CASES = {
    "mlp": (mlp_loss, lambda: (*mlp_arguments(), jnp.ones((8, 4)))),
    "llama layer": (layer_loss, layer_arguments),
    "scanned llama": (cross_entropy, lambda: scanned_llama_arguments(layers=1)),
}


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_jax_are_imported(name):
    loss, arguments = CASES[name]
    args = arguments()
    fn = jax.value_and_grad(loss)
    graph = ed.from_jax(fn, *args)
    found = ed.evaluate(graph, ed.jax_inputs(fn, *args))
    for vertex, expected in zip(graph.outputs, jax.tree.leaves(jax.jit(fn)(*args)), strict=True):
        close(found[vertex.name], expected)


@pytest.mark.one_in(2)
@pytest.mark.long("scanned llama")
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_an_imported_loss_are_those_of_jax(name):
    loss, arguments = CASES[name]
    args = arguments()
    graph = ed.from_jax(loss, *args)
    weights = [v.name for v in graph.inputs if v.name.startswith(("params", "p."))]
    both = ed.grad(graph, "out", wrt=weights)
    outputs = [v.name for v in both.outputs if v.name != "out"]
    found = ed.evaluate(both, ed.jax_inputs(loss, *args))
    for output, expected in zip(
        outputs, jax.tree.leaves(jax.jit(jax.grad(loss))(*args)), strict=True
    ):
        close(found[output], expected)


def test_a_training_step_plans_with_ties_and_runs():
    def step(params, x, target):
        value, grads = jax.value_and_grad(mlp_loss)(params, x, target)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, params, grads)

    args = (*mlp_arguments(), jnp.ones((8, 4)))
    graph = ed.from_jax(step, *args)
    ties = {v.name: v.name.replace("params", "out.1") for v in graph.inputs if "params" in v.name}
    plan = ed.plan(graph, devices=4, inputs="sharded", tie=ties)
    result = ed.run(plan, ed.jax_inputs(step, *args))
    assert result.stats.bytes_moved == plan.cost
    for vertex, expected in zip(graph.outputs, jax.tree.leaves(jax.jit(step)(*args)), strict=True):
        close(result[vertex.name], expected)
