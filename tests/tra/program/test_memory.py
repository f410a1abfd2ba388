"""The memory model of programs keeps to what plans were promised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import peak_on

MATMUL = "input X[i: 8, j: 8], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


@given(seed=st.integers(0, 2**32), devices=st.sampled_from([2, 3, 4, 6]))
def test_a_plan_under_a_limit_has_a_program_within_it(seed, devices):
    graph = random_graph(seed, tree=False, most=3)
    whole = sum(v.elements * v.dtype.itemsize for v in graph.vertices.values())
    for memory in (whole, whole // 2, whole // devices):
        try:
            plan = ed.plan(graph, devices, memory=memory)
        except ed.PlanError:
            continue
        program = program_of(plan)
        assert max(peak_on(program, device).bytes for device in range(devices)) <= memory


@pytest.mark.parametrize(
    ("strategy", "elements"),
    [
        (["i"], 32 + 64 + 32),  # its rows, all of Y, its rows of the result
        # Half of X and of Y, a partial result, half of the result, and two blocks of a half.
        (["j"], 32 + 32 + 64 + 32 + 2 * 32),
    ],
)
def test_what_a_product_takes(strategy, elements):
    program = program_of(ed.plan(ed.parse(MATMUL), 2, strategy=strategy))
    for device in range(2):
        peak = peak_on(program, device)
        assert peak.bytes == 4 * elements
        assert peak.vertex == "Z"
