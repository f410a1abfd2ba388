"""Lowering: tasks move what the plan costs, and every element needed comes from someone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from transformer import transformer

import eindecomp as ed
from eindecomp.graph.ops import Fill
from eindecomp.lang.einsum import EinSum
from eindecomp.tra.boxes import boxes_of, meet, shares, volume
from eindecomp.tra.lower import lower
from eindecomp.tra.tasks import Layout, Reduce, Replicate, Store

DEVICES = st.sampled_from([1, 2, 3, 4, 6, 8, 12])
SEEDS = st.integers(0, 2**32)
MATMUL = "input X[i: 4, j: 4], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


def _slices(box):
    return tuple(slice(low, high) for low, high in box)


@settings(max_examples=settings.default.max_examples * 5)
@given(
    seed=SEEDS, devices=DEVICES, inputs=st.sampled_from(["free", "sharded"]), moves=st.booleans()
)
def test_tasks_move_what_the_plan_costs(seed, devices, inputs, moves):
    graph = random_graph(seed, tree=False, most=7 if moves else 4, moves=moves)
    plan = ed.plan(graph, devices, inputs=inputs)
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


def _marked(shape, boxes):
    """How often each element is in one of the boxes."""
    seen = np.zeros(shape, dtype=int)
    for box in boxes:
        seen[_slices(box)] += 1
    return seen


def _points(task, vertex):
    """Where a kernel call of an EinSum lies among all that are joined, by label."""
    spans = {}
    op = vertex.op
    for labels, box in zip((op.output, *op.inputs), (task.box, *task.reads), strict=True):
        spans |= {} if box is None else dict(zip(labels, box, strict=True))
    return tuple(sorted(spans.items()))


@given(seed=SEEDS, devices=DEVICES)
def test_kernel_calls_join_everything_once_and_reductions_make_every_result_once(seed, devices):
    plan = ed.plan(random_graph(seed, tree=False), devices)
    for step in lower(plan).steps:
        vertex = plan.graph[step.vertex]
        if step.kind == "compute":
            assert [task.device for task in step.tasks] == list(range(devices))
            assert (_marked(vertex.shape, {task.box for task in step.tasks}) == 1).all()
            if isinstance(vertex.op, EinSum):
                calls = {_points(task, vertex) for task in step.tasks}
                sizes = vertex.sizes
                for name, labels in zip(vertex.inputs, vertex.op.inputs, strict=True):
                    sizes |= plan.graph[name].sizes_by(labels)
                shape = [sizes[label] for label, _ in next(iter(calls))]
                boxes = [tuple(span for _, span in call) for call in calls]
                assert (_marked(shape, boxes) == 1).all()
        elif step.kind == "reduce":
            boxes = {task.box for task in step.tasks if volume(task.box)}
            assert (_marked(vertex.shape, boxes) == 1).all()


def _held(plan, step, steps):
    """What each device has of a tensor before a step in which others send it the rest."""
    first = step.tasks[0]
    if isinstance(first, Replicate):
        [reduced] = [s for s in steps if (s.kind, s.vertex) == ("reduce", step.vertex)]
        return [task.box for task in reduced.tasks]
    tensor, layout = first.store.tensor, first.store.layout
    if layout is Layout.HOME:
        return boxes_of(plan.mesh, plan.decisions[tensor].home)
    if layout is Layout.FURTHER:
        return boxes_of(plan.mesh, plan.decisions[tensor].second)
    wanted = [task.box for task in step.tasks]
    return [shares(box, wanted.count(box))[wanted[:k].count(box)] for k, box in enumerate(wanted)]


@given(seed=SEEDS, devices=DEVICES)
def test_pieces_and_what_is_held_make_what_is_needed(seed, devices):
    plan = ed.plan(random_graph(seed, tree=False), devices, inputs="sharded")
    steps = lower(plan).steps
    for step in steps:
        if step.kind not in ("fetch", "keep", "replicate"):
            continue
        held = _held(plan, step, steps)
        for task in step.tasks:
            tensor = task.vertex if isinstance(task, Replicate) else task.store.tensor
            own = meet(held[task.device], task.box) if volume(held[task.device]) else None
            boxes = [piece.box for piece in task.pieces] + ([own] if own is not None else [])
            needed = _marked(plan.graph[tensor].shape, [task.box])
            assert (_marked(needed.shape, boxes) == needed).all()
            for piece in task.pieces:
                assert piece.source != task.device
                assert meet(held[piece.source], piece.box) == piece.box


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
def test_stores_live_until_the_last_step_that_reads_them(devices):
    plan = ed.plan(transformer(1), devices)
    tasks = lower(plan)
    last = {}
    for number, step in enumerate(tasks.steps):
        if step.kind == "compute":
            for name, box in zip(plan.graph[step.vertex].inputs, step.tasks[0].reads, strict=True):
                if box is not None:
                    last[name] = number
        elif step.kind == "reduce":
            assert tasks.last_use[Store(step.vertex, Layout.PARTIAL)] == number
        elif step.kind in ("keep", "replicate"):
            last[step.vertex] = number
    lives = {}
    for store, number in tasks.last_use.items():
        if store.layout is not Layout.PARTIAL:
            lives[store.tensor] = max(number, lives.get(store.tensor, 0))
    outputs = {vertex.name for vertex in plan.graph.outputs}
    fills = {name for name, vertex in plan.graph.vertices.items() if isinstance(vertex.op, Fill)}
    assert lives == {name: n for name, n in last.items() if name not in outputs | fills}
