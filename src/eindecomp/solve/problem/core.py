"""The core of a problem: pairwise, in float64, with usages as items over time steps.

Reductions make a core smaller, and the search works on what is left. A variable of a core may
stand for many variables of the problem, so it owns any number of *items*: a usage per choice during
the time steps `[start, end)`. Steps that cannot bind are dropped, and each of the others has a
capacity of its own. Factors over three or more variables are replaced first (`pairwise`).

An `ArcGraph` is a core laid out for the compiled loops: arcs in both directions, sorted by their
source. Arc `a` from `s` to `t` has its table at `table[a]`, row-major over (choice of s, choice of
t), and `back[a]` is the arc from `t` to `s` with the transposed table, so that every inner loop
runs over contiguous memory. It is a NamedTuple because numba can compile functions that take one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.solve import budgets
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import INFINITE, Costs, Floats, Ints, offsets
from eindecomp.solve.problem.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """Packed arrays: see the module's docstring and `Problem`'s."""

    offset: Ints
    unary: Floats
    edges: Ints
    table_offset: Ints
    tables: Floats
    item_var: Ints
    item_span: Ints
    item_offset: Ints
    item_usage: Floats
    capacity: Floats
    step: Ints
    constant: float = 0.0

    @property
    def size(self) -> int:
        """How many variables there are."""
        return self.offset.size - 1

    @property
    def domains(self) -> Ints:
        """How many choices each variable has."""
        return np.diff(self.offset)


def over_steps(used: Floats, span: Ints, steps: int) -> Floats:
    """The sum of item usages at each step."""
    change = np.zeros(steps + 1)
    np.add.at(change, span[:, 0], used)
    np.subtract.at(change, span[:, 1], used)
    return np.cumsum(change)[:-1]


def core_of(problem: Problem) -> Core:
    """The core of a problem without factors."""
    n = problem.size
    sizes = problem.domains
    lives = np.zeros(n, dtype=bool)
    span = np.zeros((n, 2), dtype=np.int64)
    if problem.limit is not None and problem.usage is not None and problem.intervals is not None:
        span = problem.intervals
        lives = (span[:, 1] > span[:, 0]) & (
            np.maximum.reduceat(problem.usage, problem.offset[:-1]) > 0
        )
    owners = np.flatnonzero(lives)
    steps = int(span[owners].max(initial=0))
    cells = np.diff(problem.table_offset)[problem.table_of]
    return Core(
        offset=problem.offset,
        unary=problem.floats(problem.unary),
        edges=problem.edges,
        table_offset=offsets(cells),
        tables=problem.floats(_unshared(problem, cells)),
        item_var=owners,
        item_span=span[owners],
        item_offset=offsets(sizes[owners]),
        item_usage=_take_parts(problem, owners),
        capacity=np.full(steps, float(problem.limit or 0) + problem.tolerance / 2),
        step=np.arange(steps),
    )


def _unshared(problem: Problem, cells: Ints) -> Costs:
    """The tables, one per edge."""
    if np.array_equal(problem.table_of, np.arange(problem.table_offset.size - 1)):
        return problem.tables
    within = np.arange(int(cells.sum())) - np.repeat(offsets(cells)[:-1], cells)
    return problem.tables[np.repeat(problem.table_offset[problem.table_of], cells) + within]


def _take_parts(problem: Problem, owners: Ints) -> Floats:
    if problem.usage is None or owners.size == 0:
        return np.zeros(0)
    mask = np.zeros(problem.size, dtype=bool)
    mask[owners] = True
    return problem.usage[np.repeat(mask, problem.domains)].astype(np.float64)


def pairwise(problem: Problem) -> tuple[Problem, int]:
    """An equivalent problem without factors, and how many variables it had before.

    New variables come after the old ones.
    """
    if not problem.factors:
        return problem, problem.size
    infinite = INFINITE if problem.integral else np.inf
    sizes, unary = [problem.domains], [problem.unary]
    edges, tables = [problem.edges], [problem.tables]
    for number, factor in enumerate(problem.factors):
        cells = np.flatnonzero(factor.table.ravel() != infinite)
        if cells.size > budgets.SEARCHED_CELLS:
            raise UnsolvedError(
                f"the table over {factor.scope} has {cells.size} finite costs: too many to search"
            )
        if cells.size == 0:
            cells = np.zeros(1, dtype=np.int64)
        sizes.append(np.array([cells.size]))
        unary.append(factor.table.ravel()[cells])
        place = np.unravel_index(cells, factor.table.shape)
        for axis, variable in enumerate(factor.scope):
            edges.append(np.array([[problem.size + number, variable]]))
            tables.append(
                _agreement(place[axis], factor.table.shape[axis], infinite, unary[0].dtype)
            )
    domains: Ints = np.concatenate(sizes)
    pairs = np.concatenate(edges)
    extra = int(domains[problem.size :].sum())
    count = len(problem.factors)
    added = np.array([t.size for t in tables[1:]], dtype=np.int64)
    held = problem.table_offset.size - 1
    return Problem(
        offset=offsets(domains),
        unary=np.concatenate(unary),
        edges=pairs,
        table_of=np.concatenate(
            [problem.table_of, np.arange(held, held + len(pairs) - len(problem.edges))]
        ),
        table_offset=np.concatenate(
            [problem.table_offset[:-1], problem.tables.size + offsets(added)]
        ),
        tables=np.concatenate(tables),
        usage=None
        if problem.usage is None
        else np.concatenate([problem.usage, np.zeros(extra, problem.usage.dtype)]),
        intervals=None
        if problem.intervals is None
        else np.concatenate([problem.intervals, np.zeros((count, 2), np.int64)]),
        limit=problem.limit,
    ), problem.size


def _agreement(choice: Ints, size: int, infinite: float, kind: np.dtype) -> Costs:
    table = np.full((choice.size, size), infinite, dtype=kind)
    table[np.arange(choice.size), choice] = 0
    return table.ravel()


class ArcGraph(NamedTuple):
    """Packed arrays over variables, arcs and items; see the module's docstring."""

    offset: Ints
    unary: Floats
    start: Ints
    to: Ints
    back: Ints
    table: Ints
    cells: Floats
    message: Ints
    item_start: Ints
    item_span: Ints
    item_offset: Ints
    item_usage: Floats
    capacity: Floats


def arc_graph_of(core: Core) -> ArcGraph:
    """Lay out a core whose edges are distinct and join distinct variables."""
    m = len(core.edges)
    sources = core.edges.ravel()
    order = np.argsort(sources, kind="stable")
    position = np.empty(2 * m, dtype=np.int64)
    position[order] = np.arange(2 * m)
    target = core.edges[:, ::-1].ravel()[order]
    cells = np.concatenate([core.tables, np.zeros(core.tables.size)])
    _transpose(core.edges, core.offset, core.table_offset, cells)
    place = np.column_stack([core.table_offset[:-1], core.table_offset[:-1] + core.tables.size])
    return ArcGraph(
        offset=core.offset,
        unary=core.unary,
        start=offsets(np.bincount(sources, minlength=core.size).astype(np.int64)),
        to=target,
        back=position[order ^ 1],
        table=place.ravel()[order],
        cells=cells,
        message=offsets(core.domains[target]),
        item_start=np.searchsorted(core.item_var, np.arange(core.size + 1)),
        item_span=core.item_span,
        item_offset=core.item_offset,
        item_usage=core.item_usage,
        capacity=core.capacity,
    )


@compiled
def _transpose(edges: Ints, offset: Ints, table_offset: Ints, cells: Floats) -> None:
    """Fill the second half of `cells` with the transposed tables of the first."""
    half = table_offset[-1]
    for e in range(edges.shape[0]):
        rows = offset[edges[e, 0] + 1] - offset[edges[e, 0]]
        cols = offset[edges[e, 1] + 1] - offset[edges[e, 1]]
        base = table_offset[e]
        for i in range(rows):
            for j in range(cols):
                cells[half + base + j * rows + i] = cells[base + i * cols + j]


@compiled
def penalised(graph: ArcGraph, price: Floats) -> Floats:
    """Unary costs plus the price of what each choice uses, at a price per step."""
    out = graph.unary.copy()
    before = prefix_sums(price)
    for v in range(graph.offset.size - 1):
        add_usage(graph, before, v, out[graph.offset[v] : graph.offset[v + 1]])
    return out


@compiled
def prefix_sums(price: Floats) -> Floats:
    """The sum of all prices before each step, and of all prices."""
    before = np.zeros(price.size + 1)
    for t in range(price.size):
        before[t + 1] = before[t] + price[t]
    return before


@compiled
def add_usage(graph: ArcGraph, before: Floats, v: int, costs: Floats) -> None:
    """Add the price of their usage to the costs of a variable's choices.

    `before` holds the `prefix_sums` of the prices.
    """
    for item in range(graph.item_start[v], graph.item_start[v + 1]):
        weight = before[graph.item_span[item, 1]] - before[graph.item_span[item, 0]]
        if weight > 0.0:
            for k in range(costs.size):
                costs[k] += weight * graph.item_usage[graph.item_offset[item] + k]


@compiled
def usage_over_steps(graph: ArcGraph, choice: Ints) -> Floats:
    """The total usage at each step."""
    change = np.zeros(graph.capacity.size + 1)
    for v in range(graph.offset.size - 1):
        for item in range(graph.item_start[v], graph.item_start[v + 1]):
            used = graph.item_usage[graph.item_offset[item] + choice[v]]
            change[graph.item_span[item, 0]] += used
            change[graph.item_span[item, 1]] -= used
    return np.cumsum(change)[:-1]


@compiled
def cost_of(graph: ArcGraph, choice: Ints) -> float:
    """The cost of a choice, without the core's constant."""
    total = 0.0
    for v in range(graph.offset.size - 1):
        total += graph.unary[graph.offset[v] + choice[v]]
        for a in range(graph.start[v], graph.start[v + 1]):
            t = graph.to[a]
            if t > v:
                size = graph.offset[t + 1] - graph.offset[t]
                total += graph.cells[graph.table[a] + choice[v] * size + choice[t]]
    return float(total)
