"""The paper's linearisation: valid, never better than the optimum, and blind across paths."""

from __future__ import annotations

from brute_bound import bound_of, brute_bound, check_bound_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.planner.make import plan

DEVICES = st.sampled_from([2, 3, 4, 6, 8, 12])
SEEDS = st.integers(0, 2**32)
hundreds = settings(max_examples=settings.default.max_examples * 5)


@hundreds
@given(seed=SEEDS, devices=DEVICES)
def test_the_linearisation_is_valid_and_never_better(seed, devices):
    graph = random_graph(seed, tree=False, most=10)
    found = plan(graph, devices, objective="bound", solver="linear", rewrite=False)
    exact = plan(graph, devices, objective="bound", solver="exact", rewrite=False)
    assert found.bound <= exact.cost <= found.cost
    check_bound_plan(found)


def test_the_linearisation_does_not_see_across_paths():
    """Z2 is planned on its own, after the path from Z0 to Z1."""
    graph = ed.parse("""
    input X[i: 12, j: 12]
    Z0[i] <- max X[i,j]
    Z1[] <- sum Z0[i]
    Z2[i,k: 12] <- Z0[i] * 2
    output Z1, Z2
    """)
    linear = plan(graph, 8, objective="bound", solver="linear", rewrite=False)
    exact = plan(graph, 8, objective="bound", rewrite=False)
    assert exact.cost == brute_bound(graph, 8) < linear.cost == bound_of(graph, linear.parts)
    assert linear.gap > 0
