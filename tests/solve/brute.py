"""Brute force over all choices, and random small problems to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from eindecomp.solve import Problem
from eindecomp.solve.problem.arrays import Ints
from eindecomp.solve.problem.core import Core


def all_choices(problem: Problem | Core) -> Iterator[Ints]:
    """Every choice, feasible or not."""
    for choice in product(*(range(d) for d in problem.domains.tolist())):
        yield np.array(choice, dtype=np.int64)


def brute_force(problem: Problem) -> float:
    """The least cost of any feasible choice, or infinity."""
    best = float("inf")
    for choice in all_choices(problem):
        if problem.feasible(choice):
            best = min(best, problem.cost_of(choice))
    return best


def random_problem(
    seed: int, *, limited: bool, integral: bool = True, factors: bool = False
) -> Problem:
    """A small problem with ties, ∞, isolated variables, parallel edges and self-loops."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 8))
    sizes = rng.integers(1, 5, size=n)
    high = int(rng.choice([2, 4, 100]))

    def costs(*shape: int) -> np.ndarray:
        table = rng.integers(-3 if rng.random() < 0.3 else 0, high, size=shape).astype(float)
        table[rng.random(shape) < rng.choice([0.0, 0.1, 0.4])] = np.inf
        return table

    m = int(rng.integers(0, 2 * n + 1)) if n else 0
    edges = rng.integers(0, max(n, 1), size=(m, 2))
    unary = [costs(d) for d in sizes]
    tables = [costs(sizes[u], sizes[v]) for u, v in edges]
    larger = []
    if factors and n >= 3:
        scope = rng.choice(n, size=3, replace=False)
        larger = [(scope.tolist(), costs(*sizes[scope]))]
    if integral:
        unary, tables = [_ints(t) for t in unary], [_ints(t) for t in tables]
        larger = [(scope, _ints(t)) for scope, t in larger]
    else:
        unary = [t + rng.random(t.shape) for t in unary]
    if not limited:
        return Problem.of(unary, edges, tables, larger)
    usage = [rng.integers(0, 6, size=d) for d in sizes]
    starts = rng.integers(0, 6, size=n)
    intervals = np.column_stack([starts, starts + rng.integers(0, 5, size=n)])
    return Problem.of(
        unary,
        edges,
        tables,
        larger,
        usage=usage,
        intervals=intervals,
        limit=int(rng.integers(0, 12)),
    )


def _ints(table: np.ndarray) -> np.ndarray:
    finite = np.isfinite(table)
    return np.where(finite, np.where(finite, table, 0).astype(np.int64), np.iinfo(np.int64).max)
