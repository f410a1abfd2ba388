"""The paper's dynamic program: optimal on trees, and only for trees."""

from __future__ import annotations

import pytest
from brute_bound import check_bound_plan, made
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

from eindecomp.errors import PlanError
from eindecomp.planner.make import plan

DEVICES = st.sampled_from([2, 3, 4, 6, 8, 12])
SEEDS = st.integers(0, 2**32)
hundreds = settings(max_examples=settings.default.max_examples * 5)


@hundreds
@given(seed=SEEDS, devices=DEVICES)
def test_the_tree_program_is_exact_on_trees(seed, devices):
    graph = random_graph(seed, tree=True, most=8)
    found = plan(graph, devices, objective="bound", solver="tree", rewrite=False)
    exact = plan(graph, devices, objective="bound", solver="exact", rewrite=False)
    assert found.cost == found.bound == exact.cost
    check_bound_plan(found)


@given(seed=SEEDS, devices=DEVICES)
def test_the_tree_program_names_the_vertex_that_is_read_twice(seed, devices):
    graph = random_graph(seed, tree=False)
    reads = [n for v in made(graph) for n in v.inputs if graph[n].inputs]
    twice = {name for name in reads if reads.count(name) > 1}
    if not twice:
        plan(graph, devices, objective="bound", solver="tree", rewrite=False)
        return
    with pytest.raises(PlanError, match="not a tree") as raised:
        plan(graph, devices, objective="bound", solver="tree", rewrite=False)
    assert any(str(graph[name]) in str(raised.value) for name in twice)
