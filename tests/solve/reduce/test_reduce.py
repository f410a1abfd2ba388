"""Reductions keep the optimum, and every choice of the core stands for one of the problem."""

from __future__ import annotations

import numpy as np
from brute import all_choices, brute_force, random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.errors import InfeasibleError
from eindecomp.solve.problem.core import core_of
from eindecomp.solve.reduce.reduce import reduce_core


def _optimum(core):
    fitting = (x for x in all_choices(core) if np.all(core.slack_of(x) >= 0))
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
    for choice in all_choices(reduced.core):
        lifted = reduced.lift(choice)
        cost = reduced.core.cost_of(choice)
        assert cost == problem.cost_of(lifted)
        if np.isfinite(cost):
            fits = bool(np.all(reduced.core.slack_of(choice) >= 0))
            assert fits == problem.feasible(lifted)
