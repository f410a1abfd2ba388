"""`plan.verify_torch(module, …)`: meshes, groups, and the recorder that counts collectives."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from local_ranks import all_ranks
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode

import eindecomp as ed
from eindecomp.frontends.torch.verify import Recorder, pretended_group


def planned(devices=4):
    """A net of two layers, its example, and a plan that cuts its features."""
    module = nn.Sequential(
        nn.Linear(32, 128, bias=False), nn.ReLU(), nn.Linear(128, 32, bias=False)
    ).eval()
    example = torch.zeros(64, 32)
    plan = ed.plan(ed.from_torch(module, example), devices, inputs="sharded")
    return module, example, plan


def test_on_a_mesh_of_fewest_dimensions_or_of_a_given_shape():
    module, example, plan = planned()
    found = plan.verify_torch(module, example)
    assert found.matches
    assert found.planned == plan.traffic.total > 0
    assert dict(found.mesh) == plan.to_dtensor().fewest_dims
    assert [*plan.verify_torch(module, example, shape=(2, 2)).mesh.values()] == [2, 2]


def test_the_callers_process_group_is_left_alone():
    module, example, plan = planned()
    plan.verify_torch(module, example)
    assert not dist.is_initialized()
    with pretended_group(2):
        with pytest.raises(ed.PlanError, match="belongs to a process group already"):
            plan.verify_torch(module, example)
        assert dist.get_world_size() == 2


def test_one_device_moves_nothing():
    module, example, plan = planned(1)
    found = plan.verify_torch(module, example)
    assert (found.planned, found.counted, found.matches) == (0, 0, True)


def test_a_wrong_device_or_shape_is_refused():
    module, example, plan = planned(8)
    with pytest.raises(ed.PlanError, match="'cuda' or 'cpu', not 'tpu'"):
        plan.verify_torch(module, example, device="tpu")
    with pytest.raises(ed.PlanError, match="mesh of axis0=2 × axis1=2 × axis2=2, not of"):
        plan.verify_torch(module, example, shape=(2, 3))


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
