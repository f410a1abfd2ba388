"""A plan as rows of a table and as boxes of a picture, with repeated layers folded into one.

A *row* is one planned vertex, or the first of several equal ones. A *box* is one vertex, or the
vertices at the same place of a block that repeats. A *block* is a run of boxes that repeats as a
whole. A box that does not repeat is a block of its own, and so are inputs of which each repetition
of several blocks reads one. Pictures and reports draw the same boxes.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from eindecomp.graph.graph import Graph
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.write import write_vertex
from eindecomp.layout.cut import pieces_by
from eindecomp.layout.view import is_planned
from eindecomp.planner.costs.cost import Number
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.choices import Wait
from eindecomp.show.words import axes_words, layout

_Member = tuple[tuple[str, ...], int | None]
"""The vertices of a box, and the run of repeated blocks that they belong to."""

_FOLD = 8  # rows that folding must save at least
_TRIES = 16  # periods that are tried at each row


@dataclass(frozen=True, slots=True)
class Row:
    """One planned vertex, or the first of `times` equal ones."""

    vertex: str
    statement: str
    parts: dict[str, int]
    pieces: int
    copies: int
    """How many devices compute the same piece."""
    join: Number
    aggregate: Number
    repartition: Number
    compute: Number
    home: str
    second: str | None
    waits: str = ""
    """The operands that it reads in parts, and over which axes."""
    times: int = 1
    calls: int = 1
    """Kernel calls for each piece: none for an input."""

    @property
    def cost(self) -> Number:
        """What one such vertex costs."""
        return self.join + self.aggregate + self.repartition + self.compute

    @property
    def lies(self) -> str:
        """The layouts of the result, and what is read in parts for it."""
        home = self.home if self.second is None else f"{self.home}; also {self.second}"
        return f"{home}; reads {self.waits}" if self.waits else home


def rows_of(plan: Plan) -> list[Row]:
    """A row for every planned vertex, and for every input that is moved to a second layout."""
    kept = [name for name in plan.costs.join if name in plan.given]
    return [_row(plan, name) for name in (*kept, *plan.parts)]


def _row(plan: Plan, name: str) -> Row:
    vertex, costs, parts = plan.graph[name], plan.costs, parts_of(plan, name)
    is_input = name in plan.given
    lies = plan.given[name] if is_input else plan.decisions[name].layouts
    pieces, waits = prod(parts.values()), () if is_input else plan.decisions[name].waits
    computed = pieces * prod(pieces_by(plan.mesh, wait.axes) for wait in waits)
    home, *second = (layout(plan.mesh, vertex.labels, vertex.shape, cut) for cut in lies.cuts)
    return Row(
        name, write_vertex(vertex, plan.graph.vertices), parts, computed, plan.devices // computed,
        costs.join.get(name, 0), costs.aggregate.get(name, 0), costs.repartition.get(name, 0),
        costs.compute.get(name, 0), home, second[0] if second else None,
        waits_words(plan, vertex, waits), calls=int(not is_input),
    )  # fmt: skip


def waits_words(plan: Plan, vertex: Vertex, waits: Sequence[Wait]) -> str:
    """Which operands a vertex reads in parts, and over which axes."""
    return "; ".join(
        f"{', '.join(dict.fromkeys(vertex.inputs[k] for k in wait.operands))} in parts over "
        f"{axes_words(plan.mesh, wait.axes)}"
        for wait in waits
    )


def parts_of(plan: Plan, name: str) -> dict[str, int]:
    """Into how many pieces each label of a vertex is cut; empty for what lies as it is read."""
    if name in plan.given:
        sides = zip(plan.graph[name].labels, plan.given[name].home, strict=True)
        return {label: pieces_by(plan.mesh, span.axes) for label, span in sides}
    return dict(plan.parts.get(name, {}))


def folded_rows(plan: Plan) -> list[Row]:
    """The rows with repeated blocks folded: those that differ only in names and axes."""
    rows = rows_of(plan)
    return [
        _merged(rows[at : at + length * times : length])
        for start, length, times in fold([row_key(plan, row) for row in rows])
        for at in range(start, start + length)
    ]


def row_key(plan: Plan, row: Row) -> Hashable:
    """Equal for rows that differ only in names and axes."""
    vertex = plan.graph[row.vertex]
    shapes = tuple(plan.graph[name].shape for name in vertex.inputs)
    costs = (row.join, row.aggregate, row.repartition, row.compute)
    return vertex.op, vertex.shape, vertex.dtype, shapes, tuple(row.parts.items()), costs


def _merged(rows: Sequence[Row]) -> Row:
    """One row for equal ones; where layouts differ, it has the first and says so."""
    home, second = rows[0].home, rows[0].second
    if any(row.home != home for row in rows):
        home += " (others: other axes)"
    if any(row.second != second for row in rows):
        second = f"{second or 'nowhere'} (others differ)"
    return replace(rows[0], home=home, second=second, times=len(rows))


def fold(keys: Sequence[Hashable]) -> Iterator[tuple[int, int, int]]:
    """Runs of a repeated block as (start, length of the block, times); all others once.

    >>> list(fold("x" + "abcdefgh" * 3 + "yy"))
    [(0, 1, 1), (1, 8, 3), (25, 1, 1), (26, 1, 1)]
    """
    places: dict[Hashable, list[int]] = {}
    for at, key in enumerate(keys):
        places.setdefault(key, []).append(at)
    ids = [places[key][0] for key in keys]
    at = 0
    while at < len(ids):
        alike = places[keys[at]]
        later = alike[bisect(alike, at) :][:_TRIES]
        runs = [(other - at, _times(ids, at, other - at)) for other in later]
        length, times = max(runs, key=lambda run: run[0] * run[1], default=(1, 1))
        if length * (times - 1) < _FOLD:
            length = times = 1
        yield at, length, times
        at += length * times


def _times(ids: list[int], at: int, length: int) -> int:
    """How often the block of a length at a place stands there, one after another."""
    times = 1
    while ids[at : at + length] == ids[at + times * length : at + (times + 1) * length]:
        times += 1
    return times


# Boxes, and edges with the bytes that move


@dataclass(frozen=True, slots=True)
class Box:
    """What is drawn as one: a vertex, or the `times` vertices at one place of a repeated block."""

    names: tuple[str, ...]
    """The vertices, one for each repetition."""
    block: int
    is_source: bool
    """Whether it is an input or a fill, which nobody computes."""

    @property
    def name(self) -> str:
        """The first of them."""
        return self.names[0]

    @property
    def times(self) -> int:
        """How many vertices it stands for."""
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Edge:
    """What one box reads from another, over all repetitions."""

    source: int
    target: int
    amount: int
    """The bytes that move, of all the edges that it stands for."""
    times: int
    """How many edges it stands for."""
    is_next: bool
    """Whether it leads from one repetition of a block to the next."""
    is_even: bool = True
    """Whether the same amount moves on each of them."""


@dataclass(frozen=True, slots=True)
class Outline:
    """Boxes, each after those it reads, unless from an earlier repetition, and edges."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]


def plan_outline(plan: Plan, *, folded: bool = True) -> Outline:
    """The outline of a plan, with the bytes that move when it runs, whatever its objective.

    >>> import eindecomp as ed
    >>> layer = "H{0}[b,h] <- max X{0}[b,i] * W[i,h]\\nX{1}[b,i] <- max H{0}[b,h] * V[h,i]\\n"
    >>> text = "input X0[b: 8, i: 4], W[i, h: 16], V[h, i]\\n"
    >>> text += "".join(layer.format(n, n + 1) for n in range(6)) + "output X6"
    >>> outline = plan_outline(ed.plan(ed.parse(text), 2))
    >>> [(box.name, box.times) for box in outline.boxes]
    [('X0', 1), ('W', 1), ('V', 1), ('H0', 6), ('X1', 6)]
    """
    keys = {row.vertex: row_key(plan, row) for row in rows_of(plan)} if folded else {}
    return outline(plan.graph, keys, plan.traffic.edges)


def graph_outline(graph: Graph, *, folded: bool = True) -> Outline:
    """The outline of a graph that is not planned: nothing moves, equal operations are equal."""
    keys: dict[str, Hashable] = {
        name: (vertex.op, vertex.shape, vertex.dtype, *(graph[n].shape for n in vertex.inputs))
        for name, vertex in graph.vertices.items()
        if folded and is_planned(vertex)
    }
    return outline(graph, keys, {})


def moved_within(plan: Plan, box: Box) -> dict[str, int]:
    """The bytes that move at the vertices of a box themselves, where any do.

    "reduce" is for partial results, "second layout" for keeping a tensor in one.
    """
    costs = plan.traffic
    moved = {"reduce": 0, "second layout": 0}
    for name in box.names:
        moved["reduce"] += int(costs.aggregate.get(name, 0))
        kept = costs.join.get(name, 0) + costs.repartition.get(name, 0)
        sources = plan.graph[name].inputs
        edges = (costs.edges.get((source, name, k), 0) for k, source in enumerate(sources))
        moved["second layout"] += int(kept - sum(edges))
    return {what: amount for what, amount in moved.items() if amount}


def outline(
    graph: Graph, keys: Mapping[str, Hashable], moved: Mapping[tuple[str, str, int], int | float]
) -> Outline:
    """The outline of a graph whose vertices of equal keys may be folded into one another.

    Edges of equal ends are one. `moved` has the bytes of edges by maker, reader, and which of its
    inputs it is.
    """
    planned = [name for name, vertex in graph.vertices.items() if is_planned(vertex)]
    runs = [  # of repeated blocks: for each run, for each repetition, its vertices
        [planned[at : at + length] for at in range(start, start + length * times, length)]
        for start, length, times in fold([keys.get(name, name) for name in planned])
    ]
    places = {
        name: (run, k, repetition)
        for run, repetitions in enumerate(runs)
        for repetition, names in enumerate(repetitions)
        for k, name in enumerate(names)
    }
    members: list[_Member] = [
        (names, run) for run, repeated in enumerate(runs) for names in zip(*repeated, strict=True)
    ]
    members += _group_sources(graph, places, runs)
    order = {name: at for at, name in enumerate(graph.vertices)}
    members.sort(key=lambda member: order[member[0][0]])
    blocks: dict[Hashable, int] = {}
    boxes = tuple(
        Box(
            tuple(names),
            blocks.setdefault(names if run is None else run, len(blocks)),
            not is_planned(graph[names[0]]),
        )
        for names, run in members
    )
    at = {name: (n, k) for n, box in enumerate(boxes) for k, name in enumerate(box.names)}
    edges: dict[tuple[int, int, bool], list[int]] = {}
    for name, (target, repetition) in at.items():
        for k, source in enumerate(graph[name].inputs):
            start, before = at[source]
            is_next = boxes[start].block == boxes[target].block and before != repetition
            amount = int(moved.get((source, name, k), 0))
            edges.setdefault((start, target, is_next), []).append(amount)
    joined = (
        Edge(start, target, sum(own), len(own), is_next, len(set(own)) == 1)
        for (start, target, is_next), own in edges.items()
    )
    return Outline(boxes, tuple(joined))


def _group_sources(
    graph: Graph, places: Mapping[str, tuple[int, int, int]], runs: list[list[list[str]]]
) -> list[_Member]:
    """Inputs and fills: one of each repetition together, if all of them read them alike.

    Those that one block reads belong to it; those that several read are a block of their own.
    """
    readers: dict[str, list[tuple[int, int, int, int]]] = {
        name: [] for name, vertex in graph.vertices.items() if not is_planned(vertex)
    }
    for name, place in places.items():
        for k, source in enumerate(graph[name].inputs):
            if source in readers:
                readers[source].append((*place, k))
    alike: dict[Hashable, dict[int, str]] = {}
    read_in: dict[Hashable, list[int]] = {}
    members: list[_Member] = []
    for name, own in readers.items():
        read_by = sorted({(run, repetition) for run, _, repetition, _ in own})
        in_runs = [run for run, _ in read_by]
        if read_by and len(set(in_runs)) == len(in_runs):
            key = (frozenset((run, k, n) for run, k, _, n in own), graph[name].shape)
            read_in[key] = in_runs
            if alike.setdefault(key, {}).setdefault(read_by[0][1], name) == name:
                continue
        members.append(((name,), None))
    for key, group in alike.items():
        names = tuple(group[repetition] for repetition in sorted(group))
        match read_in[key]:
            case [run] if len(names) == len(runs[run]) > 1:
                members.append((names, run))
            case [_, _, *_]:
                members.append((names, None))
            case _:
                members += [((name,), None) for name in names]
    return members
