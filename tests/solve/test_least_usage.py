"""The least that a choice uses at its fullest step, against every choice there is."""

from __future__ import annotations

import numpy as np
import pytest
from brute import all_choices, random_problem
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.solve import InfeasibleError
from eindecomp.solve.clock import planning_time
from eindecomp.solve.least_usage import least_usage


@given(seed=st.integers(0, 2**32), factors=st.booleans())
def test_no_choice_uses_less(seed, factors):
    problem = random_problem(seed, limited=True, integral=True, factors=factors)
    used = [
        problem.usage_of(each).max(initial=0)
        for each in all_choices(problem)
        if np.isfinite(problem.cost_of(each))
    ]
    if not used:
        with pytest.raises(InfeasibleError):
            least_usage(problem, planning_time() + 20)
        return
    choice = least_usage(problem, planning_time() + 20)
    assert np.isfinite(problem.cost_of(choice))
    assert problem.usage_of(choice).max(initial=0) == min(used)
