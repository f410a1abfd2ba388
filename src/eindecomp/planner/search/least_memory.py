"""The relaxed problem within a memory limit: a Lagrangian bound with one price of memory.

At whichever step, inputs and the results that are alive then must fit. Charging a price for each
byte of them and giving back as much for each byte of the limit bounds what every plan costs that
fits. The best price is found by cutting planes: the bound is concave in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from eindecomp.graph.ops import Input
from eindecomp.planner import budgets
from eindecomp.planner.model.memory_limit import Lifetimes
from eindecomp.planner.model.movement import MovementModel
from eindecomp.solve import Problem
from eindecomp.solve.clock import has_passed
from eindecomp.solve.exact.bounding import Bounding
from eindecomp.solve.problem.arrays import Ints


@dataclass(frozen=True)
class _Point:
    """What a price leads to: the bound there, and the best choice's cost and memory."""

    price: float
    bound: float
    cost: float
    used: int
    choice: Any


def limited(model: MovementModel, memory: int, deadline: float) -> tuple[float, list[Any]]:
    """A bound on all plans within a limit on memory, and the choices at prices around the best."""
    problem = _in_floats(model.problem())
    usage = _usage(model)
    free = _solved(problem, usage, memory, 0.0, deadline)
    if free is None or free.used <= memory:
        return (0, []) if free is None else (free.bound, [free.choice])
    best, over, under = free.bound, free, None
    price = (abs(free.cost) + 1) / max(memory, 1)
    for _ in range(budgets.MEMORY_PRICES):
        point = _solved(problem, usage, memory, price, deadline)
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
    return best, [point.choice for point in (under, over) if point is not None]


def _solved(
    problem: Problem, usage: Ints, memory: int, price: float, deadline: float
) -> _Point | None:
    """The bound at one price; None if nothing was found in time."""
    charged = replace(problem, unary=problem.unary + price * usage)
    bounding = Bounding.of(charged, deadline)
    if bounding.levels:
        bounding.tighten(inf, deadline, levels=1)
    if bounding.choice is None:
        return None
    at = problem.offset[:-1] + bounding.choice
    used, cost = int(usage[at].sum()), problem.cost_of(bounding.choice)
    bound = (bounding.value - price * memory) * (1 - budgets.SUM_ROUNDING)
    return _Point(price, bound, float(cost), used, bounding.choice)


def _in_floats(problem: Problem) -> Problem:
    """The same with costs to which fractions can be added; layers share tables as before."""
    shared = {id(factor.table): factor.table for factor in problem.factors}
    floats = {key: problem.floats(table) for key, table in shared.items()}
    factors = tuple(replace(each, table=floats[id(each.table)]) for each in problem.factors)
    unary, tables = problem.floats(problem.unary), problem.floats(problem.tables)
    return replace(problem, unary=unary, tables=tables, factors=factors)


def _usage(model: MovementModel) -> Ints:
    """What each choice makes a device hold at the fullest step, packed like unary costs."""
    usage = [np.zeros(len(own), dtype=np.int64) for own in model.tables.unary]
    _add_free_inputs(model, usage)
    lives = Lifetimes.of(model.graph, model.rules, at_least=True)
    vertices = (model.graph[name] for name in lives.held)
    sizes = {each.name: each.elements * each.dtype.itemsize for each in vertices}
    for name in lives.held_at(lives.fullest_step(sizes)):
        maker = model.maker(name)
        if maker in model.sites:
            site = model.sites[maker]
            held = _fullest(model, site.choices.homes, site.vertex.dtype.itemsize)
            if maker in model.home:
                usage[model.home[maker]] += held
            else:
                usage[model.assign[maker]] += np.repeat(held[site.home_of], 1 << len(site.shared))
    return np.concatenate([np.zeros(0, dtype=np.int64), *usage])


def _fullest(model: MovementModel, cuts: Any, item: int) -> Ints:
    """The bytes of each cut on a device that has the largest piece."""
    return model.price.held(cuts, item) // model.price.mesh.devices


def _add_free_inputs(model: MovementModel, usage: list[Ints]) -> None:
    """Free inputs are held throughout, as some reader needs them."""
    readers: dict[str, list[tuple[str, Any]]] = {}
    for name, site in model.sites.items():
        for source, reads in zip(site.vertex.inputs, site.choices.reads, strict=True):
            vertex = model.graph[source]
            if reads is None or not isinstance(vertex.op, Input):
                continue
            if not model.rules.has_home(vertex):
                readers.setdefault(source, []).append((name, reads))
    for source, reading in readers.items():
        item = model.graph[source].dtype.itemsize
        for name, reads in reading:
            flags = 1 << len(model.sites[name].shared)
            # The largest piece that anyone needs is at least the mean.
            sizes = _fullest(model, reads.cuts, item) // len(reading)
            own = usage[model.assign[name]]
            own += np.repeat(sizes[reads.of], flags)
