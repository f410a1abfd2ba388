"""A second cost decides between choices of equal cost."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.solve import INFINITE, InfeasibleError, Problem, minimize
from eindecomp.solve.minimize import minimize_ranked, rank


def random_problem(seed: int, most: int) -> tuple[Problem, np.ndarray]:
    """Few distinct costs, so that many choices cost the same; now and then ∞."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, rng.integers(1, 5))

    def costs(*shape: int) -> np.ndarray:
        table = rng.integers(0, 3, shape) * rng.choice([1, 6, most])
        return np.where(rng.random(shape) < 0.05, INFINITE, table)

    pairs = [(u, v) for u in range(len(sizes)) for v in range(u) if rng.random() < 0.6]
    factors = []
    if len(sizes) > 2 and rng.random() < 0.5:
        factors = [((0, 1, 2), costs(*sizes[:3]))]
    unary = [costs(n) for n in sizes]
    tables = [costs(sizes[u], sizes[v]) for u, v in pairs]
    second = rng.integers(0, 50, int(sizes.sum()))
    return Problem.of(unary, pairs, tables, factors), second


@given(seed=st.integers(0, 2**32), most=st.sampled_from([1, 8, 1 << 30]))
def test_of_the_cheapest_choices_one_with_the_least_second_cost(seed, most):
    problem, second = random_problem(seed, most)

    def rank_of(choice) -> tuple[float, int]:
        return problem.cost_of(choice), int(second[problem.offset[:-1] + choice].sum())

    every = [np.array(c) for c in product(*(range(n) for n in problem.domains))]
    best = min(map(rank_of, every))
    if np.isinf(best[0]):
        with pytest.raises(InfeasibleError):
            minimize_ranked(problem, second)
        return
    solution = minimize_ranked(problem, second)
    assert rank_of(solution.choice) == best
    assert (solution.cost, solution.bound, solution.optimal) == (best[0], best[0], True)


def test_digits_of_the_second_cost_that_have_no_room_are_dropped():
    problem = Problem.of([[1, 1, 2], [2**40 + 1, 2**40]])
    second = np.array([2**40 + 2**39, 2**40, 0, 0, 1])
    solution = minimize_ranked(problem, second)
    assert solution.choice.tolist() == [1, 1]
    assert solution.cost == solution.bound == 2**40 + 1


def test_costs_that_leave_no_room_are_not_ranked():
    problem = Problem.of([[1, 1], [2**52 + 1, 2**52]])
    second = np.array([2**20, 0, 0, 0])
    assert rank(problem, second) is None
    assert minimize_ranked(problem, second).cost == minimize(problem).cost


def test_costs_that_are_not_integers_are_not_ranked():
    problem = Problem.of([[0.5, 0.5]])
    assert rank(problem, np.array([1, 0])) is None
    assert minimize_ranked(problem, np.array([1, 0])).cost == 0.5
