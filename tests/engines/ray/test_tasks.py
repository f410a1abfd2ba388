"""How programs become tasks: all steps, in an order in which no two wait for each other."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.engines.ray.tasks import job_of
from eindecomp.engines.resources import seconds_of
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import Free, Load


@given(
    seed=st.integers(0, 2**32),
    devices=st.integers(1, 8),
    inputs=st.sampled_from(["free", "sharded"]),
    seconds=st.sampled_from([0.0, 1e-7, inf]),
)
def test_every_step_once_and_every_block_before_it_is_needed(seed, devices, inputs, seconds):
    graph = random_graph(seed, tree=False, moves=True)
    program = program_of(ed.plan(graph, devices, inputs=inputs, rewrite=False, time_limit=5))
    job = job_of(program, seconds)
    made = {}
    for task in job.tasks:
        for key in task.needs:
            assert made[key].start < task.start
        for key in task.gives:
            assert key not in made
            assert key[0] == task.device
            made[key] = task
    work = [n for n, step in enumerate(program.steps) if not isinstance(step, Load | Free)]
    for device in range(devices):
        own = [range(t.start, t.stop) for t in job.tasks if t.device == device]
        assert [n for steps in own for n in steps if n in work] == work
    needed = {key for task in job.tasks for key in task.needs}
    outputs = {(d, number) for number in program.outputs.values() for d in range(devices)}
    assert all(key in needed or key[:2] in outputs for key in made)


def _row(step):
    """Ten vertices, each of which reads the one before, on four devices that need no other."""
    lines = [step.format(new=f"Z{k + 1}", old=f"Z{k}") for k in range(10)]
    graph = ed.parse("\n".join(["input Z0[i: 64, j: 64], Y[j, k: 64]", *lines, "output Z10"]))
    return program_of(ed.plan(graph, 4, strategy=["i"], rewrite=False))


def test_what_a_device_does_alone_is_one_task_until_it_is_long():
    program = _row("{new}[i,k] <- max abs({old}[i,j] - Y[j,k])")
    step = seconds_of(program.graph, program.graph["Z1"]) / 4
    assert len(job_of(program, inf).tasks) == 4
    assert len(job_of(program, 0).tasks) == 4 * 10
    assert 4 < len(job_of(program, 2.5 * step).tasks) < 4 * 10


def test_what_takes_as_long_to_hand_over_is_not_handed_over():
    program = _row("{new}[i,j] <- exp({old}[i,j])")
    assert len(job_of(program, 1e-9).tasks) == 4


def test_pieces_are_cut_by_who_has_them():
    """What devices receive is what others pass on, no more."""
    text = "input A[i: 8, k: 8]\nX[i,k] <- exp(A[i,k])\nZ[i] <- sum X[k,i]\noutput Z"
    plan = ed.plan(ed.parse(text), 4, strategy=["i"], rewrite=False)
    job = job_of(program_of(plan), inf)
    foreign = [k for task in job.tasks for k in task.needs if k[0] != task.device]
    sides = [high - low for _, _, box in foreign for low, high in box]
    assert len(foreign) == 4 * 3
    assert set(sides) == {2}
