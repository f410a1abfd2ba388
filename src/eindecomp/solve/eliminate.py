"""Exact min-sum bucket elimination with a cap on table sizes and argmin back-tracking.

Eliminating a variable joins the tables it is in, takes the least over its choices, and remembers
where that least is reached. Orders are greedy by the size of the joined table, which is the work.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve.compiled import compiled
from eindecomp.solve.core import Core
from eindecomp.solve.problem import Floats, Ints

CELLS = 1 << 25  # the most cells of a table: 256 MiB, and 128 for its argmin
TOTAL_CELLS = 1 << 28  # the most cells of all argmin tables kept for back-tracking
WORK = 1 << 33  # the most cells summed over all eliminations

Table = tuple[tuple[int, ...], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """What is left of a core over its kept variables, and the eliminated ones' best choices."""

    table: Floats
    chosen: tuple[tuple[int, tuple[int, ...], NDArray[np.int32]], ...]

    def backtrack(self, kept: dict[int, Ints]) -> dict[int, Ints]:
        """The eliminated variables' choices, given the kept ones'; arrays of any one shape."""
        values = dict(kept)
        for v, scope, best in reversed(self.chosen):
            values[v] = best[tuple(values[t] for t in scope)].astype(np.int64)
        return {v: values[v] for v, _, _ in self.chosen}


def eliminate(core: Core, deadline: float, cells: int = CELLS) -> Ints | None:
    """The best choice of a core without usages; None if a table would pass the cap or time ends."""
    projection = project(core, (), deadline, cells)
    if projection is None:
        return None
    choice = np.zeros(core.size, dtype=np.int64)
    for v, value in projection.backtrack({}).items():
        choice[v] = value
    return choice


def project(
    core: Core, keep: tuple[int, ...], deadline: float, cells: int = CELLS
) -> Projection | None:
    """Eliminate all but `keep`; the projection's table has one axis per kept variable, in order."""
    order = elimination_order(core, keep, cells)
    if order is None:
        return None
    rank = {v: i for i, v in enumerate((*order, *keep))}
    buckets = _buckets(core, rank)
    chosen: list[tuple[int, tuple[int, ...], NDArray[np.int32]]] = []
    for v in order:
        if monotonic() > deadline:
            return None
        scope, least, best = _least_over(v, buckets.pop(v))
        chosen.append((v, scope, best))
        if scope:
            buckets[min(scope, key=rank.__getitem__)].append((scope, least))
    table = np.zeros([int(core.domains[v]) for v in keep])
    for scope, part in (entry for v in keep for entry in buckets[v]):
        table += _spread(scope, part, keep)
    return Projection(table, tuple(chosen))


def elimination_order(core: Core, keep: tuple[int, ...], cells: int) -> list[int] | None:
    """A greedy order by the size of the joined table; None if one would pass `cells`."""
    weight = np.log2(core.domains.astype(np.float64)).tolist()
    near: list[set[int]] = [set() for _ in range(core.size)]
    for u, v in core.edges.tolist():
        near[u].add(v)
        near[v].add(u)

    def load(v: int) -> float:
        return weight[v] + sum(weight[t] for t in near[v])

    done = set(keep)
    loads = [load(v) for v in range(core.size)]
    heap = [(size, v) for v, size in enumerate(loads)]
    heapq.heapify(heap)
    order: list[int] = []
    total, work = 0.0, 0.0
    while heap:
        size, v = heapq.heappop(heap)
        if v in done or size != loads[v]:
            continue
        total += 2.0 ** (size - weight[v])
        work += 2.0**size
        if size - weight[v] > np.log2(cells) + 1e-9 or total > TOTAL_CELLS or work > WORK:
            return None
        done.add(v)
        order.append(v)
        for t in near[v]:
            near[t] |= near[v]
            near[t] -= {t, v}
        for t in near[v]:
            loads[t] = load(t)
            heapq.heappush(heap, (loads[t], t))
    return order


def _buckets(core: Core, rank: dict[int, int]) -> dict[int, list[Table]]:
    """Every table, with the variable of its scope that is eliminated first."""
    sizes = core.domains
    buckets: dict[int, list[Table]] = {
        v: [((v,), core.unary[core.offset[v] : core.offset[v + 1]])] for v in rank
    }
    for e, (u, v) in enumerate(core.edges.tolist()):
        table = core.tables[core.table_offset[e] : core.table_offset[e + 1]]
        first = u if rank[u] < rank[v] else v
        buckets[first].append(((u, v), table.reshape(sizes[u], sizes[v])))
    return buckets


def _least_over(v: int, tables: list[Table]) -> tuple[tuple[int, ...], Floats, NDArray[np.int32]]:
    """The least over `v` of the tables' sum, over the rest of their scopes, and where it is.

    The sum is made one choice of `v` at a time, so the joined table is never held.
    """
    rest = tuple(sorted({t for scope, _ in tables for t in scope} - {v}))
    sizes = {t: n for scope, table in tables for t, n in zip(scope, table.shape, strict=True)}
    spread = sorted((_spread(s, t, (v, *rest)) for s, t in tables), key=lambda part: part.size)
    total = np.empty([sizes[t] for t in rest])
    least = np.full(total.shape, np.inf)
    best = np.zeros(total.shape, dtype=np.int32)
    for k in range(sizes[v]):
        # Small parts are added up first: only the last additions run over the whole table.
        part = sum(part[k] for part in spread[:-1])
        np.add(part, spread[-1][k], out=total)
        _keep_least(total.reshape(-1), least.reshape(-1), best.reshape(-1), k)
    return rest, least, best


@compiled
def _keep_least(total: Floats, least: Floats, best: NDArray[np.int32], k: int) -> None:
    for i in range(total.size):
        smaller = total[i] < least[i]
        least[i] = total[i] if smaller else least[i]
        best[i] = k if smaller else best[i]


def _spread(scope: tuple[int, ...], table: Floats, axes: tuple[int, ...]) -> Floats:
    """The table with its axes in the order of `axes`, and axes of length 1 for the others."""
    order = sorted(range(len(scope)), key=lambda i: axes.index(scope[i]))
    sizes = dict(zip(scope, table.shape, strict=True))
    return table.transpose(order).reshape([sizes.get(t, 1) for t in axes])
