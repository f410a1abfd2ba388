"""Branch and bound over the Lagrangian bound, best bound first: exact, given time.

A node is a set of remaining choices. Expanding it improves its parent's prices a little, removes
choices whose bound exceeds the best known cost and choices that no longer fit the capacities, and
branches on a variable that the last decoded choices disagree on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from eindecomp.solve import budgets
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints, Mask
from eindecomp.solve.problem.core import ArcGraph, cost_of, penalised
from eindecomp.solve.search.lagrangian import (
    Ascent,
    gather,
    largest_domain,
    proved_bound,
    scatter,
    sweep,
)


@dataclass(order=True, slots=True)
class OpenNode:
    """A node that is to be expanded; ordered by bound, then newest first."""

    bound: float
    serial: int
    keep: Mask = field(compare=False)
    price: Floats = field(compare=False)


@dataclass(slots=True)
class Branching:
    """A branch and bound search over a graph of finite costs.

    A choice is reported if it costs no more than the cutoff: the best known cost less `margin`.
    """

    graph: ArcGraph
    root: Ascent
    margin: float
    open: list[OpenNode] = field(default_factory=list[OpenNode])
    serial: int = 0

    def start(self) -> None:
        """Open the root node at the root ascent's best prices."""
        keep = np.ones(self.graph.unary.size, dtype=np.bool_)
        self.open = [OpenNode(self.root.bound, 0, keep, self.root.best_price.copy())]

    def run(self, cutoff: float) -> Iterator[tuple[float, Ints | None]]:
        """Expand nodes until none is open; every choice reported lowers the cutoff.

        Each gives the bound over all open nodes, and a better choice if there is a new one.
        """
        while self.open:
            node = heapq.heappop(self.open)
            if node.bound > cutoff:
                self.open = []
                break
            choice = self._expand(node, cutoff)
            if choice is not None:
                cutoff = min(cutoff, cost_of(self.graph, choice) - self.margin)
            yield (self.open[0].bound if self.open else np.inf), choice

    def _expand(self, node: OpenNode, cutoff: float) -> Ints | None:
        keep = node.keep
        if not propagate(self.graph, keep):
            return None
        masked = self.graph._replace(unary=np.where(keep, self.graph.unary, np.inf))
        ascent = Ascent.begin(masked, node.price, self.root.messages)
        ascent.pace = 0.3
        better, votes = self._ascend(ascent, cutoff)
        bound = max(ascent.bound, node.bound)
        if better is not None:
            cutoff = min(cutoff, cost_of(self.graph, better) - self.margin)
        if bound > cutoff:
            return better
        unary = penalised(masked, ascent.best_price)
        if not fix_choices(masked, unary, ascent.messages, keep, cutoff, ascent.best_price):
            return better
        self._branch(keep, votes, bound, ascent)
        return better

    def _ascend(self, ascent: Ascent, cutoff: float) -> tuple[Ints | None, Floats]:
        """Improve prices; the best choice met within the cutoff, and how often each was decoded."""
        votes = np.zeros(self.graph.unary.size)
        best: Ints | None = None
        for turn in range(budgets.NODE_ITERATIONS):
            slack = ascent.iterate(cutoff + self.margin)
            votes *= 0.8
            votes[self.graph.offset[:-1] + ascent.choice] += 1.0
            if np.all(slack >= 0) and cost_of(self.graph, ascent.choice) <= cutoff:
                best = ascent.choice.copy()
                cutoff = cost_of(self.graph, best) - self.margin
            if ascent.bound > cutoff or (turn > 4 and ascent.stalled > 4):
                break
        return best, votes

    def _branch(self, keep: Mask, votes: Floats, bound: float, ascent: Ascent) -> None:
        """Branch on the variable whose votes are most divided, weighted by what is at stake."""
        graph = self.graph
        counts = np.add.reduceat(keep, graph.offset[:-1], dtype=np.int64)
        if np.all(counts <= 1):
            return
        total = votes.sum() / max(counts.size, 1)
        share = np.where(keep, votes, 0.0) / total
        doubt = 1.0 - np.maximum.reduceat(share, graph.offset[:-1])
        priced = penalised(graph, ascent.best_price) - graph.unary
        high = np.maximum.reduceat(np.where(keep, priced, -np.inf), graph.offset[:-1])
        low = np.minimum.reduceat(np.where(keep, priced, np.inf), graph.offset[:-1])
        stakes = (doubt + 1e-3) * (high - low + 1e-9)
        v = int(np.argmax(np.where(counts > 1, stakes, -1.0)))
        own = slice(int(graph.offset[v]), int(graph.offset[v + 1]))
        pick = int(np.argmax(np.where(keep[own], share[own] + 1e-9, -1.0)))
        for chosen in (True, False):
            child = keep.copy()
            child[own] = keep[own] & ((np.arange(keep[own].size) == pick) == chosen)
            self.serial -= 1
            heapq.heappush(self.open, OpenNode(bound, self.serial, child, ascent.best_price.copy()))


def fix_choices(
    graph: ArcGraph, unary: Floats, messages: Floats, keep: Mask, cutoff: float, price: Floats
) -> bool:
    """Clear `keep` where a choice's bound exceeds the cutoff; False if a variable has none left."""
    sweep(graph, unary, messages, True)
    sweep(graph, unary, messages, False)
    raw, magnitude = proved_bound(graph, unary, messages)
    paid = float((price * graph.capacity).sum())
    room = cutoff - (raw - paid)
    if room < 0.0:
        return False
    room += 64 * np.finfo(np.float64).eps * (magnitude + abs(paid))
    return bool(_fix_forward(graph, unary, messages, keep, room))


@compiled
def _fix_forward(graph: ArcGraph, unary: Floats, messages: Floats, keep: Mask, room: float) -> bool:
    """A forward sweep: a choice costs at least its belief's excess over the least belief."""
    belief = np.zeros(largest_domain(graph))
    for s in range(graph.offset.size - 1):
        size = graph.offset[s + 1] - graph.offset[s]
        base = graph.offset[s]
        ahead = gather(graph, unary, messages, belief, s, True)
        least = belief[:size].min()
        for k in range(size):
            if belief[k] - least > room:
                keep[base + k] = False
                belief[k] = np.inf
                unary[base + k] = np.inf
        if not keep[base : base + size].any():
            return False
        scatter(graph, messages, belief, s, True, ahead)
    return True


@compiled
def propagate(graph: ArcGraph, keep: Mask) -> bool:
    """Clear `keep` for choices that overflow even if all others use least; False if none fit."""
    steps = graph.capacity.size
    n = graph.offset.size - 1
    change = np.zeros(steps + 1)
    own = np.zeros(steps + 1)
    changed = True
    while changed:
        changed = False
        change[:] = 0.0
        for v in range(n):
            if not keep[graph.offset[v] : graph.offset[v + 1]].any():
                return False
            for item in range(graph.item_start[v], graph.item_start[v + 1]):
                low = _least_usage(graph, keep, v, item)
                change[graph.item_span[item, 0]] += low
                change[graph.item_span[item, 1]] -= low
        slack = graph.capacity - np.cumsum(change)[:-1]
        if steps > 0 and slack.min() < 0.0:
            return False
        for v in range(n):
            for k in range(graph.offset[v + 1] - graph.offset[v]):
                if keep[graph.offset[v] + k] and not _fits(graph, keep, v, k, slack, own):
                    keep[graph.offset[v] + k] = False
                    changed = True
    return True


@compiled
def _least_usage(graph: ArcGraph, keep: Mask, v: int, item: int) -> float:
    low = np.inf
    for k in range(graph.offset[v + 1] - graph.offset[v]):
        if keep[graph.offset[v] + k]:
            low = min(low, graph.item_usage[graph.item_offset[item] + k])
    return float(low)


@compiled
def _fits(graph: ArcGraph, keep: Mask, v: int, k: int, slack: Floats, own: Floats) -> bool:
    """Whether choice `k` of `v` fits if all other variables use as little as they can."""
    first, last = slack.size, 0
    for item in range(graph.item_start[v], graph.item_start[v + 1]):
        more = graph.item_usage[graph.item_offset[item] + k] - _least_usage(graph, keep, v, item)
        if more > 0.0:
            own[graph.item_span[item, 0]] += more
            own[graph.item_span[item, 1]] -= more
            first, last = min(first, graph.item_span[item, 0]), max(last, graph.item_span[item, 1])
    running = 0.0
    fits = True
    for t in range(first, last):
        running += own[t]
        fits = fits and running <= slack[t]
    if last > first:
        own[first : last + 1] = 0.0
    return fits
