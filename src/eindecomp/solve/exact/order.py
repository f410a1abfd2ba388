"""In which order variables are eliminated: greedily, or improved by moving one at a time.

The work of a step is the size of the joined table. A table over two variables that is mostly ∞, as
one that ties a vertex's assignment to what it reads or leaves, makes it smaller by that much.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.solve.problem.cost_network import CostNetwork

CELLS = 1 << 25  # the most cells of a table: 256 MiB, and 128 MiB for its argmin
TOTAL_BYTES = 1 << 30  # the most bytes of all argmin tables, which back-tracking needs
SPARSE = 4  # a table is sparse if less than one in so many costs is finite
_LARGEST = np.log2(CELLS) + 1e-9
_TOO_LARGE = 2.0**40  # how many times its cells a table counts that may not be made
_TRIES = 1500  # orders that are tried for an improvement
_MOST = 200  # variables up to which they are


@dataclass(frozen=True, slots=True)
class Order:
    """An elimination order and how many cells it will sum."""

    variables: list[int]
    work: float


def elimination_order(
    network: CostNetwork, keep: tuple[int, ...], most_work: int | None
) -> Order | None:
    """A greedy order by the size of the joined table; None if it would exceed a cap.

    With no limit on the work, tables may be of any size.
    """
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
        if most_work is not None and size - weight[v] > _LARGEST:
            return None
        total += 2.0 ** (size - weight[v]) * argmin_type(network.sizes[v]).itemsize
        work += 2.0**size
        if most_work is not None and (total > TOTAL_BYTES or work > most_work):
            return None
        done.add(v)
        order.append(v)
        for t in near[v]:
            near[t] |= near[v]
            near[t] -= {t, v}
        for t in near[v]:
            loads[t] = load(t)
            heapq.heappush(heap, (loads[t], t))
    return Order(order, work)


def argmin_type(choices: int) -> np.dtype[Any]:
    """The smallest type that numbers a variable's choices."""
    return np.dtype(np.uint8 if choices <= 256 else np.int32)


def improved_order(
    network: CostNetwork, keep: tuple[int, ...], most_work: int, order: Order | None
) -> Order | None:
    """An order of less work, from moving one variable after another in a greedy one."""
    first = elimination_order(network, keep, None)
    if first is None or len(first.variables) > _MOST:
        return order
    rng = random.Random(0)  # noqa: S311 - any sequence of moves serves
    steps = _Steps.of(network)
    variables, work = first.variables, steps.work(first.variables, inf)
    for _ in range(_TRIES):
        moved = list(variables)
        v = moved.pop(rng.randrange(len(moved)))
        moved.insert(rng.randrange(len(moved) + 1), v)
        other = steps.work(moved, work)
        if other <= work:
            variables, work = moved, other
    return Order(variables, work) if work <= most_work else None


@dataclass(frozen=True, slots=True)
class _Steps:
    """What decides the work of an order; sets of variables are bits of an integer."""

    weight: list[float]
    near: list[int]
    sparse: list[dict[int, float]]
    """For each variable those that it is joined to by a table that is mostly ∞, and how much."""

    @staticmethod
    def of(network: CostNetwork) -> _Steps:
        weight: list[float] = np.log2(np.array(network.sizes, dtype=np.float64)).tolist()
        steps = _Steps(weight, [0] * len(weight), [{} for _ in weight])
        for scope, table in network.tables:
            for v in scope:
                steps.near[v] |= sum(1 << t for t in scope)
            finite = np.count_nonzero(table < np.inf) if len(scope) == 2 else table.size
            if SPARSE * finite < table.size:
                ratio = float(np.log2(max(finite, 1) / table.size))
                for v, t in (scope, scope[::-1]):
                    steps.sparse[v][t] = min(steps.sparse[v].get(t, 0.0), ratio)
        return steps

    def work(self, variables: Sequence[int], most: float) -> float:
        """The cells that an order sums, or some number above `most`; no table may be too large."""
        near, total = list(self.near), 0.0
        for v in variables:
            rest = near[v] & ~(1 << v)
            table = sum(self.weight[t] for t in _bits(rest))
            skipped = min((r for t, r in self.sparse[v].items() if rest >> t & 1), default=0.0)
            too_large = _TOO_LARGE if table > _LARGEST else 1.0
            total += too_large * 2.0 ** (self.weight[v] + table + skipped)
            if total > most:
                return total
            for t in _bits(rest):
                near[t] = (near[t] | rest) & ~(1 << v)
        return total


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
