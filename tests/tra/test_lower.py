"""Lowering: tasks move what the plan costs, and every element needed comes from someone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph
from transformer import transformer

import eindecomp as ed
from eindecomp.tra.lower import lower
from eindecomp.tra.tasks import Compute, Fetch, Layout, Reduce, Replicate

DEVICES = st.sampled_from([1, 2, 3, 4, 6, 8, 12])
SEEDS = st.integers(0, 2**32)
MATMUL = "input X[i: 4, j: 4], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


def _slices(box):
    return tuple(slice(low, high) for low, high in box)


@given(seed=SEEDS, devices=DEVICES, inputs=st.sampled_from(["free", "sharded"]))
def test_tasks_move_what_the_plan_costs(seed, devices, inputs):
    plan = ed.plan(random_graph(seed, tree=False), devices, inputs=inputs)
    tasks = lower(plan)
    assert tasks.moved == plan.cost
    kinds = tasks.bytes_by_kind
    assert kinds["reduce"] + kinds["replicate"] == sum(plan.costs.aggregate.values())
    for name in plan.parts:
        assert tasks.bytes_by_vertex[name] == plan.costs.of(name)


@given(seed=SEEDS, devices=DEVICES)
def test_any_strategy_and_objective_is_lowered(seed, devices):
    graph = random_graph(seed, tree=True)
    for asked in ({"strategy": "sqrt"}, {"objective": "bound"}, {"objective": "time"}):
        plan = ed.plan(graph, devices, machine="cpu-cluster" if "time" in asked.values() else None,
                       **asked)  # fmt: skip
        assert lower(plan).moved == plan.traffic.total


@given(seed=SEEDS, devices=DEVICES)
def test_kernel_calls_cover_every_result(seed, devices):
    plan = ed.plan(random_graph(seed, tree=False), devices)
    made = {name: np.zeros(plan.graph[name].shape, dtype=int) for name in plan.parts}
    for task in lower(plan).tasks:
        if isinstance(task, Compute):
            made[task.vertex][_slices(task.box)] += 1
    for name, times in made.items():
        calls = devices * np.ones_like(times)
        kept = [label for label in plan.graph[name].labels if label in plan.parts[name]]
        assert times.min() >= 1
        assert times.sum() <= calls.sum()
        assert kept or times.ndim == 0 or times.size


@given(seed=SEEDS, devices=DEVICES)
def test_pieces_and_what_is_held_make_what_is_needed(seed, devices):
    plan = ed.plan(random_graph(seed, tree=False), devices, inputs="sharded")
    for task in lower(plan).tasks:
        if isinstance(task, Fetch | Replicate):
            boxes = [piece.box for piece in task.pieces]
            tensor = task.vertex if isinstance(task, Replicate) else task.store.tensor
            seen = np.zeros(plan.graph[tensor].shape, dtype=int)
            for box in boxes:
                seen[_slices(box)] += 1
            outside = seen.copy()
            outside[_slices(task.box)] = 0
            assert seen.max(initial=0) <= 1
            assert not outside.any()
            assert all(piece.source != task.device for piece in task.pieces)


def test_reductions_have_an_order():
    plan = ed.plan(ed.parse(MATMUL), 4, strategy=["j"])
    reduces = [task for task in lower(plan).tasks if isinstance(task, Reduce)]
    assert [task.members for task in reduces] == [(0, 1, 2, 3)] * 4


def test_a_task_graph_prints():
    text = str(lower(ed.plan(ed.parse(MATMUL), 2, strategy=["j"])))
    assert text.splitlines()[0] == "4 tasks on 2 devices: 2 compute, 2 reduce"
    assert "64 bytes move" in text
    assert "device 0: Z (partial)[0:4, 0:4] from [0:4, 0:2], [0:2, 0:4]" in text
    assert "free Z (partial)" in text


@pytest.mark.parametrize("devices", [2, 8])
def test_stores_live_as_long_as_they_are_read(devices):
    plan = ed.plan(transformer(1), devices)
    tasks = lower(plan)
    outputs = {vertex.name for vertex in plan.graph.outputs}
    held = {Layout.HOME, Layout.GIVEN}
    assert not {store.tensor for store in tasks.last_use if store.layout in held} & outputs
    for number, step in enumerate(tasks.steps):
        for name in plan.graph[step.vertex].inputs if step.kind == "compute" else ():
            lives = [last for store, last in tasks.last_use.items() if store.tensor == name]
            assert name in outputs or not lives or max(lives) >= number
