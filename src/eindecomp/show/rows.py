"""A plan as rows: one for each planned vertex, with repeated layers folded into one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from eindecomp.graph.write import write_vertex
from eindecomp.layout.cut import pieces_by
from eindecomp.show.words import layout

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from eindecomp.planner.costs.cost import Number
    from eindecomp.planner.plan import Plan

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
    times: int = 1
    calls: int = 1
    """Kernel calls for each piece: none for an input."""

    @property
    def cost(self) -> Number:
        """What one such vertex costs."""
        return self.join + self.aggregate + self.repartition + self.compute

    @property
    def lies(self) -> str:
        """The layouts of the result."""
        return self.home if self.second is None else f"{self.home}; also {self.second}"


def rows_of(plan: Plan) -> list[Row]:
    """A row for every planned vertex, and for every input that is moved to a second layout."""
    kept = [name for name in plan.costs.join if name in plan.given]
    return [_row(plan, name) for name in (*kept, *plan.parts)]


def _row(plan: Plan, name: str) -> Row:
    vertex, costs, parts = plan.graph[name], plan.costs, parts_of(plan, name)
    is_input = name in plan.given
    lies = plan.given[name] if is_input else plan.decisions[name].layouts
    pieces = prod(parts.values())
    home, *second = (layout(plan.mesh, vertex.labels, vertex.shape, cut) for cut in lies.cuts)
    return Row(
        name, write_vertex(vertex), parts, pieces, plan.devices // pieces,
        costs.join.get(name, 0), costs.aggregate.get(name, 0), costs.repartition.get(name, 0),
        costs.compute.get(name, 0), home, second[0] if second else None, calls=int(not is_input),
    )  # fmt: skip


def parts_of(plan: Plan, name: str) -> dict[str, int]:
    """Into how many pieces each label of a vertex is cut; empty for what lies as it is read."""
    if name in plan.given:
        sides = zip(plan.graph[name].labels, plan.given[name].home, strict=True)
        return {label: pieces_by(plan.mesh, span.axes) for label, span in sides}
    return dict(plan.parts.get(name, {}))


def folded_rows(plan: Plan) -> list[Row]:
    """The rows with repeated blocks folded: those that differ only in names and axes."""
    rows = rows_of(plan)
    keys = [row_key(plan, row) for row in rows]
    return [
        _merged(rows[at : at + length * times : length])
        for start, length, times in fold(keys)
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
    rank: list[int] = []
    for at, key in enumerate(keys):
        own = places.setdefault(key, [])
        rank.append(len(own))
        own.append(at)
    ids = [places[key][0] for key in keys]
    at = 0
    while at < len(ids):
        later = places[keys[at]][rank[at] + 1 :][:_TRIES]
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
