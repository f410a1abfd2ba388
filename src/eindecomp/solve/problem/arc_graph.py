"""A core laid out for the compiled loops: arcs in both directions, sorted by their source.

Arc `a` from `s` to `t` has its table at `table[a]`, row-major over (choice of s, choice of t), and
`back[a]` is the arc from `t` to `s` with the transposed table, so that every inner loop runs over
contiguous memory. It is a NamedTuple because numba can compile functions that take one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints, offsets
from eindecomp.solve.problem.core import Core


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
