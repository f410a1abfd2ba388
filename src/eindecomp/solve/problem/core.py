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

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.solve import budgets
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints, offsets, places
from eindecomp.solve.problem.cost_network import CostNetwork, network_over
from eindecomp.solve.problem.problem import Problem


class Core(NamedTuple):
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

    @property
    def network(self) -> CostNetwork:
        """Its costs, usages left out; its edges join distinct variables."""
        parts = np.split(self.tables, self.table_offset[1:-1])
        each = np.arange(len(self.edges))
        return network_over(self.domains, self.offset, self.unary, self.edges, parts, each)


def over_steps(used: Floats, span: Ints, steps: int) -> Floats:
    """The sum of item usages at each step."""
    change = np.zeros(steps + 1)
    np.add.at(change, span[:, 0], used)
    np.subtract.at(change, span[:, 1], used)
    return np.cumsum(change)[:-1]


def core_of(problem: Problem) -> Core:
    """The core of a problem without factors."""
    sizes = problem.domains
    owners, span, usage = np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0)
    if problem.limit is not None and problem.usage is not None and problem.intervals is not None:
        span = problem.intervals
        uses = np.maximum.reduceat(problem.usage, problem.offset[:-1]) > 0
        owners = np.flatnonzero((span[:, 1] > span[:, 0]) & uses)
        usage = problem.usage[places(problem.offset[owners], sizes[owners])].astype(np.float64)
    steps = int(span[owners].max(initial=0))
    cells = np.diff(problem.table_offset)[problem.table_of]
    each = places(problem.table_offset[problem.table_of], cells)
    return Core(
        offset=problem.offset,
        unary=problem.floats(problem.unary),
        edges=problem.edges,
        table_offset=offsets(cells),
        tables=problem.floats(problem.tables[each]),
        item_var=owners,
        item_span=span[owners],
        item_offset=offsets(sizes[owners]),
        item_usage=usage,
        capacity=np.full(steps, float(problem.limit or 0) + problem.tolerance / 2),
        step=np.arange(steps),
    )


def pairwise(problem: Problem) -> tuple[Problem, int]:
    """An equivalent problem without factors, and how many variables it had before.

    For each factor there is a new variable, after the old ones, that chooses one of its finite
    costs and agrees with the variables of its scope.
    """
    if not problem.factors:
        return problem, problem.size
    network = CostNetwork.of_problem(problem)
    sizes, tables = list(network.sizes), [each for each in network.tables if len(each[0]) < 3]
    for scope, table in network.tables:
        if len(scope) < 3:
            continue
        cells: Ints = np.argwhere(np.isfinite(table)).astype(np.int64)
        if len(cells) > budgets.SEARCHED_CELLS:
            raise UnsolvedError(
                f"the table over {scope} has {len(cells)} finite costs: too many to search"
            )
        if not len(cells):
            cells = np.zeros((1, len(scope)), dtype=np.int64)
        tables.append(((len(sizes),), table[tuple(cells.T)]))
        for axis, v in enumerate(scope):
            agrees = np.eye(table.shape[axis], dtype=bool)[cells[:, axis]]
            tables.append(((len(sizes), v), np.where(agrees, 0.0, np.inf)))
        sizes.append(len(cells))
    plain = CostNetwork(sizes, tables).to_problem(integral=problem.integral)
    if problem.usage is not None and problem.intervals is not None:
        unused = np.zeros(plain.unary.size - problem.unary.size, problem.usage.dtype)
        never = np.zeros((plain.size - problem.size, 2), np.int64)
        usage = np.concatenate([problem.usage, unused])
        intervals = np.concatenate([problem.intervals, never])
        plain = replace(plain, usage=usage, intervals=intervals, limit=problem.limit)
    return plain, problem.size


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
