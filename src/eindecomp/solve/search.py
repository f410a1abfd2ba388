"""Local search by exact dynamic programs on random trees of the graph, within the capacities.

A move grows a random induced tree, finds its best choices given the rest, and is taken if no step
overflows. Where one does, prices on the overflowing steps are raised and the tree is solved anew.
`explore` shakes a random region with perturbed costs, settles it again and keeps what is no worse.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eindecomp.solve.compiled import Mask, State, compiled
from eindecomp.solve.graph import Graph, random_below
from eindecomp.solve.problem import Floats, Ints
from eindecomp.solve.tree import gain, grow, local_costs, solve_tree, true_gain, usage_change

_ATTEMPTS = 5


class Scratch(NamedTuple):
    """Working memory of the moves, allocated once per call."""

    place: Ints
    order: Ints
    up: Ints
    place_of: Ints
    plain: Floats
    belief: Floats
    fresh: Ints
    frontier: Ints
    extra: Floats
    change: Floats
    buffer: Floats


@compiled
def _scratch(graph: Graph, most: int) -> Scratch:
    n = graph.offset.size - 1
    largest = 1
    for v in range(n):
        largest = max(largest, graph.offset[v + 1] - graph.offset[v])
    return Scratch(
        np.full(n, -1),
        np.zeros(most, np.int64),
        np.zeros(most, np.int64),
        np.zeros(most + 1, np.int64),
        np.zeros(min(most * largest, graph.offset[-1])),
        np.zeros(min(most * largest, graph.offset[-1])),
        np.zeros(most, np.int64),
        np.zeros(graph.to.size + 1, np.int64),
        np.zeros(graph.capacity.size + 1),
        np.zeros(graph.capacity.size + 1),
        np.zeros(largest),
    )


@compiled
def improve(
    graph: Graph, unary: Floats, choice: Ints, used: Floats, state: State, moves: int, most: int
) -> float:
    """Make `moves` moves on `choice` in place, keeping `used` in step; the change of cost.

    `unary` may hold prices on usage; the change returned is that of `graph.unary`'s cost.
    """
    n = graph.offset.size - 1
    most = min(most, n)
    work = _scratch(graph, most)
    total = 0.0
    for _ in range(moves):
        size = 1 + random_below(state, 1 + random_below(state, most))
        root = random_below(state, n)
        total += _move(graph, unary, choice, used, state, 0.0, root, size, work)
    return total


@compiled
def explore(
    graph: Graph,
    unary: Floats,
    choice: Ints,
    used: Floats,
    state: State,
    rounds: int,
    most: int,
    noise: float,
    reach: int,
) -> float:
    """Shake and settle `rounds` regions of up to `reach` variables; the change of cost."""
    n = graph.offset.size - 1
    most, reach = min(most, n), min(reach, n)
    work = _scratch(graph, most)
    region = np.zeros(reach, np.int64)
    seen = np.zeros(n, dtype=np.bool_)
    old_choice, old_used = choice.copy(), used.copy()
    total = 0.0
    for _ in range(rounds):
        count = _region(graph, state, 1 + random_below(state, reach), region, seen)
        step = 0.0
        for _ in range(1 + random_below(state, 4)):
            size = 1 + random_below(state, most)
            root = region[random_below(state, count)]
            step += _move(graph, unary, choice, used, state, noise, root, size, work)
        for turn in range(2 * count):
            size = 1 + random_below(state, 1 + random_below(state, most))
            root = region[random_below(state, count)]
            # The last moves look at costs alone: they use up what capacity is left.
            seen_costs = unary if turn < count else graph.unary
            step += _move(graph, seen_costs, choice, used, state, 0.0, root, size, work)
        if step <= 0.0:
            total += step
            old_choice[:], old_used[:] = choice, used
        else:
            choice[:], used[:] = old_choice, old_used
    return total


@compiled
def _region(graph: Graph, state: State, size: int, region: Ints, seen: Mask) -> int:
    """A connected set of up to `size` variables around a random one."""
    region[0] = random_below(state, graph.offset.size - 1)
    seen[region[0]] = True
    count, head = 1, 0
    while head < count and count < size:
        v = region[head]
        head += 1
        for a in range(graph.start[v], graph.start[v + 1]):
            t = graph.to[a]
            if not seen[t] and count < size:
                seen[t] = True
                region[count] = t
                count += 1
    for i in range(count):
        seen[region[i]] = False
    return count


@compiled
def _move(
    graph: Graph,
    unary: Floats,
    choice: Ints,
    used: Floats,
    state: State,
    noise: float,
    root: int,
    size: int,
    work: Scratch,
) -> float:
    """Solve one tree, with prices on what overflows; take the result if it fits."""
    count = grow(graph, state, root, size, work.place, work.order, work.up, work.frontier)
    local_costs(graph, unary, choice, work.place, work.order, count, work.place_of, work.plain)
    low, high = graph.capacity.size, 0
    result = 0.0
    for attempt in range(_ATTEMPTS):
        solve_tree(
            graph, state, noise, work.order, work.up, work.place, count, work.place_of, work.plain,
            work.belief, work.fresh, work.extra, attempt > 0, work.buffer,
        )  # fmt: skip
        better = gain(
            graph, choice, work.order, work.up, work.place, count, work.place_of, work.plain,
            work.fresh,
        )  # fmt: skip
        if noise == 0.0 and better < 0.0:
            break
        first, last = usage_change(graph, choice, work.order, count, work.fresh, work.change)
        overflow = _overflow(graph, used, work.change, first, last)
        if overflow == 0.0:
            result = -true_gain(graph, unary, choice, work.order, count, work.fresh, better)
            _take(choice, used, work, count, first, last)
            break
        _raise_prices(graph, used, work, first, last, (abs(better) + noise) / overflow)
        work.change[first : last + 1] = 0.0
        low, high = min(low, first), max(high, last)
    if high > low:
        work.extra[low:high] = 0.0
    for i in range(count):
        work.place[work.order[i]] = -1
    return result


@compiled
def _overflow(graph: Graph, used: Floats, change: Floats, first: int, last: int) -> float:
    """The usage that a change adds beyond capacity, summed over steps."""
    overflow, running = 0.0, 0.0
    for t in range(first, last):
        running += change[t]
        over = used[t] + running - max(graph.capacity[t], used[t])
        if over > 0.0:
            overflow += over
    return overflow


@compiled
def _raise_prices(
    graph: Graph, used: Floats, work: Scratch, first: int, last: int, unit: float
) -> None:
    running = 0.0
    for t in range(first, last):
        running += work.change[t]
        if used[t] + running > max(graph.capacity[t], used[t]):
            work.extra[t] = work.extra[t] * 3.0 + unit


@compiled
def _take(choice: Ints, used: Floats, work: Scratch, count: int, first: int, last: int) -> None:
    """Make the tree's fresh choices the choice, and clear the change of usage."""
    running = 0.0
    for t in range(first, last):
        running += work.change[t]
        used[t] += running
    if last > first:
        work.change[first : last + 1] = 0.0
    for i in range(count):
        choice[work.order[i]] = work.fresh[i]
