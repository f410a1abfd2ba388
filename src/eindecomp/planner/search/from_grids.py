"""`best_grid`: the best plan of a graph of one product, grid by grid, the most promising first.

The relaxed problem says what each grid costs at the least. Its axes follow, and one small
elimination gives its exact cost, so that grids are tried in the order of those bounds until none is
left that can cost less than the best one. Where all axes are alike and inputs may lie anywhere, the
first grid already costs what its bound says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import state_bytes
from eindecomp.layout.view import View
from eindecomp.planner import budgets
from eindecomp.planner.costs.price import beyond, hidden
from eindecomp.planner.search.relaxation import Relaxed
from eindecomp.planner.search.search import Outcome, Search, is_enough, solve
from eindecomp.planner.space.choices import Assignment, Choices
from eindecomp.planner.space.grids import Grid, GridChoices, product_of, rows_of
from eindecomp.solve.clock import planning_time
from eindecomp.solve.problem.arrays import Floats


def best_grid(search: Search, relaxed: Relaxed) -> Outcome | None:
    """The best plan that some grid of the product leads to in time; None if there is no product.

    Each grid is tried with few assignments first, and then the best ones with more.
    """
    name = product_of(search.graph)
    if name is None or search.restriction is not None or search.rules.tie or name in search.loose:
        return None
    trial = _Trial(search, relaxed, name)
    costs: dict[Grid, float] = {}
    for grid, least in _grids(relaxed, name):
        if trial.is_over or trial.cost <= least:
            break
        costs.setdefault(grid, trial.price(grid, budgets.FIRST_ROWS))
    for grid in sorted(costs, key=costs.__getitem__):
        if trial.is_over or costs[grid] == inf:
            break
        trial.price(grid, budgets.GRID_ROWS)
    return trial.best


@dataclass
class _Trial:
    """Grids that are priced, and the best plan so far."""

    search: Search
    relaxed: Relaxed
    product: str
    best: Outcome | None = None

    @cached_property
    def choices(self) -> GridChoices:
        search = self.search
        return GridChoices(search.graph, search.mesh, search.rules, self.product, search.redundant)

    @cached_property
    def wishes(self) -> tuple[Assignment, ...]:
        return self.choices.wishes()

    @property
    def cost(self) -> float:
        """The cost of the best plan."""
        return inf if self.best is None else self.best.cost

    @property
    def is_over(self) -> bool:
        """Whether there is a plan, and it is good enough or time is up."""
        if self.best is None:
            return False
        is_late = planning_time() > self.search.deadline
        return is_late or is_enough(self.search, self.best.cost, self.relaxed.bound)

    def price(self, grid: Grid, most: int) -> float:
        """The cost of the best plan with one of a grid's first assignments."""
        rows = rows_of(self.search.mesh, self.relaxed.levels, grid, self.wishes, most)
        own = self.choices.of(rows) if rows else None
        if own is None:
            return inf

        def of(vertex: Vertex, view: View) -> Choices:
            del view
            return own[vertex.name]

        with suppress(UnsolvedError, PlanError):
            outcome = replace(solve(self.search, of), bound=0)
            if self.best is None or outcome.rank < self.best.rank:
                self.search.tell("grids", outcome.cost)
                self.best = outcome
            return outcome.cost
        return inf


def _grids(relaxed: Relaxed, name: str) -> Iterator[tuple[Grid, float]]:
    """Grids with what they cost at the least: the relaxed problem's own, then all by that."""
    if relaxed.vectors is not None:
        yield from ((grid, relaxed.bound) for grid in relaxed.vectors[name])
    if relaxed.model is None or name not in relaxed.model.sites:
        return
    least = _least(relaxed, name)
    grids = relaxed.model.sites[name].choices.assignments
    for k in np.argsort(least, kind="stable").tolist():
        grid: tuple[Grid, ...] = grids[k : k + 1]  # pyright: ignore[reportAssignmentType]
        yield grid[0], float(least[k])


def _least(relaxed: Relaxed, name: str) -> Floats:
    """What each grid costs at the least, were each operand where it suits that grid best."""
    model = relaxed.model
    assert model is not None  # noqa: S101 - there are sites
    graph, price, own = model.graph, model.price, model.sites[name].choices
    vertex = graph[name]
    items = tuple(graph[source].dtype.itemsize for source in vertex.inputs)
    fetched = [
        (model.sites[source].choices.homes, reads, item)
        for source, reads, item in zip(vertex.inputs, own.reads, items, strict=True)
        if reads is not None and source in model.sites
    ]
    hides = hidden(price, vertex, own, items, len(fetched))
    scatter = price.reduce_scatter(
        own, vertex.elements, state_bytes(graph, vertex), vertex.dtype.itemsize
    )
    least = price.compute(vertex, own, items) + beyond(scatter.min(axis=1), hides)
    for homes, reads, item in fetched:
        least = least + beyond(price.fetch(homes, reads.cuts, item).min(axis=0)[reads.of], hides)
    return np.asarray(least, dtype=np.float64)
