"""What a plan moves, in words, and the alternatives: the next-best cut of each vertex.

A movement has a layout from which and one to which a tensor goes, and its cost. An alternative cuts
one vertex in another way, everything else fixed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import partial_bytes
from eindecomp.layout.cut import Cut, bits_of
from eindecomp.layout.view import Dims, View, view_of
from eindecomp.planner.costs.cost import Number, aggregate_cost, join_cost
from eindecomp.planner.costs.named_rows import fetched as fetched_as
from eindecomp.planner.costs.price import Price, beyond, hidden, may_repeat, price_of
from eindecomp.planner.minimize_bound import BoundModel
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.choices import (
    Choices,
    choices,
    decided_choices,
    refined,
    summed_axes,
)
from eindecomp.planner.space.homes import Settled
from eindecomp.planner.space.pin import agrees, pinned_cuts
from eindecomp.planner.space.strategy import strategy_of
from eindecomp.planner.space.viable import WorkLimit, some_parts
from eindecomp.show.halos import halo_words
from eindecomp.show.rows import Row, row_key
from eindecomp.show.words import cuts, layout, short
from eindecomp.solve.problem.arrays import is_infinite

Ints = NDArray[np.int64]
Portion = tuple[Ints, Any, dict[str, Any]]
"""Partitions of a vertex, which of them × homes are allowed, and what those cost by part."""


def input_layouts(plan: Plan, rows: list[Row]) -> dict[str, str]:
    """Where inputs lie: at home, or in the layouts in which the shown vertices read them."""
    layouts: dict[str, dict[str, None]] = {}
    for row in rows:
        for k, source in enumerate(plan.graph[row.vertex].inputs):
            need = read_cut(plan, plan.graph[row.vertex], k)
            if not isinstance(plan.graph[source].op, Input) or not need:
                continue
            held = plan.given[source].cuts if source in plan.given else (need,)
            tied = f", as {plan.tie[source]} was left" if source in plan.tie else ""
            words = "; also ".join(_lies(plan, source, cut) for cut in held) + tied
            layouts.setdefault(source, {})[words] = None
    return {source: "; ".join(words) for source, words in layouts.items()}


@dataclass(frozen=True, slots=True)
class Movement:
    """One movement: its cost, its description, and how many vertices have one like it."""

    cost: Number
    what: str
    times: int


def moves_of(plan: Plan, rows: list[Row]) -> Iterator[Movement]:
    """Every movement of the vertices that are shown."""
    edges: dict[str, list[tuple[str, int, Number]]] = {}
    for (maker, reader, k), cost in plan.costs.edges.items():
        edges.setdefault(reader, []).append((maker, k, cost))
    for row in rows:
        fetched = 0
        for maker, k, cost in edges.get(row.vertex, ()):
            fetched += cost
            if cost:
                yield Movement(cost, _fetch_words(plan, row.vertex, maker, k), row.times)
        if row.aggregate:
            view = view_of(plan.graph, plan.graph[row.vertex])
            summed = {view.labels[i]: row.parts[view.labels[i]] for i in view.aggregated}
            ways = "; ".join(filter(None, [cuts(summed) if summed else "", row.waits]))
            end = "" if plan.objective == "bound" else f"; result layout: {row.home}"
            narrow = plan.graph[row.vertex].reduce_dtype
            how = "reduced" if narrow is None else f"reduced as {narrow}"
            what = f"{row.vertex}: partial results over {ways} are {how}{end}"
            yield Movement(row.aggregate, what, row.times)
        kept = row.join + row.repartition - fetched
        if row.second is not None and kept > 0:
            yield Movement(kept, f"{row.vertex} to its second layout: {row.second}", row.times)


def move_lines(plan: Plan, rows: list[Row]) -> list[tuple[str, str]]:
    """A line for every movement, the costliest first: what it costs and what it is."""
    moves = sorted(moves_of(plan, rows), key=lambda move: -move.cost * move.times)
    costs = ((move, short(move.cost, plan.objective)) for move in moves)
    return [(f"{cost} ×{m.times}" if m.times > 1 else cost, m.what) for m, cost in costs]


def read_cuts(plan: Plan, name: str) -> Iterator[tuple[str, Cut]]:
    """The vertices that read a tensor, each with the layout in which it does."""
    for reader in plan.decisions:
        for k, source in enumerate(plan.graph[reader].inputs):
            if source == name and (cut := read_cut(plan, plan.graph[reader], k)) is not None:
                yield reader, cut


def read_cut(plan: Plan, reader: Vertex, k: int) -> Cut | None:
    """The layout in which a vertex reads an input; None if it never reads its elements."""
    view = view_of(plan.graph, reader)
    reads = decided_choices(view, plan.mesh, plan.decisions[reader.name]).reads[k]
    return None if reads is None else reads.cuts[0]


def nearest(price: Price, tensor: Vertex, held: tuple[Cut, ...], need: Cut) -> int:
    """Which of a tensor's layouts costs least to fetch it from, as it is needed."""
    if len(held) == 1:
        return 0
    return int(price.fetch(held, [need], tensor.dtype.itemsize)[:, 0].argmin())


def _lies(plan: Plan, name: str, cut: Cut) -> str:
    tensor = plan.graph[name]
    return layout(plan.mesh, tensor.labels, tensor.shape, cut)


def _fetch_words(plan: Plan, reader: str, maker: str, k: int) -> str:
    if plan.objective == "bound":
        return _repartition_words(plan, reader, maker, k)
    need, held = read_cut(plan, plan.graph[reader], k), held_cuts(plan, maker)
    assert need is not None  # noqa: S101 - fetching it costs something, so it is read
    source = "wherever it is"
    at = 0
    if held:
        at = nearest(plan_price(plan), plan.graph[maker], held, need)
        words = _lies(plan, maker, held[at])
        source = f"its second layout, {words}," if at else words
    lies = _lies(plan, maker, need)
    if held and (halo := halo_words(plan.mesh, plan.graph[maker].labels, held[at], need)):
        lies = f"{halo}; {lies}"
    return f"{maker} to {reader}: from {source} to {lies}"


def _repartition_words(plan: Plan, reader: str, maker: str, k: int) -> str:
    """A repartition in the paper's terms, by numbers of pieces alone."""
    tensor = plan.graph[maker]

    def words(name: str, view: View, dims: Dims | None) -> str:
        numbers = list(plan.parts[name].values())
        pieces = {
            label: 1 if (i := view.index(dim)) is None else numbers[i]
            for label, dim in zip(tensor.labels, dims or (), strict=True)
        }
        return cuts(pieces)

    made, read = view_of(plan.graph, tensor), view_of(plan.graph, plan.graph[reader])
    held, need = words(maker, made, made.output), words(reader, read, read.reads[k])
    return f"{maker} to {reader}: from {held} to {need}"


# Alternatives: another cut of one vertex, everything else fixed

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


def alternatives(plan: Plan, rows: list[Row]) -> list[tuple[str, Alternative | None]]:
    """For each of the vertices that cost most, its next-best partition, if it has another."""
    return [(names[0], next_best(plan, names[0])) for names in alike(plan, rows)[:_SHOWN]]


def alike(plan: Plan, rows: list[Row]) -> list[list[str]]:
    """Vertices that differ only in names and axes together, the costliest first."""

    def rank(row: Row) -> tuple[Number, int]:
        vertex = plan.graph[row.vertex]
        tensors = (vertex, *(plan.graph[source] for source in vertex.inputs))
        return -row.cost * row.times, -sum(tensor.elements for tensor in tensors)

    groups: dict[Hashable, list[str]] = {}
    for row in sorted((row for row in rows if row.vertex in plan.parts), key=rank):
        groups.setdefault(row_key(plan, row), []).append(row.vertex)
    return list(groups.values())


def next_best(plan: Plan, name: str) -> Alternative | None:
    """The best other partition of a vertex; None if there is none.

    On a mesh with many axes, the best one that reassigns at most two of them.
    """
    costs = plan.costs
    now = {
        "join": costs.join[name],
        "aggregate": costs.aggregate[name],
        "repartition": costs.repartition[name],
        "compute": costs.compute.get(name, 0),
        "handover": sum(cost for (maker, _, _), cost in costs.edges.items() if maker == name),
    }
    portions = _partitions if plan.objective == "bound" else _assignments
    least, best = inf, None
    for parts, allowed, own in portions(plan, name):
        total = np.where(allowed, sum(own.values()), inf)
        at = np.unravel_index(total.argmin(), total.shape)
        if total[at] < least:
            least = total[at]
            named = dict(zip(plan.parts[name], parts[at[0]].tolist(), strict=True))
            chosen = {part: np.broadcast_to(own[part], total.shape)[at].item() for part in now}
            best = Alternative(name, named, **{part: chosen[part] - now[part] for part in now})
    return best


def _allowed(plan: Plan, name: str, view: View, rows: Ints) -> Any:
    """Which partitions differ from the plan's and are within its strategy and limit on work."""
    mask = (rows != _row(plan, name)).any(axis=1)
    if plan.strategy is not None:
        strategy = strategy_of(plan.strategy, plan.graph, plan.devices)
        mask &= strategy(plan.graph[name], view, rows, plan.mesh)
    if plan.orders is not None:
        mask &= WorkLimit(plan.orders.most)(plan.graph[name], view, rows, plan.mesh)
    return mask[:, None]


def _row(plan: Plan, name: str) -> Ints:
    return np.array([list(plan.parts[name].values())], dtype=np.int64).reshape(1, -1)


# The paper's objective


def _partitions(plan: Plan, name: str) -> Iterator[Portion]:
    """All partitions of a vertex; under this objective a result has no home."""
    graph, vertex = plan.graph, plan.graph[name]
    view = view_of(graph, vertex)
    rows = some_parts(view.sizes, plan.mesh.sizes, MOST_VECTORS, even=plan.mesh.cuts_evenly)
    near = [n for n in (*vertex.inputs, *graph.users()[name]) if n in plan.parts]
    views = {n: view_of(graph, graph[n]) for n in (*near, name)}
    model = BoundModel(graph, views, {n: _row(plan, n) for n in near} | {name: rows})
    fetched = handed = np.zeros(len(rows), dtype=np.int64)
    for maker, reader, k in model.edges:
        if reader == name:
            fetched = fetched + model.handover(maker, reader, k)[0]
        elif maker == name:
            handed = handed + model.handover(maker, reader, k)[:, 0]
    costs = {
        "join": join_cost(graph, vertex, view, rows)[:, None],
        "aggregate": aggregate_cost(view, rows)[:, None],
        "repartition": fetched[:, None],
        "compute": np.zeros((1, 1), dtype=np.int64),
        "handover": handed[:, None],
    }
    if len(rows):
        yield rows, _allowed(plan, name, view, rows), costs


# Real movement


def plan_price(plan: Plan) -> Price:
    """The prices of a plan whose objective is not "bound"."""
    return price_of(plan.objective, plan.mesh, plan.machine)


def _assignments(plan: Plan, name: str) -> Iterator[Portion]:
    """The assignments of mesh axes to the labels of a vertex, in portions of limited size."""
    mesh, decision = plan.mesh, plan.decisions[name]
    view = view_of(plan.graph, plan.graph[name])
    axes = range(len(mesh.sizes))
    pinned: tuple[Cut, ...] | None = None
    if name in plan.tie.values():
        pinned = (decision.home,)  # a tied result must stay where it is
    elif name in plan.pin:
        pinned = pinned_cuts(plan.graph, mesh, {name: plan.pin[name]})[name]
    moved = len(axes) if (len(view.labels) + 1) ** len(axes) <= ALL_AXES else min(2, len(axes))
    for free in combinations(axes, moved):
        rows = refined(view.sizes, mesh, decision.assignment, free, may_repeat(plan.objective))
        summed = summed_axes(view, decision.assignment)
        if not rows:
            continue
        own = choices(view, mesh, rows, Settled(decision.places, summed & ~bits_of(free)))
        allowed = _allowed(plan, name, view, own.parts) & (own.reduced >= 0)
        if pinned is not None:
            allowed &= np.array([agrees(mesh, home, pinned) for home in own.homes])
        yield own.parts, allowed, _costs(plan, name, own)


def _costs(plan: Plan, name: str, own: Choices) -> dict[str, Any]:
    """What a vertex and its readers would pay, by part, for each assignment and each home."""
    price, vertex, items = plan_price(plan), plan.graph[name], _itemsizes(plan, name)
    hides = _hides(plan, name, own, price)
    fetched = {is_given: np.zeros((1, 1), dtype=np.int64) for is_given in (True, False)}
    for k, (source, reads) in enumerate(zip(vertex.inputs, own.reads, strict=True)):
        held = held_cuts(plan, source)
        if reads is not None and held:
            cost = beyond(_fetched(price, own, k, held, items[k]).min(axis=0), hides)
            is_given = source in plan.given
            fetched[is_given] = fetched[is_given] + cost[:, None]
    partial = partial_bytes(plan.graph, vertex)
    scatter = price.reduce_scatter(own, vertex.elements, partial, vertex.dtype.itemsize)
    kept, handed = _handed(plan, name, own.homes, price)
    return {
        "join": fetched[True],
        "aggregate": beyond(scatter, None if hides is None else hides[:, None]),
        "repartition": fetched[False] + kept[None],
        "compute": price.compute(vertex, own, items)[:, None],
        "handover": handed[None],
    }


def _hides(plan: Plan, name: str, own: Choices, price: Price) -> Any | None:
    """How much of each fetch and of the reduction each assignment hides."""
    vertex = plan.graph[name]
    fetches = sum(
        reads is not None and bool(held_cuts(plan, source))
        for source, reads in zip(vertex.inputs, own.reads, strict=True)
    )
    return hidden(price, vertex, own, _itemsizes(plan, name), fetches)


def _itemsizes(plan: Plan, name: str) -> tuple[int, ...]:
    return tuple(plan.graph[source].dtype.itemsize for source in plan.graph[name].inputs)


def held_cuts(plan: Plan, source: str) -> tuple[Cut, ...]:
    """The layouts that a tensor can be fetched from."""
    if source in plan.decisions:
        return plan.decisions[source].layouts.cuts
    return plan.given[source].cuts if source in plan.given else ()


def _fetched(price: Price, own: Choices, k: int, held: Sequence[Cut], item: int) -> Any:
    """What operand k costs from each held cut, ∞ where it cannot be had."""
    costs = fetched_as(price, own, k, held, item)
    infinite = is_infinite(costs)
    return np.where(infinite, inf, costs) if infinite.any() else costs


def _handed(plan: Plan, name: str, homes: tuple[Cut, ...], price: Price) -> tuple[Any, Any]:
    """For each home what its second layout costs, if it is worth having, and what readers pay."""
    item = plan.graph[name].dtype.itemsize
    needs: list[tuple[Choices, int, Cut, Any | None]] = []
    for reader, k in [(reader, k) for maker, reader, k in plan.costs.edges if maker == name]:
        view = view_of(plan.graph, plan.graph[reader])
        decided = decided_choices(view, plan.mesh, plan.decisions[reader])
        reads = decided.reads[k]
        assert reads is not None  # noqa: S101 - it costs something, so it is read
        needs.append((decided, k, reads.cuts[0], _hides(plan, reader, decided, price)))

    def paid(seconds: list[Cut]) -> Any:
        """What readers pay who read the home, or a second layout."""
        total: Any = np.zeros(len(homes), dtype=np.int64)
        for decided, k, _, hides in needs:
            direct = _fetched(price, decided, k, homes, item)[:, 0]
            relayed = [_fetched(price, decided, k, [second], item)[0] for second in seconds]
            total = total + beyond(reduce(np.minimum, [direct, *relayed]), hides)
        return total

    choose: Any = np.where
    handed: Any = paid([])
    kept: Any = np.zeros(len(homes), dtype=np.int64)
    for second in dict.fromkeys(need for _, _, need, _ in needs) if len(needs) > 1 else ():
        move, less = price.fetch(homes, [second], item)[:, 0], paid([second])
        is_worth_it: Any = move + less < kept + handed
        kept, handed = choose(is_worth_it, move, kept), choose(is_worth_it, less, handed)
    return kept, handed
