"""Functions of the user, run by JAX as a plan says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_twins import TWINS, layer_arguments, layer_shapes, llama_layer, mlp

import eindecomp as ed

XLA_MOVES = "ignore:XLA moves:RuntimeWarning"


@pytest.mark.one_in(2)
@pytest.mark.long("bert", "gpt2", "scanned llama", "vit")
@pytest.mark.filterwarnings(XLA_MOVES)
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


@pytest.mark.long
@pytest.mark.filterwarnings(XLA_MOVES)
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


@pytest.mark.long
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


ALONE = {
    "sort": (jnp.sort, (64, 64)),
    "top_k": (lambda x: jax.lax.top_k(x, 4), (64, 64)),
    "top_k of a product": (lambda x, w: jax.lax.top_k(x @ w, 4), (64, 64), (64, 64)),
    "product": (jnp.matmul, (64, 64), (64, 64)),
    "batched product": (jnp.matmul, (2, 64, 32), (2, 32, 64)),
    "sum": (lambda x, y: jnp.concatenate([x, y], 1).sum(0), (64, 32), (64, 32)),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("inputs", ["free", "sharded"])
@pytest.mark.parametrize("mesh", [{"x": 4}, {"x": 2, "y": 4}])
@pytest.mark.parametrize("name", ALONE)
def test_what_devices_can_compute_alone_or_scatter_moves_no_more_than_planned(name, mesh, inputs):
    fn, *shapes = ALONE[name]
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    plan = ed.plan(ed.from_jax(fn, *args), mesh=mesh, inputs=inputs, time_limit=2)
    found = plan.verify_jax(fn, *args)
    assert found.counted <= found.planned, str(found)
    pairs = zip(*map(jax.tree.leaves, (plan.to_jax().jit(fn)(*args), fn(*args))), strict=True)
    for value, wanted in pairs:
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-4)


def test_where_xla_moves_more_the_first_call_warns_with_the_number():
    def fn(x):
        return jnp.tanh(x @ x.T) @ x

    x = np.ones((64, 64), "float32")
    plan = ed.plan(ed.from_jax(fn, x), mesh={"x": 4}, inputs="sharded")
    found = plan.verify_jax(fn, x)
    assert found.counted > found.planned
    run = plan.to_jax().jit(fn)
    told = rf"XLA moves [\d.]+ × .* \({found.counted:,} for {found.planned:,}\), most by .* of "
    with pytest.warns(RuntimeWarning, match=told):
        run(x)
    run(x)  # and no other
