"""The reference engine: it moves what plans cost, holds what programs say, and shares nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from agreement import agree, arrays_for
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.engines.apart.engine import ApartEngine, ApartProgram
from eindecomp.engines.result import BytesMoved, TaskFinished
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import peak_on
from eindecomp.tra.program.steps import AllGather, Compute, Load, Move, Read, ReduceScatter

MATMUL = "input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"
ASKED = st.sampled_from(["free", "sharded", "sqrt", "pinned"])


def _plan(graph, devices, asked, rng):
    if asked == "sqrt":
        return ed.plan(graph, devices, strategy="sqrt")
    if asked != "pinned":
        return ed.plan(graph, devices, inputs=asked)
    vertex = graph.inputs[int(rng.integers(len(graph.inputs)))]
    pin = {}
    if vertex.labels:
        axis = int(rng.integers(len(vertex.labels)))
        whole = len(set(vertex.labels)) < len(vertex.labels) or vertex.shape[axis] < devices
        pin = {} if whole else {vertex.labels[axis]: devices}
    return ed.plan(graph, devices, pin={vertex.name: pin}, inputs="sharded")


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 16), asked=ASKED, moves=st.booleans())
def test_counted_bytes_peaks_and_results(seed, devices, asked, moves):
    graph = random_graph(seed, tree=False, most=5, moves=moves)
    plan = _plan(graph, devices, asked, np.random.default_rng(seed))
    arrays = arrays_for(graph, seed)
    for vertex in graph.inputs:
        if vertex.dtype.kind in "iu":
            arrays[vertex.name][...] = 0
    found = ed.run(plan, arrays, "apart")
    agree(found, ed.evaluate(graph, arrays), 1e-4)
    agree(ed.run(plan, arrays), found, 1e-4)
    assert found.stats.bytes_moved == plan.cost
    assert found.stats.bytes_by_vertex == {name: plan.costs.of(name) for name in plan.costs.join}
    program = program_of(plan)
    peak = max(peak_on(program, device).bytes for device in range(devices))
    assert found.stats.peak_memory == peak


def test_events_tell_what_was_moved():
    plan = ed.plan(ed.parse(MATMUL), 2, strategy=["j"])
    events = []
    found = ed.run(plan, arrays_for(plan.graph), "apart", on_event=events.append)
    moved = [event for event in events if isinstance(event, BytesMoved)]
    assert [(event.vertex, event.kind) for event in moved] == [("Z", "reduce-scatter")]
    assert sum(event.count for event in moved) == found.stats.bytes_moved == plan.cost
    tasks = [event for event in events if isinstance(event, TaskFinished)]
    assert {event.device for event in tasks} == {0, 1}


def test_a_failing_kernel_names_its_vertex_and_tile():
    text = "input E[v: 4, a: 8], ids[b: 6] int64\nZ[b,a] <- E[ids[b], a]\noutput Z"
    plan = ed.plan(ed.parse(text), 2, strategy=["b"])
    inputs = {"E": np.ones((4, 8), np.float32), "ids": np.array([0, 1, 2, 3, 9, 0])}
    with pytest.raises(ed.RunError, match=r"Z\[b,a\], tile \[3:6, 0:8\] on device 1: index 9 is"):
        ed.run(plan, inputs, "apart")


def _broken(plan, change):
    """The program of a plan with its steps changed."""
    program = program_of(plan)
    return ApartProgram(replace(program, steps=tuple(map(change, program.steps))))


def test_a_device_that_reads_what_it_does_not_hold_fails():
    text = "input A[i: 4, k: 4]\nX[i,k] <- exp(A[i,k])\nZ[i] <- sum X[k,i]\noutput Z"
    plan = ed.plan(ed.parse(text), 2, strategy=["i"], rewrite=False)
    [fetch] = [step for step in program_of(plan).steps if isinstance(step, Move)]

    def read_from_home(step):
        if isinstance(step, Compute) and step.vertex == "Z":
            return replace(step, reads=(Read(fetch.source, step.reads[0].cut),))
        return step

    a = np.ones((4, 4), np.float32)
    with pytest.raises(
        ed.RunError, match=r"device 0 reads X\[0:4, 0:2\] and holds only \[0:2, 0:4"
    ):
        _broken(plan, read_from_home).run({"A": a}, {}, (), None)


def test_devices_share_no_memory():
    """What the caller does to an array after it was placed changes nothing on the devices."""
    plan = ed.plan(ed.parse(MATMUL), 2)
    arrays = arrays_for(plan.graph)
    wanted = arrays["X"] @ arrays["Y"]
    with ed.compile(plan, ApartEngine()) as executable:
        placed = executable.place(arrays)
        arrays["X"][...] = 0
        agree(executable(placed), {"Z": wanted}, 1e-5)


def _without(kind):
    """Leaves the first step of a kind out."""
    left = [True]

    def change(steps):
        kept = []
        for step in steps:
            if left and isinstance(step, kind):
                left.pop()
                continue
            kept.append(step)
        return tuple(kept)

    return change


GATHERED = "input X[i: 8, j: 8], Y[j]\nZ[i] <- sum X[i,j] * Y[j]\nW[i] <- Z[i] + 1\noutput W"


@pytest.mark.parametrize("kind", [AllGather, ReduceScatter, Compute, Load])
def test_a_step_that_is_missing_is_noticed(kind):
    """A device that reads what it never received fails, whatever lies in its memory."""
    pins = {"X": {"j": 4}, "Z": {}, "W": {}}
    plan = ed.plan(ed.parse(GATHERED), 4, pin=pins, rewrite=False)
    program = program_of(plan)
    assert any(isinstance(step, kind) for step in program.steps)
    broken = ApartProgram(replace(program, steps=_without(kind)(program.steps)))
    arrays = arrays_for(plan.graph)
    with pytest.raises(ed.RunError, match=r"device \d (reads|frees|writes to) \w+"):
        broken.run(arrays, {}, (), None)


def test_a_piece_that_never_arrives_is_noticed():
    text = "input A[i: 4, k: 4]\nX[i,k] <- exp(A[i,k])\nZ[i] <- sum X[k,i]\noutput Z"
    plan = ed.plan(ed.parse(text), 2, strategy=["i"], rewrite=False)
    broken = ApartProgram(program_of(plan))
    for row in broken.rows:
        for own in row.steps:
            if own.exchange.receives:
                cut = replace(own.exchange, receives=own.exchange.receives[:-1])
                object.__setattr__(own, "exchange", cut)
    with pytest.raises(ed.RunError, match=r"reads X\[0:4, 0:2\], not all of which has arrived"):
        broken.run({"A": np.ones((4, 4), np.float32)}, {}, (), None)


EMPTY = """
input X[b: 4, a: 0], V[b], Q[r: 2]
Y[b,a] <- X[b,a] * V[b]
Z[r,a] <- max Y[b,a] * V[b] * Q[r]
output Z
"""


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_empty_tensors_run(devices):
    plan = ed.plan(ed.parse(EMPTY), devices, rewrite=False)
    found = ed.run(plan, arrays_for(plan.graph), "apart")
    assert found["Z"].shape == (2, 0)


def test_an_output_that_is_a_fill_is_made_in_shares():
    text = "M[s: 64, t: 64] <- fill t <= s\ninput X[s: 4]\nY[s] <- X[s] + 1\noutput M, Y"
    plan = ed.plan(ed.parse(text), 4, memory=64 * 64 // 4 + 64)
    found = ed.run(plan, arrays_for(plan.graph), "apart")
    assert found.stats.peak_memory <= 64 * 64 // 4 + 64
    np.testing.assert_array_equal(found["M"], np.tri(64, dtype=bool))
    with pytest.raises(ed.PlanError, match="found no plan that fits"):
        ed.plan(plan.graph, 4, memory=64)


def test_results_do_not_depend_on_how_given_arrays_lie():
    graph = random_graph(186, tree=False)
    arrays = arrays_for(graph)
    plan = ed.plan(graph, 4, inputs="sharded")
    turned = {name: np.asfortranarray(array) for name, array in arrays.items()}
    found, again = (ed.run(plan, each, "apart") for each in (arrays, turned))
    for name in found:
        assert found[name].tobytes() == again[name].tobytes()
