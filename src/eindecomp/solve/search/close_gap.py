"""Closes the gap between the best choice and the bound, by turns of search and of shrinking.

Every good choice found makes room for reduced-cost fixing: choices whose bound passes the best
known cost are dropped, and what is left is reduced again, often to a small part of what it was. The
search goes on there, until nothing better is left, branch and bound finishes, or time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

import numpy as np

from eindecomp.errors import InfeasibleError
from eindecomp.solve.bound.lagrangian import Ascent
from eindecomp.solve.problem.arc_graph import ArcGraph, arc_graph_of, penalised
from eindecomp.solve.problem.arrays import Ints
from eindecomp.solve.problem.core import Core
from eindecomp.solve.reduce.reduce import Reduced, reduce_core
from eindecomp.solve.reduce.substitute import keep_choices, substitute
from eindecomp.solve.search.branch_and_bound import Branching, fix_choices, propagate
from eindecomp.solve.search.incumbent import Incumbent
from eindecomp.solve.search.portfolio import Portfolio

_BRANCH_CELLS = 1_000_000  # branch and bound is for cores with fewer table cells
_BRANCH_CHOICES = 1_000  # with fewer choices than this it comes first
_SHRINK = 0.9  # a smaller core must have fewer than this share of the choices
_TURNS = (2, 40)


def close_gap(core: Core, best: Incumbent, deadline: float, seed: int) -> bool:
    """Search a core until time is up; whether the best choice is proved to be optimal."""
    rng = np.random.default_rng(seed)
    state = rng.integers(1, 2**63, size=1, dtype=np.uint64)
    warm: Ints | None = None
    turns = _TURNS[0]
    while True:
        core, most = finite(core)
        best.constant = core.constant
        graph = arc_graph_of(core)
        portfolio = Portfolio(graph, most, best, deadline, state, rng, Ascent.begin(graph))
        portfolio.begin(warm)
        smaller: Reduced | None = None
        while smaller is None:
            portfolio.work(turns)
            if best.closed() or monotonic() > deadline:
                return best.closed()
            smaller = _shrink(core, portfolio, best.cutoff(most))
            if smaller is None or smaller.core.size == 0:
                if smaller is not None:
                    _offer_last(smaller, best)
                best.close()
                return True
            if smaller.core.unary.size > _SHRINK * core.unary.size:
                smaller = None
                if _branches(graph, turns):
                    return _branch(portfolio, most)
                turns *= 2
        turns = _TURNS[0]
        warm = None if portfolio.choice is None else smaller.push(portfolio.choice)
        best.lift = _chained(best.lift, smaller)
        core = smaller.core


def _branches(graph: ArcGraph, turns: int) -> bool:
    """Whether branch and bound is the better way on."""
    small = graph.unary.size < _BRANCH_CHOICES
    return small or (turns >= _TURNS[1] and graph.cells.size < 2 * _BRANCH_CELLS)


def finite(core: Core) -> tuple[Core, float]:
    """The core with ∞ made a cost beyond any finite choice's, and the most that one can cost."""
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
    """The core without choices that cost more than the cutoff; None if no choice is left."""
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


def _offer_last(smaller: Reduced, best: Incumbent) -> None:
    """The only choice left, which may be better than the best known."""
    last = smaller.lift(np.zeros(0, dtype=np.int64))
    best.offer(last, smaller.core.constant - best.constant)


def _branch(portfolio: Portfolio, most: float) -> bool:
    """Branch and bound, with local search now and then; whether it came to an end."""
    best = portfolio.best
    branching = Branching(portfolio.graph, portfolio.ascent, best.margin())
    branching.start()
    for count, report in enumerate(branching.run(best.cutoff(most))):
        if report.choice is not None:
            portfolio.offer(report.choice)
        best.raise_bound(report.bound)
        if monotonic() > portfolio.deadline or best.closed():
            return best.closed()
        if count % 500 == 499:
            portfolio.shake()
    best.close()
    return True
