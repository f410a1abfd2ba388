"""`plan.to_jax()`: every device holds the block that the plan gives it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from agreement import arrays_for
from jax.sharding import AxisType, PartitionSpec
from random_graphs import random_graph

import eindecomp as ed
import jax_devices
from eindecomp.frontends.placements import layouts_of
from eindecomp.layout.tiling import box_on

assert len(jax.devices()) >= jax_devices.COUNT
MESHES = [{"a": 4}, {"a": 3, "b": 4}, {"a": 2, "b": 2, "c": 2}, {"a": 6}, {"a": 2, "b": 3}]
PRODUCT = """
input X[i: 8, j: 16], Y[j, k: 24]
Z[i,k] <- sum X[i,j] * Y[j,k]
output Z
"""


def boxes(sharding, shape):
    """The block of each device, in the order of the mesh."""
    found = sharding.devices_indices_map(shape)
    return [
        tuple(side.indices(size)[:2] for side, size in zip(found[device], shape, strict=True))
        for device in sharding.mesh.devices.flat
    ]


@given(
    seed=st.integers(0, 2**32),
    mesh=st.sampled_from(MESHES),
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_every_device_holds_its_block(seed, mesh, inputs):
    graph = random_graph(seed, tree=False, moves=True)
    plan = ed.plan(graph, mesh=mesh, inputs=inputs, pieces="even", rewrite=False, pending=False)
    found = plan.to_jax()
    for name, cuts in layouts_of(plan).items():
        shape = graph[name].shape
        for cut, sharding in zip(cuts, found.layouts[name], strict=True):
            wanted = [box_on(plan.mesh, cut, device) for device in range(plan.devices)]
            assert boxes(sharding, shape) == wanted
    assert found.inputs.keys() == {vertex.name for vertex in graph.inputs}
    assert {*map(found.out_sharding, plan.decisions)} <= {*found.shardings.values()}


@pytest.mark.parametrize("order", [("x", "y", "z"), ("z", "y", "x"), ("y", "x"), ("z", "x", "y")])
def test_axes_in_any_order(order):
    graph = ed.parse("input X[i: 24, j: 2]\nZ[i,j] <- X[i,j] + 1\noutput Z")
    mesh = {"x": 2, "y": 3, "z": 2}
    plan = ed.plan(graph, mesh=mesh, inputs="sharded", pin={"X": {"i": order}}, pieces="even")
    sharding = plan.to_jax().shardings["X"]
    assert sharding.spec[0] == order
    home = plan.given["X"].home
    wanted = [box_on(plan.mesh, home, device) for device in range(plan.devices)]
    assert boxes(sharding, (24, 2)) == wanted


def test_arrays_are_put_where_the_plan_wants_them():
    plan = ed.plan(ed.parse(PRODUCT), 8, strategy=["j"])
    arrays = arrays_for(plan.graph)
    found = plan.to_jax()
    put = found.put(arrays)
    assert {name: each.sharding for name, each in put.items()} == found.inputs
    product = jax.jit(
        lambda given: {"Z": given["X"] @ given["Y"]},
        in_shardings=(found.inputs,),
        out_shardings=found.outputs,
    )
    made = product(put)["Z"]
    assert made.sharding == found.shardings["Z"]
    wanted = ed.evaluate(plan.graph, arrays)["Z"]
    np.testing.assert_allclose(np.asarray(made), wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ed.InputError, match="no tensor 'W'"):
        found.put({"W": np.zeros(3)})
    with pytest.raises(ed.InputError, match=r"X has the shape \(8, 16\) in the plan, not"):
        found.put({"X": np.zeros(3)})


@pytest.mark.parametrize("strategy", [["j"], ["i"], ["k"]])
def test_contractions_in_explicit_mode_are_told_their_sharding(strategy):
    plan = ed.plan(ed.parse(PRODUCT), mesh={"x": 2, "y": 4}, strategy=strategy, pieces="even")
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    found = plan.to_jax(mesh)
    arrays = arrays_for(plan.graph)
    put = found.put(arrays)

    @jax.jit
    def product(x, y):
        return jnp.einsum("ij,jk->ik", x, y, out_sharding=found.out_sharding("Z"))

    with jax.set_mesh(mesh):
        made = product(put["X"], put["Y"])
    assert made.sharding.is_equivalent_to(found.shardings["Z"], 2)
    wanted = ed.evaluate(plan.graph, arrays)["Z"]
    np.testing.assert_allclose(np.asarray(made), wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ed.PlanError, match="computes no vertex 'X'"):
        found.out_sharding("X")


def test_uneven_sizes_are_refused_with_the_reason():
    graph = ed.parse("input X[i: 5, j: 4]\nZ[i] <- sum X[i,j]\noutput Z")
    with pytest.raises(ed.PlanError, match=r"dimension 0 of X has 5 elements, which 2 does not"):
        ed.plan(graph, 2, strategy=["i"]).to_jax()
    merged = ed.parse("input X[i: 6, j: 2]\nZ[(i,j)] <- X[i,j]\noutput Z")
    with pytest.raises(ed.PlanError, match=r"dimension 0 of (X|Z) has (6|12) elements"):
        ed.plan(merged, 4, strategy=["i"]).to_jax()


def test_meshes_are_checked():
    plan = ed.plan(ed.parse(PRODUCT), mesh={"x": 2, "y": 4})
    good = jax.make_mesh((2, 1, 4), ("x", "one", "y"), axis_types=(AxisType.Auto,) * 3)
    assert plan.to_jax(good).mesh == good
    for shape, names in [((4, 2), ("x", "y")), ((2, 4), ("x", "z")), ((4, 2), ("y", "x"))]:
        other = jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * 2)
        with pytest.raises(ed.PlanError, match=r"mesh of \{'x': 2, 'y': 4\}, the mesh given is"):
            plan.to_jax(other)
    with pytest.raises(ed.InputError, match="the plan is for 1024 devices, and JAX has"):
        ed.plan(ed.models.chain(1024), 1024).to_jax()


def test_a_diagonal_is_held_whole_or_by_rows():
    graph = ed.parse("input X[i: 8, j: 8]\nZ[i] <- X[i,i]\noutput Z")
    plan = ed.plan(graph, 4)
    found = plan.to_jax()
    assert found.shardings["X"].spec == PartitionSpec(None, None)
    assert found.operands["Z"][0].spec == PartitionSpec(("axis0", "axis1"), None)
