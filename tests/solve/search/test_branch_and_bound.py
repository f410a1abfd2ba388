"""The proofs that branch and bound rests on: bounds stay below the optimum, fixing is safe."""

from __future__ import annotations

import numpy as np
from brute import all_choices, random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.solve.problem.core import arc_graph_of, core_of, cost_of, penalised, usage_over_steps
from eindecomp.solve.search.branch_and_bound import fix_choices, propagate
from eindecomp.solve.search.close_gap import finite
from eindecomp.solve.search.lagrangian import Ascent
from eindecomp.solve.search.substitute import keep_choices, substitute


@settings(max_examples=settings.default.max_examples * 2)
@given(seed=st.integers(0, 2**32), limited=st.booleans(), iterations=st.integers(1, 40))
def test_bounds_and_fixing_are_proofs(seed, limited, iterations):
    problem = random_problem(seed, limited=limited)
    plain = core_of(problem)
    merged = substitute(plain, keep_choices(plain, np.ones(plain.unary.size, dtype=bool)))
    core, _ = finite(merged)
    if core.size == 0:
        return
    graph = arc_graph_of(core)
    fitting = [x for x in all_choices(core) if np.all(usage_over_steps(graph, x) <= graph.capacity)]
    costs = np.array([cost_of(graph, x) for x in fitting])
    ascent = Ascent.begin(graph)
    for _ in range(iterations):
        ascent.iterate(float(costs.min(initial=50.0)))
    assert ascent.bound <= costs.min(initial=np.inf)
    if costs.size == 0:
        return
    keep = np.ones(core.unary.size, dtype=np.bool_)
    cutoff = float(np.quantile(costs, 0.3))
    alive = propagate(graph, keep) and fix_choices(
        graph, penalised(graph, ascent.best_price), ascent.messages, keep, cutoff, ascent.best_price
    )
    assert alive
    for choice, cost in zip(fitting, costs, strict=True):
        if cost <= cutoff:
            assert keep[graph.offset[:-1] + choice].all()
