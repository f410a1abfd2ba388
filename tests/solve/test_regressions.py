"""Problems that once went wrong."""

from __future__ import annotations

import numpy as np
import pytest
from brute import brute_force

from eindecomp.solve import INFINITE, Problem, ProblemError, Solution, minimize


def test_blocks_that_nothing_joins() -> None:
    assert minimize(Problem.of([[0, 3]] * 8)).cost == 0
    edges = [(2 * i, 2 * i + 1) for i in range(8)]
    problem = Problem.of([[0, 3], [1, 0]] * 8, edges, [[[0, 2], [1, 0]]], table_of=[0] * 8)
    assert minimize(problem).cost == 8


@pytest.mark.parametrize("loop", [0, 1])
def test_repeated_layers_with_self_loops(loop: int) -> None:
    layers = 20
    edges: list[tuple[int, int]] = []
    table_of: list[int] = []
    for at in range(0, 2 * layers, 2):
        edges += [(at, at + 1), (at + loop, at + loop)]
        table_of += [0, 1]
        if at + 2 < 2 * layers:
            edges.append((at + 1, at + 2))
            table_of.append(2)
    tables = [[[0, 2], [1, 0]], [[1, 9], [9, 0]], [[3, 0], [0, 3]]]
    problem = Problem.of([[0, 3], [1, 0]] * layers, edges, tables, table_of=table_of)
    solution = minimize(problem)
    assert solution.optimal
    assert (
        solution.cost == problem.cost_of(solution.choice) == minimize(problem, method="exact").cost
    )


def test_float_usages_that_land_on_the_limit() -> None:
    problem = Problem.of(
        [[0, 1], [7, 0], [1, 7], [6, 4]],
        usage=[[0.3, 0.3], [0.7, 0.2], [0.7, 0.1], [0.3, 0.2]],
        intervals=[[0, 1], [1, 3], [0, 1], [0, 2]],
        limit=1.2,
    )
    assert minimize(problem).cost == brute_force(problem) == 5


def test_integers_beyond_float64_claim_no_more_than_is_proved() -> None:
    big = 2**57
    rng = np.random.default_rng(0)
    for _ in range(20):
        unary = list(big + rng.integers(0, 50, (4, 3)))
        edges = [(0, 1), (1, 2), (2, 3), (3, 0)]
        problem = Problem.of(unary, edges, list(rng.integers(0, 50, (4, 3, 3))))
        solution = minimize(problem, time_limit=5)
        best = brute_force(problem)
        assert isinstance(solution.bound, int)
        assert solution.bound <= best <= solution.cost
        assert not solution.optimal or solution.cost == best


def test_a_gap_from_zero() -> None:
    assert Solution(np.zeros(0, np.int64), 0, -1, False, "", 0.0).gap == 1.0


def test_infinite_among_floats_is_infinite() -> None:
    problem = Problem.of([np.array([INFINITE, 1])], [(0, 0)], [[[0.5, 0], [0, 0.5]]])
    assert problem.cost_of([0]) == np.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda: Problem.of([np.array([-(2**63), 1])]),
        lambda: Problem.of([np.array([2**64 - 1, 1], np.uint64)]),
        lambda: Problem.of([[1]], usage=[[1]], intervals=[[0, 10**13]], limit=3),
    ],
)
def test_numbers_out_of_range_are_refused(make: object) -> None:
    with pytest.raises(ProblemError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    "parts",
    [
        {"unary": None},
        {"unary": [[1, [2]]]},
        {"unary": ["ab"]},
        {"unary": [[1], [2]], "edges": [(0.5, 1.0)], "tables": [[[1]]]},
        {"unary": [[1], [2]], "edges": [(0, 1, 1)], "tables": [[[1]]]},
        {"unary": [[1], [2]], "edges": "ab", "tables": [[[1]]]},
        {"unary": [[1], [2]], "edges": [(0, 2**70)], "tables": [[[1]]]},
        {"unary": [[1], [2]], "edges": [(0, 1)], "tables": [[[1]]], "table_of": [0.9]},
        {"unary": [[1]], "factors": [("ab", [[1]])]},
        {"unary": [[1]], "usage": ["x"], "intervals": [[0, 1]], "limit": 3},
        {"unary": [[1]], "usage": [[1]], "intervals": [[0, 1, 2]], "limit": 3},
    ],
)
def test_what_is_no_problem_is_refused(parts: dict[str, object]) -> None:
    with pytest.raises(ProblemError):
        Problem.of(**parts)  # type: ignore[arg-type]


def test_an_empty_problem_with_a_limit() -> None:
    assert minimize(Problem.of([], usage=[], intervals=[], limit=0)).cost == 0
