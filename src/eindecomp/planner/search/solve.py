"""Hands one problem of movement to the solver, and reads its choice as decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eindecomp.errors import InfeasibleError, PlanError
from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.planner.model.memory_limit import add_usage
from eindecomp.planner.model.movement import MovementModel
from eindecomp.planner.search.search import Outcome, Search
from eindecomp.solve.clock import planning_time
from eindecomp.solve.minimize import minimize
from eindecomp.solve.tie_break import minimize_ranked

if TYPE_CHECKING:
    from collections.abc import Callable

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.view import View
    from eindecomp.planner.space.choices import Choices
    from eindecomp.solve.solution import Solution


def solve(search: Search, of: Callable[[Vertex, View], Choices], *, pairs: bool = False) -> Outcome:
    """Solve one problem by elimination, or by branch and bound with `pairs` or a memory limit."""
    limited = search.memory is not None
    pairs = pairs or limited
    model = MovementModel.of(
        search.graph,
        search.price,
        of,
        search.rules,
        pairs=pairs,
        apart=limited,
        alike=search.alike,
        deadline=search.deadline,
    )
    outcome = outcome_of(model, _minimize(search, model, pairs=pairs))
    return replace(outcome, bound=0) if model.alike else outcome


def outcome_of(model: MovementModel, solution: Solution) -> Outcome:
    """The outcome that a solution of the problem stands for."""
    return Outcome(
        model.decisions(solution.choice),
        model.given(solution.choice),
        solution.cost,
        solution.bound,
        solution.method,
        model.load_of(solution.choice),
    )


def _minimize(search: Search, model: MovementModel, *, pairs: bool) -> Solution:
    limit: int | None = None
    if search.memory is not None:
        limit = max(search.memory - add_usage(model), 0)
    left = max(search.deadline - planning_time(), 1.0)
    try:
        if search.ranks and not pairs:
            return minimize_ranked(model.problem(), model.load, time_limit=left)
        return minimize(
            model.problem(limit),
            method="auto" if pairs else "exact",
            time_limit=left,
            keep_on_interrupt=False,
        )
    except InfeasibleError as error:
        if search.memory is None:
            raise PlanError("found no plan that agrees with the pins") from None
        raise _too_little_memory(search, model, error) from None


def _too_little_memory(search: Search, model: MovementModel, error: InfeasibleError) -> PlanError:
    names = list(model.sites)
    step = "" if error.step is None else f" at step {error.step + 1} of {len(names)}"
    if error.step is not None and error.step < len(names):
        step += f", which computes {search.graph[names[error.step]]}"
    lacking = "" if error.excess is None else f": {show_bytes(error.excess)} are missing"
    return PlanError(
        f"found no plan that fits into {show_bytes(search.memory or 0)} of memory per device"
        f"{step}{lacking}"
    )
