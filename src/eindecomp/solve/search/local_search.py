"""Local search by exact dynamic programs on random trees of the graph, within the capacities.

A move grows a random induced tree, finds its best choices given the rest, and is made if no step
overflows. If one does, prices on the overflowing steps are raised and the tree is solved again.
`explore` perturbs a random region, improves it again, and keeps the result if it is no worse.
"""

from __future__ import annotations

import numpy as np

from eindecomp.solve.budgets import MOVE_ATTEMPTS
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Costs, Floats, Ints, Mask
from eindecomp.solve.problem.core import ArcGraph
from eindecomp.solve.search.random_trees import (
    RandomState,
    Scratch,
    gain,
    grow,
    local_costs,
    random_below,
    scratch,
    solve_tree,
    true_gain,
    usage_change,
)


@compiled
def improve(
    graph: ArcGraph,
    unary: Floats,
    choice: Ints,
    used: Floats,
    state: RandomState,
    moves: int,
    most: int,
) -> float:
    """Make `moves` moves on `choice` in place, keeping `used` in step; the change of cost.

    `unary` may hold prices on usage; the change returned is that of `graph.unary`'s cost.
    """
    n = graph.offset.size - 1
    most = min(most, n)
    tree = scratch(graph, most)
    total = 0.0
    for _ in range(moves):
        size = 1 + random_below(state, 1 + random_below(state, most))
        root = random_below(state, n)
        total += _move(graph, unary, choice, used, state, 0.0, root, size, tree)
    return total


@compiled
def explore(
    graph: ArcGraph,
    unary: Floats,
    choice: Ints,
    used: Floats,
    state: RandomState,
    rounds: int,
    most: int,
    noise: float,
    reach: int,
) -> float:
    """Perturb and improve `rounds` regions of up to `reach` variables; the change of cost."""
    n = graph.offset.size - 1
    most, reach = min(most, n), min(reach, n)
    tree = scratch(graph, most)
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
            step += _move(graph, unary, choice, used, state, noise, root, size, tree)
        for turn in range(2 * count):
            size = 1 + random_below(state, 1 + random_below(state, most))
            root = region[random_below(state, count)]
            # The last moves ignore prices, so that they use up what capacity is left.
            seen_costs = unary if turn < count else graph.unary
            step += _move(graph, seen_costs, choice, used, state, 0.0, root, size, tree)
        if step <= 0.0:
            total += step
            _copy(choice, old_choice)
            _copy(used, old_used)
        else:
            _copy(old_choice, choice)
            _copy(old_used, used)
    return total


@compiled
def _copy(source: Costs, target: Costs) -> None:
    # With target[:] = source, numba would also compile its shape error, which takes seconds.
    for i in range(source.size):
        target[i] = source[i]


@compiled
def _region(graph: ArcGraph, state: RandomState, size: int, region: Ints, seen: Mask) -> int:
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
    graph: ArcGraph,
    unary: Floats,
    choice: Ints,
    used: Floats,
    state: RandomState,
    noise: float,
    root: int,
    size: int,
    tree: Scratch,
) -> float:
    """Solve one tree, with prices on overflowing steps; make the move if it fits."""
    count = grow(graph, state, root, size, tree)
    local_costs(graph, unary, choice, tree, count)
    low, high = graph.capacity.size, 0
    result = 0.0
    for attempt in range(MOVE_ATTEMPTS):
        solve_tree(graph, state, noise, tree, count, attempt > 0)
        better = gain(graph, choice, tree, count)
        if noise == 0.0 and better < 0.0:
            break
        first, last = usage_change(graph, choice, tree, count)
        overflow = _overflow(graph, used, tree.change, first, last)
        if overflow == 0.0:
            result = -true_gain(graph, unary, choice, tree, count, better)
            _take(choice, used, tree, count, first, last)
            break
        _raise_prices(graph, used, tree, first, last, (abs(better) + noise) / overflow)
        tree.change[first : last + 1] = 0.0
        low, high = min(low, first), max(high, last)
    if high > low:
        tree.extra[low:high] = 0.0
    for i in range(count):
        tree.place[tree.order[i]] = -1
    return result


@compiled
def _overflow(graph: ArcGraph, used: Floats, change: Floats, first: int, last: int) -> float:
    """The usage beyond capacity that a change adds, summed over steps."""
    overflow, running = 0.0, 0.0
    for t in range(first, last):
        running += change[t]
        over = used[t] + running - max(graph.capacity[t], used[t])
        if over > 0.0:
            overflow += over
    return overflow


@compiled
def _raise_prices(
    graph: ArcGraph, used: Floats, tree: Scratch, first: int, last: int, unit: float
) -> None:
    running = 0.0
    for t in range(first, last):
        running += tree.change[t]
        if used[t] + running > max(graph.capacity[t], used[t]):
            tree.extra[t] = tree.extra[t] * 3.0 + unit


@compiled
def _take(choice: Ints, used: Floats, tree: Scratch, count: int, first: int, last: int) -> None:
    """Adopt the tree's new choices, and clear the change of usage."""
    running = 0.0
    for t in range(first, last):
        running += tree.change[t]
        used[t] += running
    if last > first:
        tree.change[first : last + 1] = 0.0
    for i in range(count):
        choice[tree.order[i]] = tree.fresh[i]
