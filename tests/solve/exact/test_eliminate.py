from __future__ import annotations

import numpy as np
import pytest

from eindecomp.solve import Problem
from eindecomp.solve.exact.eliminate import project
from eindecomp.solve.exact.table_loops import least_of_sum
from eindecomp.solve.problem.cost_network import CostNetwork

SIZES = (3, 4, 2, 5, 3, 4)


def network_of(seed: int, sizes: tuple[int, ...] = SIZES) -> tuple[Problem, CostNetwork]:
    """A ring with chords and a table over three variables; some tables are mostly ∞."""
    rng = np.random.default_rng(seed)
    count = len(sizes)
    edges = [(i, (i + step) % count) for step in (1, 2) for i in range(count)]
    tables = [rng.integers(0, 99, (sizes[u], sizes[v])).astype(float) for u, v in edges]
    for table in tables[::3]:
        table[rng.random(table.shape) < 0.8] = np.inf
        table[0, :] = table[:, 0] = 50.0
    factor = ((0, 2, 4), rng.integers(0, 99, (sizes[0], sizes[2], sizes[4])).astype(float))
    unary = [rng.integers(0, 99, n).astype(float) for n in sizes]
    problem = Problem.of(unary, edges, tables, [factor])
    return problem, CostNetwork.of_problem(problem)


@pytest.mark.parametrize("seed", range(20))
def test_a_projection_costs_what_its_best_choices_do(seed):
    problem, network = network_of(seed)
    projection = project(network, (1, 3), np.inf)
    kept = {v: np.arange(n) for v, n in ((1, 4), (3, 4))}
    choice = projection.backtrack(kept) | kept
    for k in range(4):
        cost = problem.cost_of(np.array([choice[v][k] for v in range(len(SIZES))]))
        assert cost == projection.table[k, k]


@pytest.mark.parametrize("seed", range(10))
def test_compiled_loops_find_the_minimum_of_a_sum(seed):
    rng = np.random.default_rng(seed)
    shape = (6, 5, 3, 4)
    parts = [rng.random((6, 5, 3, 1)), rng.random((6, 1, 3, 4)), rng.random((6, 5, 1, 1))]
    parts[2][rng.random(parts[2].shape) < 0.9] = np.inf
    joined = sum(parts)
    least, best = least_of_sum(parts, shape)
    assert np.allclose(least, joined.min(axis=0))
    assert np.array_equal(best, joined.argmin(axis=0))
