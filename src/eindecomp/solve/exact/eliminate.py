"""Exact min-sum bucket elimination with a cap on table sizes and argmin back-tracking.

Eliminating a variable adds up the tables it is in, minimises over its choices, and remembers the
minimisers. The order is greedy by the size of the joined table, which is the work.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve import budgets
from eindecomp.solve.clock import has_passed, planning_time
from eindecomp.solve.problem.arrays import Floats, Ints
from eindecomp.solve.problem.cost_network import CostNetwork, Scope, Table, spread
from eindecomp.solve.problem.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A network minimised over all but its kept variables, and the others' best choices."""

    table: Floats
    chosen: tuple[Eliminated, ...]

    def backtrack(self, kept: dict[int, Ints]) -> dict[int, Ints]:
        """The eliminated variables' choices, given the kept ones': arrays of one common shape."""
        values = dict(kept)
        for step in reversed(self.chosen):
            best = step.minimisers[tuple(values[t] for t in step.scope)]
            values[step.variable] = best.astype(np.int64)
        return {step.variable: values[step.variable] for step in self.chosen}


@dataclass(frozen=True, slots=True, eq=False)
class Eliminated:
    """The best choice of an eliminated variable, given those in its scope."""

    variable: int
    scope: tuple[int, ...]
    minimisers: NDArray[Any]


def work_allowed(problem: Problem) -> int:
    """The most cells that a first elimination may sum.

    No other method is as good with tables over more than two variables, so those get more.
    """
    return budgets.WORK if problem.factors else budgets.QUICK_WORK


def eliminate(network: CostNetwork, deadline: float, work: int = budgets.WORK) -> Ints | None:
    """The best choice; None if tables or work would exceed their caps, or time runs out."""
    projection = project(network, (), deadline, work)
    if projection is None:
        return None
    choice = np.zeros(len(network.sizes), dtype=np.int64)
    for v, value in projection.backtrack({}).items():
        choice[v] = value
    return choice


def project(
    network: CostNetwork, keep: Scope, deadline: float, work: int = budgets.WORK
) -> Projection | None:
    """Eliminate all but `keep`; the projection's table has one axis per kept variable, in order."""
    network, single = without_single(network, keep)
    affordable = max(deadline - planning_time(), 0) / budgets.CELL_SECONDS
    order = elimination_order(network, (*keep, *single), min(work, affordable))
    if order is None:
        return None
    rank = {v: i for i, v in enumerate((*order, *keep))}
    buckets: dict[int, list[Table]] = {v: [] for v in rank}
    for scope, table in network.tables:
        buckets[min(scope, key=rank.__getitem__)].append((scope, table))
    only = np.zeros((), dtype=np.uint8)
    chosen = [Eliminated(v, (), only) for v in single]
    for v in order:
        if has_passed(deadline):
            return None
        scope, least, best = _least_over(v, buckets.pop(v))
        chosen.append(Eliminated(v, scope, best.astype(argmin_type(network.sizes[v]))))
        if scope:
            buckets[min(scope, key=rank.__getitem__)].append((scope, least))
    table = np.zeros([network.sizes[v] for v in keep])
    for scope, part in (entry for v in keep for entry in buckets[v]):
        table += spread(scope, part, keep)
    return Projection(table, tuple(chosen))


def without_single(network: CostNetwork, keep: Scope = ()) -> tuple[CostNetwork, list[int]]:
    """The network without the variables that have one choice, and those variables.

    Each would take up an axis, and NumPy limits the axes of an array.
    """
    single = [v for v, size in enumerate(network.sizes) if size == 1 and v not in keep]
    if not single:
        return network, single
    gone = set(single)
    tables: list[Table] = []
    for scope, table in network.tables:
        left = tuple(v for v in scope if v not in gone)
        if len(left) < len(scope):
            table = table.reshape([network.sizes[v] for v in left])
        if left:
            tables.append((left, table))
    return CostNetwork(network.sizes, tables), single


def _least_over(v: int, tables: list[Table]) -> tuple[tuple[int, ...], Floats, NDArray[np.int32]]:
    """The tables' sum minimised over `v`: its scope, its table, and the minimisers.

    Compiled loops take a while to load, and pay off for large tables only.
    """
    rest = tuple(sorted({t for scope, _ in tables for t in scope} - {v}))
    sizes = {t: n for scope, table in tables for t, n in zip(scope, table.shape, strict=True)}
    shape = tuple(sizes[t] for t in (v, *rest))
    parts = sorted((spread(s, t, (v, *rest)) for s, t in tables), key=lambda part: part.size)
    if prod(shape) <= budgets.JOINED_AT_ONCE:
        joined = np.broadcast_to(sum(parts), shape)
        return rest, joined.min(axis=0), joined.argmin(axis=0).astype(np.int32)
    from eindecomp.solve.exact.table_loops import least_of_sum

    classes: list[Ints | None] = []
    # Looking for equivalent choices takes a few passes over the parts, in vain if one of them is
    # the whole join.
    if prod(shape) > budgets.COMPRESSED_RATIO * sum(part.size for part in parts):
        parts, classes = _compressed(parts, shape)
    joint = tuple(map(max, zip(*(part.shape for part in parts), strict=True)))
    least, best = least_of_sum(parts, joint)
    for axis, of in enumerate(classes):
        if of is not None:
            least, best = least.take(of, axis=axis), best.take(of, axis=axis)
    return rest, least, best


def _compressed(
    parts: list[Floats], shape: tuple[int, ...]
) -> tuple[list[Floats], list[Ints | None]]:
    """The parts with equivalent choices kept once, and the class of each choice along each axis.

    Costs often depend only on a part of a neighbour's choice: whoever reads a tensor sees how the
    tensor is cut, not how the vertex that computed it is.
    """
    classes: list[Ints | None] = []
    for axis in range(1, len(shape)):
        of = np.zeros(shape[axis], dtype=np.int64)
        for part in parts:
            if part.shape[axis] > 1:
                rows = np.ascontiguousarray(np.moveaxis(part, axis, 0))
                known: dict[bytes, int] = {}
                keys = [known.setdefault(row.tobytes(), len(known)) for row in rows]
                # Classes are split by a further key, and renumbered.
                of = np.unique(of * len(known) + np.array(keys), return_inverse=True)[1]
        first = np.unique(of, return_index=True)[1]
        if first.size == shape[axis]:
            classes.append(None)
            continue
        classes.append(of)
        parts = [p if p.shape[axis] == 1 else p.take(first, axis=axis) for p in parts]
    return parts, classes


def elimination_order(network: CostNetwork, keep: Scope, most_work: float) -> list[int] | None:
    """A greedy order of variables by the size of the joined table; None if it exceeds a cap."""
    weight = np.log2(np.array(network.sizes, dtype=np.float64)).tolist()
    near: list[set[int]] = [set() for _ in weight]
    for scope, _ in network.tables:
        for v in scope:
            near[v].update(scope)
    for v, around in enumerate(near):
        around.discard(v)

    def load(v: int) -> float:
        return weight[v] + sum(weight[t] for t in near[v])

    done = set(keep)
    loads = [load(v) for v in range(len(weight))]
    heap = [(size, v) for v, size in enumerate(loads)]
    heapq.heapify(heap)
    order: list[int] = []
    total, work = 0.0, 0.0
    while heap:
        size, v = heapq.heappop(heap)
        if v in done or size != loads[v]:
            continue
        if size - weight[v] > np.log2(budgets.TABLE_CELLS) + budgets.ROUNDING:
            return None
        total += 2.0 ** (size - weight[v]) * argmin_type(network.sizes[v]).itemsize
        work += 2.0**size
        if total > budgets.ARGMIN_BYTES or work > most_work:
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


def argmin_type(choices: int) -> np.dtype[Any]:
    """The smallest type that numbers a variable's choices."""
    return np.dtype(np.uint8 if choices <= 256 else np.int32)
