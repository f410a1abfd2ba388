"""Engine jax: tensors on its devices, what is compiled and donated, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import agree, arrays_for
from jax.sharding import NamedSharding, PartitionSpec

import eindecomp as ed
from eindecomp.engines.jax.engine import JaxEngine
from eindecomp.engines.result import BytesMoved, KernelCompiled, RunStarted, TaskFinished
from eindecomp.engines.tensor import Tensor

MATMUL = "input X[i: 16, j: 24], Y[j, k: 32]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"
UPDATE = (
    "input W[i: 8, j: 6], X[b: 4, i]\nY[b,j] <- sum X[b,i] * W[i,j]\n"
    "new_W[i,j] <- sum W[i,j] + X[b,i] * Y[b,j]\noutput Y, new_W\ntie W <- new_W"
)
LOOKUP = "input E[v: 4, a: 8], ids[b: 6] int64\nZ[b,a] <- E[ids[b], a]\noutput Z"


def test_a_result_is_an_array_of_jax_sharded_as_planned():
    plan = ed.plan(ed.parse(MATMUL), 8)
    arrays = arrays_for(plan.graph)
    result = ed.run(plan, arrays, "jax")
    array = result.tensor("Z").array()
    assert isinstance(array, jax.Array)
    assert len(array.sharding.device_set) == 8
    pieces = {shard.data.shape for shard in array.addressable_shards}
    parts = plan.parts["Z"]
    assert pieces == {(16 // parts["i"], 32 // parts["k"])}
    np.testing.assert_allclose(np.asarray(array), arrays["X"] @ arrays["Y"], rtol=1e-4, atol=1e-5)


def test_arrays_of_jax_are_taken_as_they_lie():
    plan = ed.plan(ed.parse(MATMUL), 4)
    arrays = arrays_for(plan.graph)
    with ed.compile(plan, "jax") as executable:
        given = {name: executable.place({name: x})[name].array() for name, x in arrays.items()}
        placed = executable.place(given)
        for name, x in given.items():
            pointers = [
                [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
                for array in (x, placed[name].array())
            ]
            assert pointers[0] == pointers[1]
        agree(executable(given), {"Z": arrays["X"] @ arrays["Y"]}, 1e-5)
        elsewhere = {name: jnp.asarray(x) for name, x in arrays.items()}
        agree(executable(elsewhere), {"Z": arrays["X"] @ arrays["Y"]}, 1e-5)


def test_a_tensor_that_lies_otherwise_is_moved_and_counted(monkeypatch):
    graph = ed.parse("input X[i: 8, j: 8]\nZ[i,j] <- X[i,j] + 1\noutput Z")
    rows, columns = (
        ed.compile(ed.plan(graph, 4, pin={"X": {label: 4}, "Z": {label: 4}}), "jax")
        for label in ("i", "j")
    )
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    first = rows({"X": x})
    monkeypatch.setattr(Tensor, "numpy", None)  # equal blocks do not go through the host
    second = columns({"X": first.tensor("Z")})
    monkeypatch.undo()
    np.testing.assert_array_equal(second["Z"], x + 2)
    apart = ed.compile(columns.plan, "apart")
    of_apart = ed.compile(rows.plan, "apart")({"X": x}).tensor("Z")
    assert second.stats.bytes_placed == apart({"X": of_apart}).stats.bytes_placed > 0


@pytest.mark.parametrize("axes", [{"a": 2, "b": 2}, {"c": 4}])
def test_a_tensor_placed_for_another_mesh_outlives_the_one_it_was_made_of(axes):
    plans = [ed.plan(ed.parse(UPDATE), mesh=mesh) for mesh in ({"c": 4}, axes)]
    arrays = arrays_for(plans[0].graph)
    first, second = (ed.compile(plan, "jax") for plan in plans)
    old = first.place({"W": arrays["W"]})
    new = second.place(old)
    first({**arrays, **old}, donate=["W"])
    np.testing.assert_array_equal(new["W"].numpy(), arrays["W"])
    agree(second({**arrays, **new}, donate=["W"]), ed.evaluate(plans[0].graph, arrays), 1e-4)


def test_equal_plans_are_compiled_once():
    engine = JaxEngine()
    plans = [ed.plan(ed.parse(MATMUL), 2) for _ in range(2)]
    first, second = (engine.prepare(plan) for plan in plans)
    assert first is second
    other = engine.prepare(ed.plan(ed.parse(MATMUL), 4))
    assert other is not first


def test_donated_memory_is_used_for_results():
    plan = ed.plan(ed.parse(UPDATE), 2)
    arrays = arrays_for(plan.graph)
    with ed.compile(plan, "jax") as executable:
        events = []
        first = executable(arrays, on_event=events.append)
        assert not any(isinstance(event, KernelCompiled) for event in events)
        state = first.tensor("new_W")
        array = state.array()
        second = executable({**arrays, "W": state}, donate=["W"], on_event=events.append)
        assert array.is_deleted()
        assert sum(isinstance(event, KernelCompiled) for event in events) == 1
        once = ed.evaluate(plan.graph, arrays)["new_W"]
        agree(second, ed.evaluate(plan.graph, {**arrays, "W": once}), 1e-4)
        with pytest.raises(ed.InputError, match="was donated or released"):
            state.numpy()


def test_an_array_that_the_caller_has_is_never_given_up():
    plan = ed.plan(ed.parse(UPDATE), 2)
    arrays = arrays_for(plan.graph)
    with ed.compile(plan, "jax") as executable:
        own = executable.place({"W": arrays["W"]})["W"].array()
        placed = executable.place({"W": own})
        executable({**arrays, **placed}, donate=["W"])
        np.testing.assert_array_equal(np.asarray(own), arrays["W"])


def test_the_flag_for_64_bits_is_left_alone():
    graph = ed.parse("input X[i: 8] float64, n[i] int64\nZ[i] <- X[i] * n[i]\noutput Z")
    arrays = arrays_for(graph) | {"n": np.full(8, 2**40)}
    found = ed.run(ed.plan(graph, 2), arrays, "jax")
    assert found["Z"].dtype == np.float64
    np.testing.assert_array_equal(found["Z"], ed.evaluate(graph, arrays)["Z"])
    assert jnp.arange(3.0).dtype == np.float32
    assert not jax.config.jax_enable_x64


def test_events_tell_of_the_program_and_of_what_moved():
    plan = ed.plan(ed.parse(MATMUL), 4, strategy=["j"])
    events = []
    found = ed.run(plan, arrays_for(plan.graph), "jax", on_event=events.append)
    assert events[0] == RunStarted(4)
    assert {e.device for e in events if isinstance(e, TaskFinished)} == {0, 1, 2, 3}
    moved = sum(event.count for event in events if isinstance(event, BytesMoved))
    assert moved == found.stats.bytes_moved == plan.cost > 0


def test_what_a_listener_raises_cancels_the_run():
    def listen(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ed.run(ed.plan(ed.parse(MATMUL), 2), arrays_for(ed.parse(MATMUL)), "jax", on_event=listen)


@pytest.mark.parametrize(("ids", "device"), [([0, 1, 2, 3, 9, 0], 1), ([0, -1, 0, 0, 0, 0], 0)])
def test_an_index_out_of_range_is_refused(ids, device):
    plan = ed.plan(ed.parse(LOOKUP), 2, strategy=["b"])
    inputs = {"E": np.ones((4, 8), np.float32), "ids": np.array(ids)}
    bad = max(ids, key=abs)
    with pytest.raises(ed.RunError, match=rf"on device {device}: index {bad} is outside 0 to 3"):
        ed.run(plan, inputs, "jax")


def test_run_time_scalars_and_unicode_names():
    graph = ed.parse("scalar α float32\ninput X[i: 8, j: 8]\nσ[i] <- sum α * X[i,j]\noutput σ")
    plan = ed.plan(graph, 4, strategy=["j"])
    arrays = arrays_for(graph)
    with ed.compile(plan, "jax") as executable:
        for value in (0.5, 2.0):
            found = executable({**arrays, "α": value})
            agree(found, ed.evaluate(graph, {**arrays, "α": value}), 1e-5)
        assert found.stats.bytes_by_vertex == {"σ": plan.cost}


def test_too_few_devices_are_refused_with_the_way_to_more():
    plan = ed.plan(ed.parse("input X[i: 64]\nZ[i] <- X[i] + 1\noutput Z"), 64)
    with pytest.raises(ed.InputError, match=r'jax\.config\.update\("jax_num_cpu_devices", 64\)'):
        ed.compile(plan, "jax")


def test_options_that_mean_nothing_are_refused():
    plan = ed.plan(ed.parse(MATMUL), 2)
    with pytest.raises(ed.InputError, match="precision is one of highest, default"):
        ed.compile(plan, "jax", precision="low")
    with pytest.raises(ed.InputError, match="no devices of platform 'abacus'"):
        ed.compile(plan, "jax", platform="abacus")
    with pytest.raises(ed.InputError, match=r"has shape \(16, 24\), got \(2, 2\)"):
        ed.run(plan, {"X": jnp.ones((2, 2)), "Y": jnp.ones((24, 32))}, "jax")


def test_devices_may_be_named():
    plan = ed.plan(ed.parse(MATMUL), 2)
    chosen = jax.devices()[5:3:-1]
    found = ed.run(plan, arrays_for(plan.graph), "jax", devices=chosen, precision="default")
    assert found.tensor("Z").array().sharding.device_set == {*chosen}


def test_shardings_are_the_plans():
    """Within a dimension axes nest in the plan's order."""
    graph = ed.parse("input X[i: 8, j: 8]\nZ[i,j] <- X[i,j] + 1\noutput Z")
    plan = ed.plan(graph, 4, pin={"Z": {"i": ("axis1", "axis0")}, "X": {"j": 4}}, inputs="sharded")
    result = ed.run(plan, arrays_for(graph), "jax")
    sharding = result.tensor("Z").array().sharding
    assert isinstance(sharding, NamedSharding)
    assert sharding.is_equivalent_to(
        NamedSharding(sharding.mesh, PartitionSpec(("axis1", "axis0"))), 2
    )
    assert result.stats.bytes_moved == plan.cost > 0
