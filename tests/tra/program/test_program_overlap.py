"""Communication that begins early and ends late: in an order that works, in the same memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.models.paper_graphs import ffnn
from eindecomp.planner.space.strategy import applicable
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.overlap import StepPart, overlapped
from eindecomp.tra.program.steps import AllGather, Compute, Free, Move, ReduceScatter, used_by

CHAIN = """
input X[i: 64, j: 64], V[j, k: 64], W[k, l: 64]
A[i,k] <- sum X[i,j] * V[j,k]
B[i,j] <- exp(X[i,j])
C[i,l] <- sum A[i,k] * W[k,l]
output B, C
"""
STRATEGY = {"labels": {"A": ["i"], "B": ["i"], "C": ["l"]}}


@given(
    seed=st.integers(0, 10_000),
    devices=st.sampled_from([2, 3, 4, 6]),
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_every_step_is_carried_out_once_and_in_time(seed, devices, inputs):
    check_order(ed.plan(random_graph(seed, tree=False), devices, inputs=inputs))


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_training_reads_nothing_that_is_still_under_way(devices):
    """Results of reductions that end late are gathered again early in such graphs."""
    graph = ffnn(128, 8192, 512, 3648, optimizer="sgd")
    check_order(ed.plan(graph, devices))
    for name in applicable(graph, devices):
        check_order(ed.plan(graph, devices, strategy=name))


def check_order(plan):
    """What is read is there, what is sent is not freed, and every step is carried out once."""
    program = program_of(plan)
    there, under_way, freed, done = set(), {}, set(), []
    for part in overlapped(program):
        number, step = part.step, program.steps[part.step]
        if part.begins and part.ends:
            if isinstance(step, Free):
                assert all(step.buffer != source for source in under_way.values())
                freed.add(step.buffer)
            else:
                makes = () if isinstance(step, AllGather) else (step.into,)
                assert {*used_by(step)} - {*makes} <= there - freed
                there.update(used_by(step))
            done.append(number)
        elif part.begins:
            assert isinstance(step, Move | ReduceScatter | AllGather)
            assert step.source in there - freed
            under_way[number] = step.source
            if isinstance(step, AllGather):
                there.discard(step.source)  # nobody may read it before it is complete
        else:
            assert under_way.pop(number) not in freed
            there.add(step.into)
            done.append(number)
    assert not under_way
    assert sorted(done) == list(range(len(program.steps)))


def test_a_move_runs_beside_what_does_not_need_it():
    plan = ed.plan(ed.parse(CHAIN), 2, strategy=STRATEGY, rewrite=False)
    program = program_of(plan)
    parts = overlapped(program)
    [moved] = [k for k, step in enumerate(program.steps) if isinstance(step, Move)]
    begin, end = StepPart(moved, ends=False), StepPart(moved, begins=False)
    between = parts[parts.index(begin) : parts.index(end)]
    steps = [program.steps[part.step] for part in between]
    assert any(isinstance(step, Compute) and step.vertex == "B" for step in steps)


def test_what_is_needed_first_begins_first():
    """Both weights could be gathered from the beginning on; the first product needs B."""
    text = """
    input A[i: 64, j: 64], C[k: 64, l: 64], B[j, k]
    Y[i,k] <- sum A[i,j] * B[j,k]
    Z[i,l] <- sum Y[i,k] * C[k,l]
    T[i,l,m: 8] <- Z[i,l]
    output T
    """
    pin = {"A": {"i": 2}, "B": {"j": 2}, "C": {"k": 2}}
    plan = ed.plan(
        ed.parse(text), 2, strategy=["i"], inputs="sharded", pin=pin, rewrite=False
    )  # fmt: skip
    program = program_of(plan)
    places = {part: place for place, part in enumerate(overlapped(program))}
    gathers = [k for k, step in enumerate(program.steps) if isinstance(step, Move)]
    products = [k for k, step in enumerate(program.steps) if isinstance(step, Compute)]
    assert len(gathers) == 2
    first, second, product = StepPart(gathers[0]), StepPart(gathers[1], ends=False), products[0]
    assert places[first] < places[second] < places[StepPart(product)]
