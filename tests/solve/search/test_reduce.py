"""Reductions keep the optimum, and every choice of the core stands for one of the problem."""

from __future__ import annotations

import numpy as np
from brute import all_choices, brute_force, random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.errors import InfeasibleError
from eindecomp.solve.problem.core import arc_graph_of, core_of, cost_of, usage_over_steps
from eindecomp.solve.search.reduce import reduce_core


def _fits(graph, choice):
    return bool(np.all(usage_over_steps(graph, choice) <= graph.capacity))


def _optimum(core):
    graph = arc_graph_of(core)
    fitting = (x for x in all_choices(core) if _fits(graph, x))
    return min((core.constant + cost_of(graph, x) for x in fitting), default=np.inf)


@settings(max_examples=settings.default.max_examples * 2)
@given(seed=st.integers(0, 2**32), limited=st.booleans())
def test_reduction_keeps_the_optimum(seed, limited):
    problem = random_problem(seed, limited=limited)
    best = brute_force(problem)
    try:
        reduced = reduce_core(core_of(problem))
    except InfeasibleError:
        assert best == np.inf
        return
    assert _optimum(reduced.core) == best
    graph = arc_graph_of(reduced.core)
    for choice in all_choices(reduced.core):
        lifted = reduced.lift(choice)
        cost = reduced.core.constant + cost_of(graph, choice)
        assert cost == problem.cost_of(lifted)
        if np.isfinite(cost):
            assert _fits(graph, choice) == problem.feasible(lifted)
