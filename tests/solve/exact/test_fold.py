from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest

from eindecomp.solve import Problem, minimize
from eindecomp.solve.exact.fold import fold, min_plus_power
from eindecomp.solve.problem.cost_network import CostNetwork, share_equal


def chain(layers: int, width: int, choices: int, seed: int, crossing: int = 1) -> Problem:
    """Equal layers, `crossing` edges from each to the next."""
    rng = np.random.default_rng(seed)
    inner = [(i, i + 1) for i in range(width - 1)] + [(0, width - 1)]
    tables = [rng.integers(0, 9, (choices, choices)) for _ in range(len(inner) + crossing)]
    layer = [rng.integers(0, 9, choices) for _ in range(width)]
    edges, table_of = [], []
    for at in range(0, layers * width, width):
        edges += [(at + a, at + b) for a, b in inner]
        table_of += range(len(inner))
        if at + width < layers * width:
            edges += [(at + width - 1 - i, at + width + i) for i in range(crossing)]
            table_of += range(len(inner), len(inner) + crossing)
    return Problem.of(layer * layers, edges, tables, table_of=table_of)


def with_hubs(problem: Problem, width: int, hubs: int, seed: int) -> Problem:
    """Variables before and after the chain that every layer reads."""
    rng = np.random.default_rng(seed)
    domains = problem.domains.tolist()
    unary = [rng.integers(0, 9, 2) for _ in range(hubs)]
    unary += [problem.unary[a:b] for a, b in itertools.pairwise(problem.offset)]
    unary.append(rng.integers(0, 9, 2))
    edges = [tuple(e) for e in (problem.edges + hubs).tolist()]
    starts = problem.table_offset
    tables = [
        problem.tables[a:b].reshape(domains[0], domains[0]) for a, b in itertools.pairwise(starts)
    ]
    table_of = problem.table_of.tolist()
    for hub in (*range(hubs), hubs + problem.size):
        for at in range(hubs, hubs + problem.size, width):
            edges.append((at, hub))
            table_of.append(len(tables))
        tables.append(rng.integers(0, 9, (domains[0], 2)))
    return Problem.of(unary, edges, tables, table_of=table_of)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("hubs", [0, 1, 2])
def test_variables_that_all_layers_share_belong_to_every_cut(seed, hubs):
    problem = with_hubs(chain(12, 4, 3, seed), 4, hubs, seed)
    folded = minimize(problem)
    with mock.patch("eindecomp.solve.exact.fold.fold", return_value=None):
        plain = minimize(problem)
    assert "fold" in folded.method
    assert folded.cost == plain.cost == problem.cost_of(folded.choice)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("crossing", [1, 2])
def test_folded_equals_unfolded(seed, crossing):
    problem = chain(12, 4, 3, seed, crossing)
    folded = minimize(problem)
    with mock.patch("eindecomp.solve.exact.fold.fold", return_value=None):
        plain = minimize(problem)
    assert "fold" in folded.method
    assert "fold" not in plain.method
    assert folded.cost == plain.cost == problem.cost_of(folded.choice)
    assert folded.optimal


def test_equal_tables_that_are_held_apart_fold_too():
    shared = chain(12, 4, 3, seed=0)
    starts = shared.table_offset
    tables = [shared.tables[starts[t] : starts[t + 1]].reshape(3, 3) for t in shared.table_of]
    unary = [shared.unary[a:b] for a, b in itertools.pairwise(shared.offset)]
    apart = Problem.of(unary, shared.edges, tables)
    solution = minimize(apart)
    assert "fold" in solution.method
    assert solution.cost == minimize(shared).cost == apart.cost_of(solution.choice)


def test_a_problem_that_does_not_repeat_is_not_folded():
    rng = np.random.default_rng(0)
    unary = [rng.integers(0, 1000, 3) for _ in range(40)]
    edges = [(i, i + 1) for i in range(39)]
    problem = Problem.of(unary, edges, [rng.integers(0, 9, (3, 3)) for _ in edges])
    assert fold(share_equal(CostNetwork.of_problem(problem)), np.inf) is None


def test_layers_stay_free_to_differ():
    # Alternating is the only cheap way, so equal choices in all layers would cost more.
    problem = Problem.of(
        [[0, 0]] * 50, [(i, i + 1) for i in range(49)], [[[1, 0], [0, 1]]], table_of=[0] * 49
    )
    solution = minimize(problem)
    assert solution.cost == 0
    assert np.all(solution.choice[1:] != solution.choice[:-1])


@pytest.mark.parametrize("exponent", [1, 2, 3, 7, 12])
def test_min_plus_power(exponent):
    matrix = np.random.default_rng(exponent).random((4, 4))
    expected = matrix
    for _ in range(exponent - 1):
        expected = (expected[:, :, None] + matrix[None]).min(axis=1)
    np.testing.assert_allclose(min_plus_power(matrix, exponent), expected)
