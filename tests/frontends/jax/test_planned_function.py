"""Functions of the user, run by JAX as a plan says."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax_twins import TWINS, layer_arguments, llama_layer

import eindecomp as ed
import jax_devices  # noqa: F401 - before JAX starts


@pytest.mark.parametrize("name", ["mlp", "scanned llama", "gpt2", "vit"])
def test_a_twin_runs_as_planned_with_equal_results(name):
    fn, arguments = TWINS[name]
    args = arguments()
    plan = ed.plan(ed.from_jax(fn, *args), devices=8, pieces="even", time_limit=1)
    found = plan.to_jax().jit(fn)(*args)
    expected = jax.jit(fn)(*args)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for value, wanted in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-3, atol=1e-4)


def test_inputs_and_outputs_lie_where_the_plan_has_them():
    args = layer_arguments(seq=8)
    plan = ed.plan(ed.from_jax(llama_layer, *args), devices=8, time_limit=1)
    placed = plan.to_jax()
    out = placed.jit(llama_layer)(*args)
    assert out.sharding.is_equivalent_to(placed.outputs["out"], out.ndim)
    with pytest.raises(ed.PlanError, match="not one of this function"):
        placed.jit(lambda _, x: {"other": x})(*args)


def test_collectives_of_the_function_are_set_beside_the_plan():
    args = layer_arguments(seq=8)
    plan = ed.plan(ed.from_jax(llama_layer, *args), devices=8, time_limit=1)
    assert plan.verify_jax().counted == plan.cost
    found = plan.verify_jax(llama_layer, *args)
    assert found.planned == plan.cost
    assert found.counted >= 0
