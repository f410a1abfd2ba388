"""`plan.verify_torch()`: DTensor carries out plans, and where it moves more, it is said why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from local_ranks import all_ranks
from random_graphs import random_graph
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode

import eindecomp as ed
from eindecomp.frontends.torch.collectives import Recorder
from eindecomp.frontends.torch.verify import pretended_group

MESHES = [{"a": 4}, {"a": 2, "b": 2}, {"a": 2, "b": 2, "c": 2}, {"a": 3, "b": 2}]
MLP = """
input X[s: 64, a: 32], W1[f: 128, a], W2[a, f]
H[s,f] <- sum X[s,a] * W1[f,a]
R[s,f] <- relu(H[s,f])
Y[s,o] <- sum R[s,f] * W2[o,f]
output Y
"""


def expressible(plan):
    """Skip a plan that DTensor cannot express."""
    try:
        return plan.to_dtensor()
    except ed.PlanError:
        assume(False)


def llama():
    """One layer of LLaMA 7B, as large as it is: nothing is computed."""
    config = replace(ed.models.llama.CONFIGS["7B"], layers=1)
    return ed.models.llama.prefill_graph(config, 1, 2048)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("asked", [{"strategy": ["h", "f"]}, {}], ids=["megatron", "optimal"])
def test_a_llama_layer_moves_what_was_planned(asked):
    plan = ed.plan(llama(), 8, **asked)
    found = plan.verify_torch()
    assert found.matches
    assert found.planned == found.counted == plan.traffic.total
    assert dict(found.mesh) == plan.to_dtensor().fewest_dims
    assert [row.vertex for row in found.rows] == list(plan.decisions)


def test_on_a_mesh_of_more_dimensions_all_to_alls_become_all_gathers():
    plan = ed.plan(llama(), 8)
    found = plan.verify_torch(shape=(2, 2, 2))
    assert found.planned == plan.traffic.total < found.counted
    [row, *_] = [row for row in found.rows if row.planned != row.counted]
    assert "all-to-all" in row.reason
    assert row.reason in str(found)


def test_sums_that_all_devices_need_are_reduced_at_once():
    graph = ed.parse("input X[i: 2, j: 4]\nZ[] <- sum X[i,j]\noutput Z")
    plan = ed.plan(graph, mesh={"x": 2, "y": 4})
    assert plan.parts["Z"] == {"i": 2, "j": 4}
    found = plan.verify_torch()
    assert len(found.mesh) == 2
    assert found.matches
    assert found.rows[0].collectives == "1 all-reduce of 8"


def test_what_is_rounded_before_it_is_gathered_moves_more_in_dtensor():
    graph = ed.parse("input X[i: 8, j: 8] float16\nZ[i] <- sum X[i,j]\noutput Z")
    found = ed.plan(graph, mesh={"x": 4}, pin={"Z": {}}, strategy=["j"]).verify_torch()
    assert found.planned == 3 * 8 * (4 + 2)
    assert found.counted == 3 * 8 * (4 + 4)
    assert "as they are, the plan gathers float16" in found.rows[0].reason


def test_gloo_has_no_all_to_all():
    plan = ed.plan(llama(), 8)
    assert plan.verify_torch(device="cuda").matches
    on_cpus = plan.verify_torch(device="cpu")
    more = [row for row in on_cpus.rows if row.planned != row.counted]
    assert more
    assert all("gloo has no all-to-all" in row.reason for row in more)


@given(
    seed=st.integers(0, 2**32),
    mesh=st.sampled_from(MESHES),
    inputs=st.sampled_from(["free", "sharded"]),
    pieces=st.sampled_from(["even", "ceil"]),
)
def test_every_difference_has_a_reason(seed, mesh, inputs, pieces):
    graph = random_graph(seed, tree=False, moves=True)
    plan = ed.plan(graph, mesh=mesh, inputs=inputs, pieces=pieces, rewrite=False, time_limit=5)
    expressible(plan)
    found = plan.verify_torch()
    assert found.planned == plan.traffic.total
    assert sum(row.planned for row in found.rows) == found.planned
    assert sum(row.counted for row in found.rows) == found.counted
    assert all(row.reason for row in found.rows if row.planned != row.counted)
    assert found.matches == (not any(row.reason for row in found.rows))


def test_aggregations_that_dtensor_does_not_know_are_gathered():
    graph = ed.parse("input X[i: 8, j: 8]\nZ[i] <- any X[i,j] > 0\noutput Z")
    plan = ed.plan(graph, 4, strategy=["j"])
    assert "cannot reduce by this aggregation" in plan.verify_torch().rows[0].reason
    assert "Z" not in plan.to_dtensor().partials


def test_the_callers_process_group_is_left_alone():
    plan = ed.plan(ed.parse(MLP), 4)
    plan.verify_torch()
    assert not dist.is_initialized()
    with pretended_group(2):
        with pytest.raises(ed.PlanError, match="belongs to a process group already"):
            plan.verify_torch()
        assert dist.get_world_size() == 2


@pytest.mark.parametrize("strategy", [["f"], ["s"]])
def test_plans_by_one_label_move_on_cpus_what_was_planned(strategy):
    found = ed.plan(ed.parse(MLP), 4, strategy=strategy, inputs="sharded").verify_torch(
        device="cpu"
    )
    assert found.matches
    assert found.planned > 0


def test_one_device_moves_nothing():
    found = ed.plan(ed.parse(MLP), 1).verify_torch()
    assert (found.planned, found.counted, found.matches) == (0, 0, True)


def test_a_wrong_device_or_shape_is_refused():
    plan = ed.plan(ed.parse(MLP), 8)
    with pytest.raises(ed.PlanError, match="'cuda' or 'cpu', not 'tpu'"):
        plan.verify_torch(device="tpu")
    with pytest.raises(ed.PlanError, match=r"mesh of \(axis0: 2, axis1: 2, axis2: 2\), not of"):
        plan.verify_torch(shape=(2, 3))


X = torch.ones(8, dtype=torch.float32)


def test_a_collective_that_cannot_be_counted_is_refused():
    with pretended_group(4), Recorder(), pytest.raises(ed.RunError, match="c10d::reduce_"):
        dist.reduce(X, 0)


WAYS = [
    ([Shard(0), Shard(1)], [Replicate(), Replicate()]),
    ([Partial(), Partial()], [Shard(0), Replicate()]),
    ([Shard(0), Shard(1)], [Shard(1), Shard(0)]),
    ([Partial("max"), Shard(0)], [Shard(1), Shard(0)]),
]


@pytest.mark.parametrize(("held", "wanted"), WAYS)
def test_the_recorder_sees_every_collective_that_dtensor_counts(held, wanted):
    with all_ranks((2, 2)) as mesh:
        x = DTensor.from_local(torch.ones(4, 4), mesh, held, run_check=False)
        with CommDebugMode() as counter:
            x.redistribute(placements=wanted)
        with Recorder() as recorder:
            x.redistribute(placements=wanted)
    assert len(recorder.take()) == counter.get_total_counts() > 0
    assert recorder.take() == ()
