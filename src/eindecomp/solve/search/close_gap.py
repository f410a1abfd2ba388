"""Closes the gap between the best choice and the bound, by searching and shrinking in turns.

Every better choice allows more reduced-cost fixing: choices whose bound exceeds the best known cost
are dropped, and the rest is reduced again, often to a fraction of its size. The search continues
there until nothing better is left, branch and bound finishes, or time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from eindecomp.errors import InfeasibleError
from eindecomp.solve import budgets
from eindecomp.solve.bound.lagrangian import Ascent
from eindecomp.solve.clock import planning_time
from eindecomp.solve.problem.arc_graph import ArcGraph, arc_graph_of, penalised
from eindecomp.solve.problem.arrays import Ints
from eindecomp.solve.problem.core import Core
from eindecomp.solve.reduce.reduce import Reduced, reduce_core
from eindecomp.solve.reduce.substitute import keep_choices, substitute
from eindecomp.solve.search.branch_and_bound import Branching, fix_choices, propagate
from eindecomp.solve.search.portfolio import Incumbent, Portfolio


def close_gap(core: Core, incumbent: Incumbent, deadline: float, seed: int) -> bool:
    """Search a core until time is up; whether the best choice is proved to be optimal."""
    rng = np.random.default_rng(seed)
    state = rng.integers(1, 2**63, size=1, dtype=np.uint64)
    warm: Ints | None = None
    turns = budgets.NEW_CORE_TURNS
    while True:
        core, most = finite(core)
        incumbent.constant = core.constant
        graph = arc_graph_of(core)
        portfolio = Portfolio(graph, most, incumbent, deadline, state, rng, Ascent.begin(graph))
        portfolio.begin(warm)
        smaller: Reduced | None = None
        while smaller is None:
            portfolio.work(turns)
            if incumbent.closed() or planning_time() > deadline:
                return incumbent.closed()
            smaller = _shrink(core, portfolio, incumbent.cutoff(most))
            if smaller is None or smaller.core.size == 0:
                if smaller is not None:
                    _offer_last(smaller, incumbent)
                incumbent.close()
                return True
            if smaller.core.unary.size > budgets.SHRINK * core.unary.size:
                smaller = None
                if _should_branch(graph, turns):
                    return _branch(portfolio, most)
                turns *= 2
        turns = budgets.NEW_CORE_TURNS
        warm = None if portfolio.choice is None else smaller.push(portfolio.choice)
        incumbent.lift = _chained(incumbent.lift, smaller)
        core = smaller.core


def _should_branch(graph: ArcGraph, turns: int) -> bool:
    """Whether to go on by branch and bound."""
    small = graph.unary.size < budgets.BRANCH_CHOICES
    return small or (turns >= budgets.BRANCH_TURNS and graph.cells.size < 2 * budgets.BRANCH_CELLS)


def finite(core: Core) -> tuple[Core, float]:
    """The core with ∞ replaced by more than any finite choice costs, and the most that one can."""
    magnitude = 0.0
    for costs, offset in ((core.unary, core.offset), (core.tables, core.table_offset)):
        if costs.size:
            size = np.where(np.isfinite(costs), np.abs(costs), 0.0)
            magnitude += float(np.maximum.reduceat(size, offset[:-1]).sum())
    huge = 2.0 * magnitude + 1.0
    unary = np.where(np.isfinite(core.unary), core.unary, huge)
    tables = np.where(np.isfinite(core.tables), core.tables, huge)
    return replace(core, unary=unary, tables=tables), magnitude


def _chained(lift: Callable[[Ints], Ints], smaller: Reduced) -> Callable[[Ints], Ints]:
    return lambda choice: lift(smaller.lift(choice))


def _shrink(core: Core, portfolio: Portfolio, cutoff: float) -> Reduced | None:
    """The core without choices that must cost more than the cutoff; None if no choice is left."""
    graph = portfolio.graph
    keep = np.ones(core.unary.size, dtype=np.bool_)
    ascent = portfolio.ascent
    unary = penalised(graph, ascent.best_price)
    fits = propagate(graph, keep) and fix_choices(
        graph, unary, ascent.messages.copy(), keep, cutoff, ascent.best_price
    )
    if not fits:
        return None
    sub = keep_choices(core, keep)
    try:
        reduced = reduce_core(substitute(core, sub), portfolio.deadline)
    except InfeasibleError:
        return None
    if reduced.core.capacity.size and reduced.core.capacity.min() < 0:
        return None
    return Reduced(reduced.core, (sub, *reduced.steps))


def _offer_last(smaller: Reduced, incumbent: Incumbent) -> None:
    """Offer the only choice left, which may be better than the best known."""
    last = smaller.lift(np.zeros(0, dtype=np.int64))
    incumbent.offer(last, smaller.core.constant - incumbent.constant)


def _branch(portfolio: Portfolio, most: float) -> bool:
    """Branch and bound, with local search now and then; whether the optimum is proved."""
    incumbent = portfolio.incumbent
    branching = Branching(portfolio.graph, portfolio.ascent, incumbent.margin())
    branching.start()
    for count, progress in enumerate(branching.run(incumbent.cutoff(most))):
        if progress.choice is not None:
            portfolio.offer(progress.choice)
        incumbent.raise_bound(progress.bound)
        if planning_time() > portfolio.deadline or incumbent.closed():
            return incumbent.closed()
        if count % 500 == 499:
            portfolio.shake()
    incumbent.close()
    return True
