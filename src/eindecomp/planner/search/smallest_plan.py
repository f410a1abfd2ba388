"""The plan that holds the least: taken where no other fits into memory, named where it does not."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.view import View
from eindecomp.planner import budgets
from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.planner.model.memory_limit import Lifetimes, held_at_least
from eindecomp.planner.search.blocks import block_sizes, choose_by_blocks
from eindecomp.planner.search.search import Outcome, Search, no_plan_fits, solve
from eindecomp.planner.space.choices import Choices, decided_choices
from eindecomp.solve.clock import has_passed, planning_time


def refuse_too_little(search: Search, deadline: float, *, tells_least: bool) -> None:
    """Raise an error if no plan can fit into memory, before any is looked for."""
    if search.memory is None:
        return
    least = held_at_least(search.graph, search.rules, search.mesh)
    if least > search.memory:
        smallest = smallest_plan(search, deadline) if tells_least else None
        why = f"{no_plan_fits(search.memory)}: every plan needs {show_bytes(least)} or more"
        raise _refusal(search, why, smallest)


def fitting_plan(search: Search, error: PlanError, deadline: float) -> Outcome:
    """The plan that holds the least, if it fits into memory; else an error names what it holds.

    `error` is why there is no other plan.
    """
    smallest, memory = smallest_plan(search, deadline), search.memory or 0
    if smallest is None:
        raise error
    if smallest.held <= memory:
        return smallest
    raise _refusal(search, no_plan_fits(memory), smallest)


def smallest_plan(search: Search, deadline: float) -> Outcome | None:
    """The plan whose fullest device holds the least, as far as one is found soon."""
    now = planning_time()
    soon = now + min(max(deadline - now, 0.5), budgets.LEAST_MEMORY_SECONDS)
    hurried = replace(search, smallest=True, alike={}, deadline=soon)
    best: Outcome | None = None
    for size in reversed(block_sizes(hurried)):
        if best is not None and (best.held <= (search.memory or 0) or has_passed(soon)):
            break
        with suppress(PlanError, UnsolvedError):
            plan = choose_by_blocks(hurried, (size,))
            best = plan if best is None or plan.held < best.held else best
    return best


def _refusal(search: Search, why: str, smallest: Outcome | None) -> PlanError:
    if smallest is None:
        return PlanError(why)
    steps = list(Lifetimes.of(search.graph, search.rules).steps)
    return PlanError(
        f"{why}; least found: {show_bytes(smallest.held)} ({smallest.held:,} bytes), at step "
        f"{smallest.fullest + 1} of {len(steps)}, which computes "
        f"{search.graph[steps[smallest.fullest]]}"
    )


def within_memory(search: Search, outcome: Outcome) -> Outcome | None:
    """The same with second layouts that fit into memory; None if there is no such plan."""

    def of(vertex: Vertex, view: View) -> Choices:
        if isinstance(vertex.op, Input) and vertex.name not in outcome.decisions:
            return search.every_choice(vertex, view)
        return decided_choices(view, search.mesh, outcome.decisions[vertex.name])

    with suppress(UnsolvedError, PlanError):
        return solve(search, of)
    return None
