from __future__ import annotations

import signal
from itertools import combinations

import numpy as np
import pytest
from brute import brute_force, random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.solve import (
    InfeasibleError,
    Problem,
    ProblemError,
    Progress,
    UnsolvedError,
    minimize,
)


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
    solution = minimize(problem, method=method, time_limit=20)
    assert solution.cost == problem.cost_of(solution.choice)
    assert problem.feasible(solution.choice)
    assert solution.optimal
    assert solution.cost == pytest.approx(best, rel=1e-12, abs=1e-12)
    assert solution.bound <= solution.cost


def test_overfull_step_is_named():
    problem = Problem.of([[0], [0]], usage=[[3], [4]], intervals=[[2, 5], [4, 6]], limit=6)
    with pytest.raises(InfeasibleError, match="time step 4"):
        minimize(problem)


def hard_problem() -> Problem:
    """Dense, with a limit that binds: elimination and reductions do not finish it."""
    rng = np.random.default_rng(0)
    size, choices = 60, 6
    pairs = [(i, j) for i in range(size) for j in range(i) if rng.random() < 0.3]
    usage = rng.integers(0, 9, (size, choices))
    starts = np.arange(size) // 3
    return Problem.of(
        list(rng.integers(0, 1000, (size, choices))),
        pairs,
        list(rng.integers(0, 1000, (len(pairs), choices, choices))),
        usage=list(usage),
        intervals=np.column_stack([starts, starts + 5]),
        limit=40,
    )


def test_without_any_time_there_is_a_choice_and_a_bound():
    problem = hard_problem()
    solution = minimize(problem, time_limit=0)
    assert problem.feasible(solution.choice)
    assert solution.bound <= solution.cost
    assert solution.seconds < 3


def test_events_only_improve_and_end_with_the_solution():
    events = []
    solution = minimize(hard_problem(), time_limit=1, on_event=events.append)
    costs, bounds = [e.cost for e in events], [e.bound for e in events]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert (costs[-1], bounds[-1]) == (solution.cost, solution.bound)
    assert {"reduce", "search"} <= {e.stage for e in events}


def test_an_interrupted_search_gives_what_it_has_found():
    problem = hard_problem()

    def interrupt(event: Progress) -> None:
        if np.isfinite(event.cost) and not told:
            told.append(event)
            signal.raise_signal(signal.SIGINT)

    told: list[Progress] = []
    solution = minimize(problem, on_event=interrupt)
    assert problem.feasible(solution.choice)
    assert not solution.optimal
    assert solution.seconds < 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_goes_through_where_one_solve_is_a_step_of_many():
    def interrupt(event: Progress) -> None:
        if np.isfinite(event.cost):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        minimize(hard_problem(), on_event=interrupt, keep_on_interrupt=False)


def test_an_interrupt_before_any_choice_goes_through():
    def interrupt(event: Progress) -> None:
        told.append(event)
        if len(told) == 1:
            signal.raise_signal(signal.SIGINT)

    told: list[Progress] = []
    with pytest.raises(KeyboardInterrupt):
        minimize(hard_problem(), method="exact", on_event=interrupt)
    assert np.isinf(told[0].cost)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"problem": None}, "takes a Problem, not NoneType"),
        ({"time_limit": None}, "time_limit must be seconds"),
        ({"time_limit": float("nan")}, "time_limit must be seconds"),
        ({"time_limit": -1}, "time_limit must be seconds"),
        ({"on_event": 3}, "on_event is a function that takes an event, not 3"),
        ({"seed": -1}, "seed must be an integer"),
        ({"method": "magic"}, "method 'magic' is none of auto, exact, search"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    given = {"problem": Problem.of([[1, 2]])} | arguments
    with pytest.raises(ProblemError, match=message):
        minimize(given.pop("problem"), **given)


def test_exact_refuses_a_usage_limit():
    with pytest.raises(UnsolvedError, match="cannot handle a usage limit"):
        minimize(hard_problem(), method="exact")


def test_tables_that_are_too_large_to_search_leave_the_choice_found_before():
    rng = np.random.default_rng(0)
    unary = [rng.integers(0, 100, 52) for _ in range(6)]
    factors = [(scope, rng.integers(0, 100, (52, 52, 52))) for scope in combinations(range(6), 3)]
    solution = minimize(Problem.of(unary, factors=factors), time_limit=20)
    assert 0 < solution.bound <= solution.cost < 6 * 100 + len(factors) * 100
