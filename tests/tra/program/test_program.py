"""Programs: they move what the plan costs, and every device's row fits those of the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from transformer import transformer

import eindecomp as ed
from eindecomp.lang.einsum import EinSum
from eindecomp.layout.boxes import inside, meet, volume
from eindecomp.layout.tiling import Tiling, box_on
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Load,
    Move,
    ReduceScatter,
    Role,
    used_by,
)

DEVICES = st.sampled_from([1, 2, 3, 4, 6, 8, 12])
SEEDS = st.integers(0, 2**32)
INPUTS = st.sampled_from(["free", "sharded"])
MATMUL = "input X[i: 4, j: 4], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


def _slices(box):
    return tuple(slice(low, high) for low, high in box)


def _marked(shape, boxes):
    """How often each element is in one of the boxes."""
    seen = np.zeros(shape, dtype=int)
    for box in boxes:
        if volume(box):
            seen[_slices(box)] += 1
    return seen


@settings(max_examples=settings.default.max_examples * 5)
@given(seed=SEEDS, devices=DEVICES, inputs=INPUTS, moves=st.booleans())
def test_a_program_moves_what_the_plan_costs(seed, devices, inputs, moves):
    graph = random_graph(seed, tree=False, most=7 if moves else 4, moves=moves)
    plan = ed.plan(graph, devices, inputs=inputs)
    program = program_of(plan)
    program.verify()
    assert program.moved == plan.cost
    kinds = program.bytes_by_kind
    assert kinds["reduce-scatter"] + kinds["all-gather"] == sum(plan.costs.aggregate.values())
    for name in plan.parts:
        assert program.bytes_by_vertex[name] == plan.costs.of(name)


@given(seed=SEEDS, devices=DEVICES, inputs=INPUTS)
def test_rows_add_up_to_the_program(seed, devices, inputs):
    """What a device receives from another is what that one sends to it, step by step."""
    plan = ed.plan(random_graph(seed, tree=False, moves=bool(seed % 2)), devices, inputs=inputs)
    program = program_of(plan)
    rows = [program.on(device) for device in range(devices)]
    assert sum(row.received for row in rows) == sum(row.sent for row in rows) == program.moved
    for number in range(len(program.steps)):
        received, sent = Counter(), Counter()
        for device, row in enumerate(rows):
            own = row.steps[number].exchange
            received.update((t.peer, device, t.box) for t in own.receives)
            sent.update((device, t.peer, t.box) for t in own.sends)
        assert received == sent


@given(seed=SEEDS, devices=DEVICES)
def test_any_strategy_and_objective_has_a_program(seed, devices):
    graph = random_graph(seed, tree=True)
    for asked in ({"strategy": "sqrt"}, {"objective": "bound"}, {"objective": "time"}):
        machine = "cpu-cluster" if "time" in asked.values() else None
        plan = ed.plan(graph, devices, machine=machine, **asked)
        assert program_of(plan).moved == plan.traffic.total


def _points(own, vertex):
    """Where a kernel call of an EinSum lies among all that are joined, by label."""
    spans = {}
    op = vertex.op
    for labels, box in zip((op.output, *op.inputs), (own.box, *own.reads), strict=True):
        spans |= {} if box is None else dict(zip(labels, box, strict=True))
    return tuple(sorted(spans.items()))


@given(seed=SEEDS, devices=DEVICES)
def test_kernel_calls_join_everything_once_and_reductions_make_every_result_once(seed, devices):
    plan = ed.plan(random_graph(seed, tree=False), devices)
    program = program_of(plan)
    rows = [program.on(device) for device in range(devices)]
    for number, step in enumerate(program.steps):
        own = [row.steps[number] for row in rows]
        if isinstance(step, Compute):
            vertex = plan.graph[step.vertex]
            assert (_marked(vertex.shape, {each.box for each in own}) == 1).all()
            if isinstance(vertex.op, EinSum):
                calls = {_points(each, vertex) for each in own}
                sizes = plan.graph.label_sizes(vertex)
                shape = [sizes[label] for label, _ in next(iter(calls))]
                boxes = [tuple(span for _, span in call) for call in calls]
                assert (_marked(shape, boxes) == 1).all()
        elif isinstance(step, ReduceScatter):
            shape = plan.graph[step.vertex].shape
            assert (_marked(shape, {each.box for each in own}) == 1).all()


@given(seed=SEEDS, devices=DEVICES)
def test_what_is_held_and_what_arrives_make_what_is_wanted(seed, devices):
    plan = ed.plan(random_graph(seed, tree=False), devices, inputs="sharded")
    program = program_of(plan)
    for step in program.steps:
        if not isinstance(step, Move | AllGather):
            continue
        if isinstance(step, Move):
            buffer, held = program.buffers[step.into], program.buffers[step.source].tiling
        else:
            buffer = program.buffers[step.buffer]
            held = Tiling(buffer.tiling.cut, step.axes)
        for device in range(devices):
            [own] = [s for s in program.on(device) if s.step is step]
            mine = held.box(plan.mesh, device)
            kept = meet(mine, own.box) if volume(mine) and volume(own.box) else None
            arrives = [t.box for t in own.exchange.receives]
            wanted = _marked(plan.graph[buffer.tensor].shape, [own.box])
            got = _marked(wanted.shape, arrives + ([kept] if kept is not None else []))
            assert (got == wanted).all()
            for transfer in own.exchange.receives:
                assert transfer.peer != device
                assert inside(transfer.box, held.box(plan.mesh, transfer.peer))


@given(seed=SEEDS, devices=DEVICES, inputs=INPUTS)
def test_operands_are_read_from_buffers_that_hold_them(seed, devices, inputs):
    """Each operand is told by its own buffer, also where one tensor is read twice."""
    plan = ed.plan(random_graph(seed, tree=False, moves=True), devices, inputs=inputs)
    program = program_of(plan)
    for step in program.steps:
        if not isinstance(step, Compute):
            continue
        inputs_of = program.computed_by(step).inputs
        for name, read in zip(inputs_of, step.reads, strict=True):
            if read is not None:
                buffer = program.buffers[read.buffer]
                assert buffer.tensor == name
                for device in range(devices):
                    needed = box_on(plan.mesh, read.cut, device)
                    assert inside(needed, buffer.box(plan.mesh, device))


@pytest.mark.parametrize("devices", [2, 8])
def test_buffers_live_until_the_last_step_that_uses_them(devices):
    program = program_of(ed.plan(transformer(1), devices))
    born, last, freed = {}, {}, {}
    for number, step in enumerate(program.steps):
        for buffer in used_by(step):
            born.setdefault(buffer, number)
            if isinstance(step, Free):
                assert buffer not in freed
                freed[buffer] = number
            else:
                assert buffer not in freed
                last[buffer] = number
    kept = {b.number for b in program.buffers if b.role is Role.GIVEN} | {*program.outputs.values()}
    assert freed.keys() == {b.number for b in program.buffers} - kept
    views = {b.alias_of: last[b.number] for b in program.buffers if b.alias_of is not None}
    for buffer, number in freed.items():
        # Nothing comes between the last use and the release but other releases.
        until = max(last[buffer], views.get(buffer, 0))
        assert all(isinstance(step, Free) for step in program.steps[until + 1 : number])


def test_reductions_have_an_order():
    program = program_of(ed.plan(ed.parse(MATMUL), 4, strategy=["j"]))
    orders = [own.members for d in range(4) for own in program.on(d) if own.members]
    assert orders == [(0, 1, 2, 3)] * 4


def test_the_same_tensor_read_twice_is_fetched_for_each_operand():
    text = "input A[i: 4, k: 4]\nX[i,k] <- exp(A[i,k])\nZ[i,m] <- sum X[i,k] * X[k,m]\noutput Z"
    program = program_of(ed.plan(ed.parse(text), 2, strategy=["i"], rewrite=False))
    [compute] = [s for s in program.steps if isinstance(s, Compute) and s.vertex == "Z"]
    first, second = compute.reads
    assert program.buffers[first.buffer].role is Role.HOME
    assert program.buffers[second.buffer].role is Role.PIECE


def test_a_program_prints():
    text = str(program_of(ed.plan(ed.parse(MATMUL), 2, strategy=["j"])))
    assert text.splitlines()[0] == (
        "5 steps on 2 devices: 2 load, 1 compute, 1 reduce-scatter, 1 free"
    )
    assert "64 bytes move" in text
    assert "compute Z (partial)#2 from X#0, Y#1" in text
    assert "reduce-scatter Z (partial)#2 to Z#3 over axis0: 64 bytes" in text


def test_a_program_in_another_order_is_refused():
    program = program_of(ed.plan(ed.parse(MATMUL), 2, strategy=["j"]))
    load, other, compute, reduce, free = program.steps
    for broken in (
        (compute, load, other, reduce, free),  # reads what nobody has loaded
        (load, other, compute, free, reduce),  # reads what is freed
        (load, load, other, compute, reduce, free),  # makes a buffer twice
    ):
        with pytest.raises(ed.PlanError, match="cannot be carried out where it stands: "):
            replace(program, steps=broken).verify()
    with pytest.raises(ed.PlanError, match="no step leaves Z, an output"):
        replace(program, steps=(load, other, compute, free)).verify()


def test_a_program_for_many_devices_lists_none_of_them():
    text = "input A[i: 4096, j: 4096], B[j, k: 4096], C[k, n: 4096]\n"
    text += "X[i,k] <- sum A[i,j] * B[j,k]\nZ[i,n] <- sum X[i,k] * C[k,n]\noutput Z"
    plan = ed.plan(ed.parse(text), 1024, inputs="sharded", strategy="sqrt", rewrite=False)
    program = program_of(plan)
    assert len(program.steps) < 20
    assert program.moved == plan.cost
    rows = [program.on(device) for device in (0, 1, 511, 1023)]
    assert len({row.received for row in rows}) == 1  # even cuts: all receive as much
    assert rows[0].received * 1024 == program.moved
    assert all(isinstance(step, Load) for step in program.steps[:3])
