"""Shifting changes no cost, mini-buckets bound from below, and with enough cells are exact."""

from __future__ import annotations

from math import inf
from time import monotonic

import numpy as np
import pytest
from brute import brute_force, random_problem
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.solve import Problem, minimize
from eindecomp.solve.exact.bounding import Bounding, bound_by_mini_buckets
from eindecomp.solve.exact.table_loops import shift_costs
from eindecomp.solve.problem.cost_network import CostNetwork

SEEDS = st.integers(0, 2**32)


def _terms(problem, integral):
    network = CostNetwork.of_problem(problem)
    tables = [(scope, np.minimum(table, 2.0**30)) for scope, table in network.tables]
    plain = CostNetwork(network.sizes, tables)
    return plain, shift_costs(plain, integral=integral)


def _cost(tables, choice):
    return sum(table[tuple(choice[v] for v in scope)] for scope, table in tables)


@given(seed=SEEDS, integral=st.booleans())
def test_shifting_changes_no_cost(seed, integral):
    problem = random_problem(seed, limited=False, integral=integral, factors=True)
    plain, terms = _terms(problem, integral)
    tables = [entry for term in terms for entry in term]
    rng = np.random.default_rng(seed)
    for _ in range(10):
        choice = [int(rng.integers(n)) for n in plain.sizes]
        before, after = _cost(plain.tables, choice), _cost(tables, choice)
        assert before == (after if integral else pytest.approx(after))
    if integral:
        assert all((table == np.floor(table)).all() for _, table in tables)


@given(seed=SEEDS, integral=st.booleans(), cells=st.sampled_from([1, 8, 64, 512]))
def test_a_bound_by_mini_buckets_is_a_bound(seed, integral, cells):
    problem = random_problem(seed, limited=False, integral=integral, factors=True)
    best = brute_force(problem)
    plain, terms = _terms(problem, integral)
    bound = bound_by_mini_buckets(plain.sizes, terms, cells, inf, integral=integral)
    assert bound.value <= best + (0 if integral else 1e-9)
    assert np.isinf(best) or _cost(plain.tables, bound.choice) >= best - 1e-9
    if bound.exact and np.isfinite(best):
        assert bound.value == pytest.approx(best)
        assert problem.cost_of(bound.choice) == pytest.approx(best)


@given(seed=SEEDS)
def test_with_enough_cells_nothing_is_split(seed):
    problem = random_problem(seed, limited=False, factors=True)
    plain, terms = _terms(problem, True)
    assert bound_by_mini_buckets(plain.sizes, terms, 1 << 20, inf, integral=True).exact


def _grid(side, choices, seed=0, scale=1):
    """Variables on a grid: too wide to eliminate outright when it is large."""
    rng = np.random.default_rng(seed)
    at = np.arange(side * side).reshape(side, side)
    edges = [*zip(at[:, :-1].ravel(), at[:, 1:].ravel(), strict=True)]
    edges += [*zip(at[:-1].ravel(), at[1:].ravel(), strict=True)]
    tables = list(rng.integers(0, 100, (len(edges), choices, choices)) * scale)
    return Problem.of([np.zeros(choices, dtype=np.int64)] * at.size, edges, tables)


def test_tightening_raises_the_bound_up_to_the_goal():
    problem = _grid(9, 20)
    bounding = Bounding.of(problem, inf)
    bounding.tighten(inf, inf, levels=1)
    first = bounding.value
    assert 0 < first < problem.cost_of(bounding.choice)
    bounding.tighten(first, inf)
    assert bounding.value == first
    bounding.tighten(inf, inf, levels=2)
    assert bounding.value > first


@pytest.mark.long
def test_minimize_takes_its_bound_where_elimination_is_too_much():
    problem = _grid(10, 12)
    solution = minimize(problem, time_limit=12)  # 5 do on a quiet machine
    assert "split" in solution.method
    assert solution.bound <= solution.cost
    assert solution.bound >= 0.9 * solution.cost


def test_no_time_leaves_no_bound_and_no_error():
    bounding = Bounding.of(_grid(10, 12), 0)
    bounding.tighten(inf, 0)
    assert bounding.choice is None
    assert not bounding.solved


def test_a_bound_that_runs_late_ends_with_smaller_tables(monkeypatch):
    plain, whole = Bounding.begin(_grid(6, 8), inf), Bounding.begin(_grid(6, 8), inf)
    whole.tighten(inf, inf)
    assert whole.solved
    monkeypatch.setattr("eindecomp.solve.budgets.LATE_SHARE", 0)
    monkeypatch.setattr("eindecomp.solve.budgets.LATE_CELLS", 1 << 6)
    plain.tighten(inf, monotonic() + 600, levels=1)
    assert 0 < plain.value < whole.value <= plain.run.cost


def test_variables_with_one_choice_take_no_axes():
    problem = _grid(9, 20)
    one = [np.zeros(1, dtype=np.int64)] * 70
    sizes = problem.domains.tolist()
    rng = np.random.default_rng(0)
    edges = [(v, len(sizes) + k) for v in range(len(sizes)) for k in range(70)]
    tables = [rng.integers(0, 9, (20, 1)) for _ in edges]
    rows = [np.zeros(n, dtype=np.int64) for n in sizes]
    wide = Problem.of([*rows, *one], [*problem.edges.tolist(), *edges],
                      [*_tables(problem), *tables])  # fmt: skip
    bounding = Bounding.of(wide, inf)
    bounding.tighten(inf, inf, levels=1)
    assert bounding.value > 0


def _tables(problem):
    parts = np.split(problem.tables, problem.table_offset[1:-1])
    return [parts[t].reshape(20, 20) for t in problem.table_of]


@pytest.mark.parametrize("shift", [40, 44, 48])
def test_large_costs_are_bounded_as_well_as_small_ones(shift):
    small, large = Bounding.of(_grid(9, 20), inf), Bounding.of(_grid(9, 20, scale=1 << shift), inf)
    for bounding in (small, large):
        bounding.tighten(inf, inf, levels=1)
    assert large.value / (1 << shift) == pytest.approx(small.value, rel=0.01)
