"""Random induced trees of a graph, and the best choices on one given all other choices.

A tree is `count` variables in `order`, parents first; `up[i]` is the arc from variable `i` of the
tree to its parent, `place[v]` is where `v` stands in the order, or -1. Costs of the tree's choices
are packed at `place_of`; its new choices are `fresh`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints
from eindecomp.solve.problem.core import ArcGraph, add_usage, prefix_sums
from eindecomp.solve.search.lagrangian import largest_domain


class Scratch(NamedTuple):
    """Working memory for one tree at a time; see the module's docstring."""

    place: Ints
    order: Ints
    up: Ints
    place_of: Ints
    plain: Floats
    """Costs of the tree's choices, given the choices outside it."""
    belief: Floats
    """The same plus noise, prices and the least costs of the subtree."""
    fresh: Ints
    frontier: Ints
    extra: Floats
    """A price for each step, and one unused entry."""
    change: Floats
    """Differences of usage from step to step."""
    buffer: Floats


@compiled
def scratch(graph: ArcGraph, most: int) -> Scratch:
    """Room for trees of up to `most` variables."""
    largest = largest_domain(graph)
    cells = min(most * largest, graph.offset[-1])
    return Scratch(
        np.full(graph.offset.size - 1, -1),
        np.zeros(most, np.int64),
        np.zeros(most, np.int64),
        np.zeros(most + 1, np.int64),
        np.zeros(cells),
        np.zeros(cells),
        np.zeros(most, np.int64),
        np.zeros(graph.to.size + 1, np.int64),
        np.zeros(graph.capacity.size + 1),
        np.zeros(graph.capacity.size + 1),
        np.zeros(largest),
    )


@compiled
def grow(graph: ArcGraph, state: RandomState, root: int, size: int, tree: Scratch) -> int:
    """Grow an induced tree of up to `size` variables from a root; how many it has."""
    place, order, up, frontier = tree.place, tree.order, tree.up, tree.frontier
    order[0], up[0] = root, -1
    place[order[0]] = 0
    count, waiting, tail = 1, 0, 0
    breadth = random_below(state, 2) == 0
    v, arc = order[0], -1
    while True:
        for a in range(graph.start[v], graph.start[v + 1]):
            if place[graph.to[a]] < 0 and waiting < frontier.size:
                frontier[waiting] = graph.back[a]
                waiting += 1
        v = -1
        while waiting > tail and v < 0:
            if breadth:
                pick = tail + random_below(state, min(waiting - tail, 8))
                arc = frontier[pick]
                frontier[pick] = frontier[tail]
                tail += 1
            else:
                pick = tail + random_below(state, waiting - tail)
                arc = frontier[pick]
                waiting -= 1
                frontier[pick] = frontier[waiting]
            # The arc leads back to the tree; its source is where its reverse leads.
            v = graph.to[graph.back[arc]]
            if place[v] >= 0:
                v = -1
                continue
            inside = 0
            for a in range(graph.start[v], graph.start[v + 1]):
                if place[graph.to[a]] >= 0:
                    inside += 1
            if inside > 1:
                v = -1
        if v < 0 or count == size:
            return count
        order[count], up[count] = v, arc
        place[v] = count
        count += 1


@compiled
def local_costs(graph: ArcGraph, unary: Floats, choice: Ints, tree: Scratch, count: int) -> None:
    """Each tree variable's costs given the choices of its neighbours outside the tree."""
    place, place_of, plain = tree.place, tree.place_of, tree.plain
    place_of[0] = 0
    for i in range(count):
        v, base = tree.order[i], place_of[i]
        size = graph.offset[v + 1] - graph.offset[v]
        place_of[i + 1] = base + size
        for k in range(size):
            plain[base + k] = unary[graph.offset[v] + k]
        for a in range(graph.start[v], graph.start[v + 1]):
            t = graph.to[a]
            if place[t] < 0:
                row = graph.table[graph.back[a]] + choice[t] * size
                for k in range(size):
                    plain[base + k] += graph.cells[row + k]


@compiled
def solve_tree(
    graph: ArcGraph, state: RandomState, noise: float, tree: Scratch, count: int, priced: bool
) -> None:
    """Write the tree's best choices into `fresh`; with `priced`, usage counts too."""
    place_of, belief, buffer = tree.place_of, tree.belief, tree.buffer
    for k in range(place_of[count]):
        belief[k] = tree.plain[k]
        if noise > 0.0:
            belief[k] -= noise * np.log((random_below(state, 1 << 30) + 1.0) / (1 << 30))
    if priced:
        before = prefix_sums(tree.extra[:-1])
        for i in range(count):
            add_usage(graph, before, tree.order[i], belief[place_of[i] : place_of[i + 1]])
    for i in range(count - 1, 0, -1):
        arc = tree.up[i]
        base, parent = place_of[i], place_of[tree.place[graph.to[arc]]]
        width = graph.message[arc + 1] - graph.message[arc]
        table = graph.table[arc]
        for j in range(width):
            buffer[j] = belief[base] + graph.cells[table + j]
        for k in range(1, place_of[i + 1] - base):
            own = belief[base + k]
            row = graph.cells[table + k * width : table + (k + 1) * width]
            for j in range(width):
                buffer[j] = min(buffer[j], own + row[j])
        for j in range(width):
            belief[parent + j] += buffer[j]
    _choose(graph, state, tree, count)


@compiled
def _choose(graph: ArcGraph, state: RandomState, tree: Scratch, count: int) -> None:
    """Fix the tree's variables, parents first, each to its best given its parent's choice."""
    up, place_of, belief, fresh = tree.up, tree.place_of, tree.belief, tree.fresh
    for i in range(count):
        base, size = place_of[i], place_of[i + 1] - place_of[i]
        row = 0
        if i > 0:
            row = graph.table[graph.back[up[i]]] + fresh[tree.place[graph.to[up[i]]]] * size
        shift = random_below(state, size)  # so that ties are broken at random
        least = np.inf
        for turn in range(size):
            k = turn + shift
            if k >= size:
                k -= size
            cost = belief[base + k]
            if i > 0:
                cost += graph.cells[row + k]
            if cost < least:
                least = cost
                fresh[i] = k


@compiled
def gain(graph: ArcGraph, choice: Ints, tree: Scratch, count: int) -> float:
    """By how much the new choices lower the tree's cost."""
    up, place_of, plain, fresh = tree.up, tree.place_of, tree.plain, tree.fresh
    gain = 0.0
    for i in range(count):
        v = tree.order[i]
        gain += plain[place_of[i] + choice[v]] - plain[place_of[i] + fresh[i]]
        if i > 0:
            t = graph.to[up[i]]
            width = graph.offset[t + 1] - graph.offset[t]
            gain += graph.cells[graph.table[up[i]] + choice[v] * width + choice[t]]
            gain -= graph.cells[graph.table[up[i]] + fresh[i] * width + fresh[tree.place[t]]]
    return float(gain)


@compiled
def true_gain(
    graph: ArcGraph, unary: Floats, choice: Ints, tree: Scratch, count: int, gain: float
) -> float:
    """The gain without the prices that `unary` includes."""
    for i in range(count):
        v = tree.order[i]
        old, new = graph.offset[v] + choice[v], graph.offset[v] + tree.fresh[i]
        gain -= float((unary[old] - graph.unary[old]) - (unary[new] - graph.unary[new]))
    return gain


@compiled
def usage_change(graph: ArcGraph, choice: Ints, tree: Scratch, count: int) -> tuple[int, int]:
    """Write the changes of usage from step to step into `change`; the range of steps changed."""
    fresh, change = tree.fresh, tree.change
    first, last = graph.capacity.size, 0
    for i in range(count):
        v = tree.order[i]
        if fresh[i] == choice[v]:
            continue
        for item in range(graph.item_start[v], graph.item_start[v + 1]):
            base = graph.item_offset[item]
            delta = graph.item_usage[base + fresh[i]] - graph.item_usage[base + choice[v]]
            if delta != 0.0:
                change[graph.item_span[item, 0]] += delta
                change[graph.item_span[item, 1]] -= delta
                first = min(first, graph.item_span[item, 0])
                last = max(last, graph.item_span[item, 1])
    return first, last


RandomState = NDArray[np.uint64]
"""One non-zero word."""


@compiled
def random_below(state: RandomState, n: int) -> int:
    """A pseudo-random integer in [0, n), by xorshift64*; changes the state in place."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    high = (x * np.uint64(2685821657736338717)) >> np.uint64(33)
    return int(np.int64(high) % n)
