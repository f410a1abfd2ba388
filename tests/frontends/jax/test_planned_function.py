"""Functions of the user, run by JAX as a plan says."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax_twins import TWINS, layer_arguments, layer_shapes, llama_layer, mlp

import eindecomp as ed


@pytest.mark.parametrize("name", TWINS)
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


def _shapes(shapes):
    def is_shape(leaf):
        return isinstance(leaf, tuple) and isinstance(leaf[0], int)

    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, "float32"), shapes, is_leaf=is_shape)


def test_no_resharding_is_added_to_a_layer_that_is_run_as_planned():
    def layer(p, x):
        return llama_layer(p, x, heads=8, kv_heads=8)

    args = _shapes((layer_shapes(a=64, f=128, heads=8, kv_heads=8), (1, 64, 64)))
    plan = ed.plan(ed.from_jax(layer, *args), devices=8, time_limit=5)
    assert plan.verify_jax().counted == plan.cost
    found = plan.verify_jax(layer, *args)
    assert found.planned == plan.cost
    assert found.counted == plan.cost
    assert {row.vertex for row in found.rows if row.counted} <= {*plan.graph}


def test_what_xla_moves_otherwise_is_told_by_vertex():
    args = _shapes(({"layers": [{"w": (64, 64), "b": (64,)}], "head": (64, 4)}, (64, 64)))
    plan = ed.plan(ed.from_jax(mlp, *args), devices=8, inputs="sharded", time_limit=1)
    found = plan.verify_jax(mlp, *args)
    assert found.planned == plan.cost
    assert all(row.collectives for row in found.rows if row.counted)
    assert "vertex" in str(found)
