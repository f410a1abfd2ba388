"""Modules under plans of their own graphs, over DTensors: results, and what moves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from jobs import launch, needs_torch, run_command
from local_ranks import all_ranks
from tiny_models import MODELS, made
from torch import nn

import eindecomp as ed
from cases import ALL

SCRIPT = Path(__file__).parent / "ranks" / "gloo_modules.py"


def planned(name):
    """A module, its example, and a plan of it for four devices."""
    module, example = made(name)
    graph = ed.from_torch(module, example)
    return module, example, ed.plan(graph, mesh={"x": 4}, pieces="ceil")


@pytest.mark.long
@needs_torch
def test_modules_give_equal_outputs_over_four_ranks_and_move_what_was_counted(tmp_path):
    paths, counted = [], []
    few = MODELS if ALL else ("grouped", "vit")
    for name in (name for name in few if name != "llama"):  # which is as `grouped` is
        module, example, plan = planned(name)
        paths.append(tmp_path / f"{name}.json")
        plan.save(paths[-1])
        counted.append(plan.verify_torch(module, example, device="cpu").counted)
    job = run_command([*launch("torch", 4), str(SCRIPT), *map(str, paths)])
    assert job.status == 0, job.err
    assert json.loads(job.out) == counted


@pytest.mark.one_in(3)
@pytest.mark.long("gpt2")
@pytest.mark.parametrize("name", ["llama", "grouped", "gpt2", "mlp"])
def test_gpus_would_move_what_was_planned(name):
    module, example = made(name)
    ids = {"input_ids": torch.zeros(2, 8, dtype=torch.int64)} if "input_ids" in example else {}
    example = {**example, **ids}  # which four devices divide
    plan = ed.plan(ed.from_torch(module, example), mesh={"x": 4})
    found = plan.verify_torch(module, example)
    assert found.planned == plan.cost
    assert found.matches, str(found)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["bert", "vit"])
def test_where_dtensor_moves_more_there_is_a_reason(name):
    module, example, plan = planned(name)
    found = plan.verify_torch(module, example)
    assert found.planned == plan.cost
    assert found.counted > found.planned  # uneven pieces are padded
    assert all(row.reason for row in found.rows if row.planned != row.counted)
    assert all(row.vertex for row in found.rows)
    assert {row.vertex for row in found.rows if not row.counted} <= {*plan.graph}


def test_inputs_that_lie_sharded_are_moved_to_where_they_are_read():
    module, example = nn.Linear(8, 8), {"input": torch.ones(4, 8)}
    plan = ed.plan(ed.from_torch(module, example), mesh={"x": 4}, inputs="sharded")
    found = plan.verify_torch(module, example)
    assert found.planned == plan.cost > 0
    assert found.counted >= found.planned


def test_a_plan_of_another_module_is_refused():
    module, example = nn.Linear(8, 8), {"input": torch.ones(4, 8)}
    plan = ed.plan(ed.from_torch(module, example), mesh={"x": 4})
    with pytest.raises(ed.InputError, match="of another module: weight"):
        plan.verify_torch(nn.Linear(8, 6), example)


def test_applying_needs_a_mesh():
    module, example = nn.Linear(8, 8), {"input": torch.ones(4, 8)}
    plan = ed.plan(ed.from_torch(module, example), mesh={"x": 4})
    with pytest.raises(ed.PlanError, match="device_mesh"):
        plan.to_dtensor().apply(module, example)


def test_backward_says_how_gradients_are_had():
    module, example = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), {"input": torch.ones(4, 8)}
    plan = ed.plan(ed.from_torch(module, example), mesh={"x": 2}, inputs="sharded")
    with all_ranks((2,)) as ranks:
        run = plan.to_dtensor(ranks).apply(module, example)
        found = run(**example)
        with pytest.raises(ed.RunError, match=r"models\.training_step.*docs/pytorch\.md"):
            found.full_tensor().sum().backward()
        with torch.no_grad():
            assert not run(**example).requires_grad
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        assert not plan.to_dtensor(ranks).apply(module, example)(**example).requires_grad


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["bert", "vit", "mlp"])
def test_gloo_is_blamed_only_where_gpus_would_exchange(name):
    module, example, plan = planned(name)
    on_gpus = {row.vertex: row for row in plan.verify_torch(module, example).rows}
    for row in plan.verify_torch(module, example, device="cpu").rows:
        blamed = "gloo" in row.reason
        assert not blamed or "all-to-all" in on_gpus[row.vertex].collectives
        if row.planned != row.counted and row.collectives == on_gpus[row.vertex].collectives:
            assert row.reason == on_gpus[row.vertex].reason
