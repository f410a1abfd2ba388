"""Objective `bound`: the paper's costs to the element, and its optimum against brute force."""

from __future__ import annotations

import pytest
from brute_bound import brute_bound, check_bound_plan, decompositions
from brute_bytes import prime_axes
from brute_ordered import brute_ordered
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.planner.make import cost, plan

MATMUL = """
input X[i: 8, j: 8], Y[j, k: 8]
Z[i,k] <- sum X[i,j] * Y[j,k]
output Z
"""
HANDOVER = """
input X[i: {0}, j: {1}]
A[i,j] <- exp(X[i,j])
B[i,j] <- exp(A[i,j])
output B
"""
DEVICES = st.sampled_from([2, 3, 4, 6, 8, 12])
SEEDS = st.integers(0, 2**32)
hundreds = settings(max_examples=settings.default.max_examples * 5)


@pytest.mark.parametrize(
    ("parts", "join", "aggregate"),
    [
        ({"i": 2, "j": 2, "k": 4}, 16 * (4 * 4 + 4 * 2), 64),
        ({"i": 4, "j": 1, "k": 4}, 16 * (16 + 16), 0),
        ({"i": 1, "j": 8, "k": 1}, 8 * (8 + 8), 7 * 64),
        ({"i": 1, "j": 1, "k": 1}, 64 + 64, 0),
        # 3 pieces of 8 are at most 3 long.
        ({"i": 3, "j": 1, "k": 1}, 3 * (3 * 8 + 64), 0),
        ({"i": 1, "j": 3, "k": 2}, 6 * (8 * 3 + 3 * 4), 2 * 2 * 8 * 4),
    ],
)
def test_a_matrix_product(parts, join, aggregate):
    found = cost(ed.parse(MATMUL), {"Z": parts}, devices=16)
    assert (found.join["Z"], found.aggregate["Z"]) == (join, aggregate)
    assert found.repartition["Z"] == 0
    assert found.total == join + aggregate


@pytest.mark.parametrize(
    ("shape", "held", "need", "moved"),
    [
        ((8, 8), (2, 4), (4, 1), 320),
        ((8, 8), (2, 4), (2, 4), 0),
        # To finer pieces: nothing is joined, but each comes out of a larger one.
        ((8, 8), (1, 1), (2, 2), 4 * 64),
        # To coarser ones: every piece is joined to the first, and the first is no larger.
        ((8, 8), (2, 2), (1, 1), 3 * (64 + 16)),
        # 2 pieces and 3 meet in 4 pairs; tiles are 6 × 5 and 4 × 5, and so is where they meet.
        ((12, 5), (2, 1), (3, 1), (4 - 3) * (20 + 30) + 30 * 3),
        ((7, 1), (2, 1), (4, 1), 4 * 4),
    ],
)
def test_a_handover(shape, held, need, moved):
    graph = ed.parse(HANDOVER.format(*shape))
    parts = {"A": dict(zip("ij", held, strict=True)), "B": dict(zip("ij", need, strict=True))}
    found = cost(graph, parts, devices=8)
    assert found.repartition == {"A": 0, "B": moved}
    assert found.edges == {("A", "B", 0): moved}


def test_given_inputs_come_in_any_partition():
    found = cost(ed.parse(HANDOVER.format(8, 8)), {"A": {"i": 8}, "B": {"i": 8}}, devices=8)
    assert found.total == found.join["A"] + found.join["B"] == 64 + 64


@hundreds
@given(seed=SEEDS, tree=st.booleans(), devices=DEVICES)
def test_exact_equals_brute_force(seed, tree, devices):
    graph = random_graph(seed, tree=tree)
    assume(decompositions(graph, devices) <= 100_000)
    best = brute_bound(graph, devices)
    for solver in ("exact", "auto"):
        found = plan(graph, devices, objective="bound", solver=solver, rewrite=False)
        assert found.cost == found.bound == best
        assert found.gap == 0
        check_bound_plan(found)


@hundreds
@given(seed=SEEDS, devices=DEVICES, inputs=st.sampled_from(["free", "sharded"]))
def test_axes_are_then_given_so_that_least_moves(seed, devices, inputs):
    graph = random_graph(seed, tree=False, most=3)
    found = plan(graph, devices, objective="bound", inputs=inputs, rewrite=False)
    best = brute_ordered(graph, prime_axes(devices), inputs, parts=found.parts)
    assert found.traffic.total == best
    assert cost(graph, found.parts, devices, "bytes", inputs=inputs).total == best
