from __future__ import annotations

import numpy as np
import pytest

from eindecomp.solve import Problem
from eindecomp.solve.exact import eliminate as eliminating
from eindecomp.solve.exact.eliminate import WORK, eliminate, project
from eindecomp.solve.exact.least_of_sum import least_of_sum, minimum_of_sum
from eindecomp.solve.exact.order import elimination_order, improved_order
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
def test_minimisers_that_are_found_afterwards_are_as_good(seed, monkeypatch):
    problem, network = network_of(seed)
    noted = eliminate(network, np.inf)
    monkeypatch.setattr(eliminating, "_WIDE", 5)
    found = eliminate(network, np.inf)
    assert problem.cost_of(found) == problem.cost_of(noted) < np.inf


@pytest.mark.parametrize("seed", range(20))
def test_a_projection_is_the_same_in_any_order(seed, monkeypatch):
    problem, network = network_of(seed)
    plain = project(network, (1, 3), np.inf)
    monkeypatch.setattr(eliminating, "_WIDE", 5)
    improved = project(network, (1, 3), np.inf, WORK + 1)
    assert np.array_equal(plain.table, improved.table)
    kept = {v: np.arange(n) for v, n in ((1, 4), (3, 4))}
    choice = improved.backtrack(kept) | kept
    for k in range(4):
        cost = problem.cost_of(np.array([choice[v][k] for v in range(len(SIZES))]))
        assert cost == plain.table[k, k]


@pytest.mark.parametrize("seed", range(10))
def test_an_improved_order_takes_no_more_work(seed):
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(2, 40, 12).tolist())
    _, network = network_of(seed, sizes)
    greedy = elimination_order(network, (0,), WORK)
    improved = improved_order(network, (0,), WORK, greedy)
    assert sorted(improved.variables) == sorted(greedy.variables)
    assert improved.work <= greedy.work


@pytest.mark.parametrize("seed", range(10))
def test_the_minimum_alone_is_that_of_the_sum(seed):
    rng = np.random.default_rng(seed)
    shape = (6, 5, 3, 4)
    parts = [rng.random((6, 5, 3, 1)), rng.random((6, 1, 3, 4)), rng.random((6, 5, 1, 1))]
    parts[2][rng.random(parts[2].shape) < 0.9] = np.inf
    joined = sum(parts)
    least, best = least_of_sum(parts, shape)
    assert np.allclose(least, joined.min(axis=0))
    assert np.array_equal(best, joined.argmin(axis=0))
    assert np.array_equal(minimum_of_sum(parts, shape), least)
