"""The relaxed problem within a memory limit: a Lagrangian bound with one price of memory.

At whichever step, inputs and the results that are alive then must fit. Charging a price for each
byte of them and giving back as much for each byte of the limit bounds what every plan costs that
fits. The best price is found by cutting planes: the bound is concave in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, Protocol

import numpy as np

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.planner import budgets
from eindecomp.planner.costs.price import Price
from eindecomp.planner.model.layout_prices import Chosen, LayoutPrices, Usage
from eindecomp.planner.model.memory_limit import Lifetimes
from eindecomp.planner.model.movement import MovementModel
from eindecomp.planner.space.choices import Choices, Reads
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.solve import Problem
from eindecomp.solve.clock import has_passed
from eindecomp.solve.exact.bounding import Bounding
from eindecomp.solve.problem.arrays import Ints


@dataclass(frozen=True)
class Point:
    """What a price leads to: the bound there, and the best choice's cost and memory."""

    price: float
    bound: float
    cost: float
    used: int
    chosen: Chosen


class Charged(Protocol):
    """A problem in which bytes of memory have a price."""

    def solved(self, memory: int, price: float, deadline: float) -> Point | None:
        """The bound at one price; None if nothing was found in time."""
        ...


def limited(problem: Charged, memory: int, deadline: float) -> tuple[float, list[Chosen]]:
    """A bound on all plans within a limit on memory, and the choices at prices around the best."""
    free = problem.solved(memory, 0.0, deadline)
    if free is None or free.used <= memory:
        return (0, []) if free is None else (free.bound, [free.chosen])
    best, over, under = free.bound, free, None
    price = (abs(free.cost) + 1) / max(memory, 1)
    for _ in range(budgets.MEMORY_PRICES):
        point = problem.solved(memory, price, deadline)
        if point is None or has_passed(deadline):
            break
        best = max(best, point.bound)
        if point.used > memory:
            over = point
        else:
            under = point
        if under is None:
            price *= 4
            continue
        # Where the lines of the two choices meet, no price between them can bound better.
        meet = (under.cost - over.cost) / max(over.used - under.used, 1)
        value = over.cost + meet * (over.used - memory)
        if value <= best * (1 + budgets.MEMORY_GAIN) or meet in (over.price, under.price):
            break
        price = meet
    return best, [point.chosen for point in (under, over) if point is not None]


@dataclass(frozen=True)
class Eliminated:
    """The relaxed problem, solved by elimination at every price."""

    model: MovementModel

    @cached_property
    def _problem(self) -> Problem:
        return _in_floats(self.model.problem())

    @cached_property
    def _usage(self) -> Ints:
        """What each choice makes a device hold, packed like unary costs."""
        model = self.model
        own = {name: site.choices for name, site in model.sites.items()}
        usage = [np.zeros(len(each), dtype=np.int64) for each in model.tables.unary]
        found = usage_of(model.graph, model.rules, model.price, own)
        for name, (assigned, placed) in found.items():
            site, at = model.sites[name], model.assign[name]
            if name in model.home:
                usage[model.home[name]] += placed
                each = assigned
            else:
                each = assigned + placed[site.home_of]
            usage[at] += np.repeat(each, 1 << len(site.shared))
        return np.concatenate([np.zeros(0, dtype=np.int64), *usage])

    def solved(self, memory: int, price: float, deadline: float) -> Point | None:
        """The bound at one price; None if nothing was found in time."""
        problem, usage = self._problem, self._usage
        charged = replace(problem, unary=problem.unary + price * usage)
        bounding = Bounding.of(charged, deadline)
        if bounding.choice is None:
            return None
        at = problem.offset[:-1] + bounding.choice
        used, cost = int(usage[at].sum()), problem.cost_of(bounding.choice)
        bound = (bounding.value - price * memory) * (1 - budgets.SUM_ROUNDING)
        chosen = self.model.chosen(bounding.choice)
        return Point(price, bound, float(cost), used, chosen)


@dataclass
class Priced:
    """The same by prices of layouts, which are kept from one price of memory to the next."""

    prices: LayoutPrices
    usage: Usage
    _price: float = field(default=0.0, init=False)

    def solved(self, memory: int, price: float, deadline: float) -> Point | None:
        """The bound at one price."""
        prices = self.prices
        if price != self._price:
            prices.charge(self.usage, price - self._price, memory)
            self._price = price
        prices.raise_bound(inf, deadline, budgets.FIRST_GAIN)
        chosen, used = prices.choose(), 0
        for name, (row, home) in chosen.items():
            if name in self.usage:
                assigned, placed = self.usage[name]
                used += int(assigned[row] + placed[home])
        cost = prices.cost_of(chosen) - price * (used - memory)
        return Point(price, prices.bound, cost, used, chosen)


def _in_floats(problem: Problem) -> Problem:
    """The same with costs to which fractions can be added; layers share tables as before."""
    shared = {id(factor.table): factor.table for factor in problem.factors}
    floats = {key: problem.floats(table) for key, table in shared.items()}
    factors = tuple(replace(each, table=floats[id(each.table)]) for each in problem.factors)
    unary, tables = problem.floats(problem.unary), problem.floats(problem.tables)
    return replace(problem, unary=unary, tables=tables, factors=factors)


def usage_of(graph: Graph, rules: LayoutRules, price: Price, own: Mapping[str, Choices]) -> Usage:
    """What each choice makes a device hold at the step at which all that is held is largest."""
    usage: Usage = {}

    def fullest(cuts: Any, item: int) -> Ints:
        """The bytes of each cut on a device that has the largest piece."""
        return price.held(cuts, item) // price.mesh.devices

    def hold(name: str, assigned: Ints | int, placed: Ints | int) -> None:
        before = usage.get(name)
        if before is None:
            sizes = len(own[name].assignments), len(own[name].homes)
            before = np.zeros(sizes[0], dtype=np.int64), np.zeros(sizes[1], dtype=np.int64)
        usage[name] = before[0] + assigned, before[1] + placed

    for name, reads, readers in _free_reads(graph, rules, own):
        item = graph[name[1]].dtype.itemsize
        # The largest piece that anyone needs is at least the mean.
        hold(name[0], (fullest(reads.cuts, item) // readers)[reads.of], 0)
    lives = Lifetimes.of(graph, rules, at_least=True)
    vertices = (graph[name] for name in lives.held)
    sizes = {each.name: each.elements * each.dtype.itemsize for each in vertices}
    for name in lives.held_at(lives.fullest_step(sizes)):
        maker = rules.tie.get(name, name)
        if maker in own:
            hold(maker, 0, fullest(own[maker].homes, graph[maker].dtype.itemsize))
    return usage


def _free_reads(
    graph: Graph, rules: LayoutRules, own: Mapping[str, Choices]
) -> Iterator[tuple[tuple[str, str], Reads, int]]:
    """Who reads which free input, and how many do: it is held throughout, as some reader needs."""
    readers: dict[str, list[tuple[str, Reads]]] = {}
    for name, choices in own.items():
        for source, reads in zip(graph[name].inputs, choices.reads, strict=True):
            vertex = graph[source]
            if reads is not None and isinstance(vertex.op, Input) and not rules.has_home(vertex):
                readers.setdefault(source, []).append((name, reads))
    for source, reading in readers.items():
        for name, reads in reading:
            yield (name, source), reads, len(reading)
