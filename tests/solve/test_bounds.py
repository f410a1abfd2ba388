"""Laws that proofs rest on: reductions keep the optimum, bounds stay below it, fixing is safe."""

from __future__ import annotations

from itertools import product

import numpy as np
from brute import brute_force, random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.errors import InfeasibleError
from eindecomp.solve.branch import fix_choices, propagate
from eindecomp.solve.close import finite
from eindecomp.solve.core import core_of
from eindecomp.solve.graph import cost_of, graph_of, penalised, usage_over_steps
from eindecomp.solve.limit import Ascent
from eindecomp.solve.reduce import keep_choices, reduce_core
from eindecomp.solve.substitute import substitute


def _choices(core):
    for choice in product(*(range(d) for d in core.domains.tolist())):
        yield np.array(choice, dtype=np.int64)


def _optimum(core):
    fitting = (x for x in _choices(core) if np.all(core.slack_of(x) >= 0))
    return min((core.cost_of(x) for x in fitting), default=np.inf)


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
    for choice in _choices(reduced.core):
        lifted = reduced.lift(choice)
        cost = reduced.core.cost_of(choice)
        assert cost == problem.cost_of(lifted)
        if np.isfinite(cost):
            fits = bool(np.all(reduced.core.slack_of(choice) >= 0))
            assert fits == problem.feasible(lifted)


@settings(max_examples=settings.default.max_examples * 2)
@given(seed=st.integers(0, 2**32), limited=st.booleans(), iterations=st.integers(1, 40))
def test_bounds_and_fixing_are_proofs(seed, limited, iterations):
    problem = random_problem(seed, limited=limited)
    plain = core_of(problem)
    merged = substitute(plain, keep_choices(plain, np.ones(plain.unary.size, dtype=bool)))
    core, _ = finite(merged)
    if core.size == 0:
        return
    graph = graph_of(core)
    fitting = [x for x in _choices(core) if np.all(usage_over_steps(graph, x) <= graph.capacity)]
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
