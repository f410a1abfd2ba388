"""Alternatives: the next-best cut of a vertex, with everything else fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.work import state_bytes
from eindecomp.layout.cut import bits_of
from eindecomp.layout.view import view_of
from eindecomp.planner.costs.cost import aggregate_cost, decided_cost, join_cost, repartition_table
from eindecomp.planner.costs.price import beyond, hidden, may_repeat, price_of
from eindecomp.planner.space.choices import (
    Choices,
    Decision,
    Settled,
    choices,
    decided_choices,
    refined,
    summed_axes,
)
from eindecomp.planner.space.pin import agrees, pinned_cuts
from eindecomp.planner.space.strategy import strategy_of
from eindecomp.planner.space.viable import WorkLimit, some_parts
from eindecomp.show.rows import Row, row_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from numpy.typing import NDArray

    from eindecomp.layout.cut import Cut
    from eindecomp.layout.view import View
    from eindecomp.planner.costs.cost import Cost, Number
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.plan import Plan

    Ints = NDArray[np.int64]

_SHOWN = 5  # vertices whose alternatives are shown
ALL_AXES = 1024  # the most assignments considered together; beyond, two axes are reassigned
MOST_VECTORS = 1 << 14  # the most partitions of one vertex that are considered


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another partition of a vertex, and how much more each part of the plan's cost would be."""

    vertex: str
    parts: dict[str, int]
    join: Number
    aggregate: Number
    repartition: Number
    compute: Number
    handover: Number
    """How much more the vertices that read its result would pay."""

    @property
    def more(self) -> Number:
        """How much more the plan would cost; negative if it would cost less."""
        return self.join + self.aggregate + self.repartition + self.compute + self.handover


def plan_price(plan: Plan) -> Price:
    """The prices of a plan whose objective is not "bound"."""
    return price_of(plan.objective, plan.mesh, plan.machine)


def alternatives(plan: Plan, rows: list[Row]) -> list[tuple[str, Alternative | None]]:
    """For each of the vertices that cost most, its next-best partition, if it has another."""
    computed = [row for row in rows if row.vertex in plan.parts]
    ranked = sorted(computed, key=lambda row: (-row.cost * row.times, -_size(plan, row.vertex)))
    different: dict[Hashable, str] = {}
    for row in ranked:
        different.setdefault(row_key(plan, row), row.vertex)
    return [(name, next_best(plan, name)) for name in list(different.values())[:_SHOWN]]


def _size(plan: Plan, name: str) -> int:
    """The elements that a vertex reads and makes."""
    vertex = plan.graph[name]
    return vertex.elements + sum(plan.graph[source].elements for source in vertex.inputs)


def next_best(plan: Plan, name: str) -> Alternative | None:
    """The best other partition of a vertex; None if there is none.

    On a mesh with many axes, the best one that reassigns at most two of them.
    """
    if plan.objective == "bound":
        return _of_pieces(plan, name)
    best: tuple[Number, Decision, tuple[int, ...]] | None = None
    for own in _candidates(plan, name):
        candidate = _best_of(plan, name, own)
        if candidate is not None and (best is None or candidate[0] < best[0]):
            best = candidate
    return None if best is None else _compared(plan, name, best[1], best[2])


def _readers(plan: Plan, name: str) -> list[tuple[str, int]]:
    """Who reads a vertex's result, and as which input."""
    return [(reader, k) for maker, reader, k in plan.costs.edges if maker == name]


def _allowed(plan: Plan, name: str, view: View, rows: Ints) -> Ints:
    """Which partitions differ from the plan's and are within its strategy and limit on work."""
    current = np.array(list(plan.parts[name].values()), dtype=np.int64)
    mask = (rows != current).any(axis=1)
    if plan.strategy is not None and len(rows):
        strategy = strategy_of(plan.strategy, plan.graph, plan.devices)
        mask &= strategy(plan.graph[name], view, rows, plan.mesh)
    if plan.orders is not None and len(rows):
        mask &= WorkLimit(plan.orders.most)(plan.graph[name], view, rows, plan.mesh)
    return mask


# The paper's objective


def _of_pieces(plan: Plan, name: str) -> Alternative | None:
    graph, vertex = plan.graph, plan.graph[name]
    view = view_of(graph, vertex)
    rows = some_parts(view.sizes, plan.mesh.sizes, MOST_VECTORS, even=plan.mesh.cuts_evenly)
    current = np.array([list(plan.parts[name].values())], dtype=np.int64).reshape(1, -1)
    rows = np.concatenate([current, rows[_allowed(plan, name, view, rows)]])
    if len(rows) < 2:
        return None
    fetched = np.zeros(len(rows), dtype=np.int64)
    for k, (source, dims) in enumerate(zip(vertex.inputs, view.reads, strict=True)):
        if dims is not None and (source, name, k) in plan.costs.edges:
            made = (view_of(graph, graph[source]), _row(plan, source))
            fetched += repartition_table(made, (view, dims, rows))[0]
    handed = np.zeros(len(rows), dtype=np.int64)
    for reader, k in _readers(plan, name):
        read = view_of(graph, graph[reader])
        dims = read.reads[k]
        assert dims is not None  # noqa: S101 - it costs something, so it is read
        handed += repartition_table((view, rows), (read, dims, _row(plan, reader)))[:, 0]
    join = join_cost(graph, vertex, view, rows)
    aggregate = aggregate_cost(view, rows)
    best = 1 + int((join + aggregate + fetched + handed)[1:].argmin())
    return Alternative(
        name,
        dict(zip(view.labels, rows[best].tolist(), strict=True)),
        join=int(join[best] - join[0]),
        aggregate=int(aggregate[best] - aggregate[0]),
        repartition=int(fetched[best] - fetched[0]),
        compute=0,
        handover=int(handed[best] - handed[0]),
    )


def _row(plan: Plan, name: str) -> Ints:
    return np.array([list(plan.parts[name].values())], dtype=np.int64).reshape(1, -1)


# Real movement


def _candidates(plan: Plan, name: str) -> Iterator[Choices]:
    """The choices of a vertex, in portions of limited size."""
    mesh, decision = plan.mesh, plan.decisions[name]
    view = view_of(plan.graph, plan.graph[name])
    axes = range(len(mesh.sizes))
    redundant = may_repeat(plan.objective)
    moved = len(axes) if (len(view.labels) + 1) ** len(axes) <= ALL_AXES else min(2, len(axes))
    for free in combinations(axes, moved):
        rows = refined(view.sizes, mesh, decision.assignment, free, redundant)
        summed = summed_axes(view, decision.assignment)
        settled = Settled(decision.places, summed & ~bits_of(free))
        if rows:
            yield choices(view, mesh, rows, settled)


def _best_of(
    plan: Plan, name: str, own: Choices
) -> tuple[Number, Decision, tuple[int, ...]] | None:
    """The cheapest of some choices, by what the vertex and its readers would pay."""
    mask = _allowed(plan, name, own.view, own.parts)
    if not mask.any():
        return None
    price, vertex = plan_price(plan), plan.graph[name]
    items = tuple(plan.graph[n].dtype.itemsize for n in vertex.inputs)
    hides = _hides(plan, name, own, price)
    unary = price.compute(vertex, own, items) + _fetched(plan, name, own, price, hides)
    item = vertex.dtype.itemsize
    scatter = price.reduce_scatter(own, vertex.elements, state_bytes(plan.graph, vertex), item)
    scatter = beyond(scatter, None if hides is None else hides[:, None])
    handed, second = _handed(plan, name, own, price)
    total = np.where(own.reduced < 0, np.inf, unary[:, None] + scatter + handed[None])
    total[~mask] = np.inf
    total[:, _banned(plan, name, own)] = np.inf
    a, home = divmod(int(total.argmin()), total.shape[1])
    if not np.isfinite(total[a, home]):
        return None
    decision = Decision(own.assignments[a], own.places[a, home], own.homes[home], second[home])
    return float(total[a, home]), decision, tuple(own.parts[a].tolist())


def _banned(plan: Plan, name: str, own: Choices) -> list[int]:
    """The homes that a pin of the vertex rules out; a tied result must stay where it is."""
    if name in plan.tie.values():
        pinned: tuple[Cut, ...] = (plan.decisions[name].home,)
    elif name in plan.pin:
        pinned = pinned_cuts(plan.graph, plan.mesh, {name: plan.pin[name]})[name]
    else:
        return []
    return [h for h, home in enumerate(own.homes) if not agrees(plan.mesh, home, pinned)]


def _hides(plan: Plan, name: str, own: Choices, price: Price) -> Any | None:
    """What each assignment hides of each fetch and of the reduction."""
    vertex = plan.graph[name]
    items = tuple(plan.graph[n].dtype.itemsize for n in vertex.inputs)
    fetches = sum(
        reads is not None and bool(held_cuts(plan, source))
        for source, reads in zip(vertex.inputs, own.reads, strict=True)
    )
    return hidden(price, vertex, own, items, fetches)


def _fetched(plan: Plan, name: str, own: Choices, price: Price, hides: Any | None) -> Any:
    """What each assignment pays for its inputs."""
    total = np.zeros(len(own.assignments), dtype=np.int64)
    for source, reads in zip(plan.graph[name].inputs, own.reads, strict=True):
        if reads is None:
            continue
        if held := held_cuts(plan, source):
            item = plan.graph[source].dtype.itemsize
            fetched = price.fetch(held, reads.cuts, item).min(axis=0)[reads.of]
            total = total + beyond(fetched, hides)
    return total


def held_cuts(plan: Plan, source: str) -> tuple[Cut, ...]:
    """The layouts that a tensor can be fetched from."""
    if source in plan.decisions:
        return plan.decisions[source].layouts.cuts
    return plan.given[source].cuts if source in plan.given else ()


def _handed(plan: Plan, name: str, own: Choices, price: Price) -> tuple[Any, list[Cut | None]]:
    """What its readers pay for each home, and the second layout with which they pay the least."""
    item = plan.graph[name].dtype.itemsize
    needs: list[Cut] = []
    hides: Any | None = []
    for reader, k in _readers(plan, name):
        view = view_of(plan.graph, plan.graph[reader])
        decided = decided_choices(view, plan.mesh, plan.decisions[reader])
        reads, own_hides = decided.reads[k], _hides(plan, reader, decided, price)
        assert reads is not None  # noqa: S101 - it costs something, so it is read
        needs.append(reads.cuts[0])
        hides = None if own_hides is None or hides is None else [*hides, own_hides[0]]
    second: list[Cut | None] = [None] * len(own.homes)
    if not needs:
        return np.zeros(len(own.homes), dtype=np.int64), second
    from_home = beyond(price.fetch(own.homes, needs, item), hides)
    least = from_home.sum(axis=1)
    for cut in dict.fromkeys(needs) if len(needs) > 1 else ():
        move = price.fetch(own.homes, [cut], item)[:, 0]
        again = beyond(price.fetch([cut], needs, item), hides)
        cost = move + np.minimum(from_home, again).sum(axis=1)
        for home in np.flatnonzero(cost < least).tolist():
            second[home] = cut
        least = np.minimum(least, cost)
    return least, second


def _compared(plan: Plan, name: str, other: Decision, parts: tuple[int, ...]) -> Alternative:
    """How each part of the cost changes if the vertex takes the other decision."""
    readers = [reader for reader, _ in _readers(plan, name)]
    near = dict.fromkeys([*plan.graph[name].inputs, name, *readers])
    for reader in readers:
        near |= dict.fromkeys(plan.graph[reader].inputs)
    before = {n: plan.decisions[n] for n in near if n in plan.decisions}
    costs: list[Cost] = []
    for decisions in (before, before | {name: other}):
        price = plan_price(plan)
        costs.append(decided_cost(plan.graph, price, decisions, plan.given))
    old, new = costs
    labels = plan.parts[name]
    alternative = Alternative(
        name,
        dict(zip(labels, parts, strict=True)),
        new.join[name] - old.join[name],
        new.aggregate[name] - old.aggregate[name],
        new.repartition[name] - old.repartition[name],
        new.compute[name] - old.compute[name],
        0,
    )
    return replace(alternative, handover=new.total - old.total - alternative.more)
