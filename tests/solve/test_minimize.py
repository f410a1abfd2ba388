from __future__ import annotations

import numpy as np
import pytest
from brute import brute_force, random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.solve import InfeasibleError, Problem, ProblemError, minimize


@settings(max_examples=settings.default.max_examples * 5)
@given(
    seed=st.integers(0, 2**32),
    limited=st.booleans(),
    integral=st.booleans(),
    factors=st.booleans(),
    method=st.sampled_from(["auto", "search"]),
)
def test_exact_equals_brute_force(seed, limited, integral, factors, method):
    problem = random_problem(seed, limited=limited, integral=integral, factors=factors)
    best = brute_force(problem)
    if np.isinf(best):
        with pytest.raises(InfeasibleError):
            minimize(problem, method=method, time_limit=20)
        return
    found = minimize(problem, method=method, time_limit=20)
    assert found.cost == problem.cost_of(found.choice)
    assert problem.feasible(found.choice)
    assert found.optimal
    assert found.cost == pytest.approx(best, rel=1e-12, abs=1e-12)
    assert found.bound <= found.cost


def test_unknown_method_is_refused():
    with pytest.raises(ProblemError, match="none of"):
        minimize(Problem.of([[1, 2]]), method="magic")


def test_overfull_step_is_named():
    problem = Problem.of([[0], [0]], usage=[[3], [4]], intervals=[[2, 5], [4, 6]], limit=6)
    with pytest.raises(InfeasibleError, match="time step 4"):
        minimize(problem)
