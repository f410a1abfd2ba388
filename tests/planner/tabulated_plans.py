"""The least bytes of all plans, by tabulating every tensor and eliminating vertex after vertex.

Written plainly, with nothing of the planner or its solver in it. A `Space` says what vertices can
choose and what moves between layouts. What a tensor costs is tabulated over the choices of its
maker and its readers, with the best home and the best second layout; then the vertices are
eliminated one by one from the sum of these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from eindecomp.graph.ops import Fill, Input

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp import Graph, Vertex

    Floats = NDArray[np.float64]

Layout = Hashable
"""Where a tensor lies, in whatever terms the space has."""


class Row(NamedTuple):
    """What the rest of a plan sees of a vertex's assignment."""

    made: Any
    """Which part of the result every device computes."""
    needs: tuple[Layout | None, ...]
    """The layout in which each operand is read; None if it is not, or if nobody asks."""


class Space(Protocol):
    """What can be chosen."""

    def rows(self, vertex: Vertex) -> Iterable[Row]:
        """The assignments of a vertex."""
        ...

    def homes(self, vertex: Vertex, made: Any) -> Mapping[Any, float]:
        """Where an assignment can leave its result, and the bytes that reducing it there moves."""
        ...

    def stored(self, vertex: Vertex) -> Sequence[Layout]:
        """The homes that an input can have."""
        ...

    def received(self, vertex: Vertex, held: Sequence[Any], needed: Sequence[Any]) -> Floats:
        """The elements that devices receive, by what they hold and what they need.

        ∞ if nobody holds some of it.
        """
        ...

    def held(self, vertex: Vertex, layouts: Sequence[Any]) -> Floats:
        """The elements on all devices, if each had the largest piece."""
        ...


class Table(NamedTuple):
    """A cost for every choice of some vertices."""

    names: tuple[str, ...]
    costs: Floats


@dataclass
class Oracle:
    """All plans of a graph, and the least that any of them moves.

    A pin gives an input's home, or several to choose from. A tie gives an input the home of a
    result. With a scale, so many times the bytes plus what devices read and hold.
    """

    graph: Graph
    space: Space
    inputs: str = "free"
    pin: Mapping[str, Sequence[Layout]] = field(default_factory=dict[str, Any])
    tie: Mapping[str, str] = field(default_factory=dict[str, str])
    scale: int | None = None

    @cached_property
    def made(self) -> dict[str, Vertex]:
        """The vertices that are computed."""
        every = self.graph.vertices.items()
        return {name: v for name, v in every if not isinstance(v.op, Input | Fill)}

    @cached_property
    def priced(self) -> set[str]:
        """The tensors that have a home."""
        stored = {
            v.name
            for v in self.graph.inputs
            if self.inputs == "sharded" or v.name in self.pin or v.name in self.tie
        }
        return stored | self.made.keys()

    @cached_property
    def rows(self) -> dict[str, dict[Row, float]]:
        """What every vertex can choose, and what devices then read."""
        return {name: self._rows(vertex) for name, vertex in self.made.items()}

    def _rows(self, vertex: Vertex) -> dict[Row, float]:
        found: dict[Row, float] = {}
        for row in self.space.rows(vertex):
            load = 0.0
            if self.scale:
                for name, need in zip(vertex.inputs, row.needs, strict=True):
                    if need is not None:
                        source = self.graph[name]
                        load += self.space.held(source, [need])[0] * source.dtype.itemsize
            asked = zip(vertex.inputs, row.needs, strict=True)
            needs = tuple(need if name in self.priced else None for name, need in asked)
            seen = Row(row.made, needs)
            found[seen] = min(load, found.get(seen, inf))
        return found

    def _readers(self, name: str) -> list[tuple[str, int]]:
        return [
            (reader, k)
            for reader, vertex in self.made.items()
            for k, source in enumerate(vertex.inputs)
            if source == name and next(iter(self.rows[reader])).needs[k] is not None
        ]

    @cached_property
    def scopes(self) -> list[tuple[str, ...]]:
        """For every home the vertices that it costs something: its maker and its readers."""
        return [tuple(self._scope(owner, tensors)) for owner, tensors in self._owners()]

    def _owners(self) -> list[tuple[str, list[str]]]:
        """Every tensor with a home of its own, and all tensors that lie there."""
        return [
            (name, [name, *(w for w, result in self.tie.items() if result == name)])
            for name in self.graph.vertices
            if name in self.priced and name not in self.tie
        ]

    def _scope(self, owner: str, tensors: Sequence[str]) -> list[str]:
        readers = [reader for name in tensors for reader, _ in self._readers(name)]
        return list(dict.fromkeys([owner, *readers] if owner in self.made else readers))

    def _table(self, owner: str, tensors: Sequence[str]) -> Table:
        """The least for each choice of those who make and read some tensors with one home."""
        names = self._scope(owner, tensors)
        vertex = self.graph[owner]
        ways = [self.space.homes(vertex, row.made) for row in self.rows.get(owner, ())]
        homes = list(dict.fromkeys(h for way in ways for h in way))
        homes = homes or self.pin.get(owner) or self.space.stored(vertex)
        best = np.full([len(self.rows[name]) for name in names], inf)
        handed = [self._handing(name, homes, names) for name in tensors]
        for h, home in enumerate(homes):
            total = np.zeros([1] * len(names))
            if ways:
                moved = np.array([way.get(home, inf) for way in ways])
                total = self._spread(moved * (self.scale or 1), [owner], names)
            total = total + sum(of_home(h) for of_home in handed)
            np.minimum(best, total, out=best)
        return Table(tuple(names), best)

    def _handing(
        self, name: str, homes: Sequence[Layout], names: Sequence[str]
    ) -> Callable[[int], Floats]:
        """The least to hand a tensor to its readers, for each home, over the choices of `names`."""
        vertex = self.graph[name]
        readers = self._readers(name)
        needs = [[row.needs[k] for row in self.rows[reader]] for reader, k in readers]
        wanted = tuple(dict.fromkeys(need for own in needs for need in own if need is not None))
        index = [np.array([wanted.index(need) for need in own]) for own in needs]
        item = vertex.dtype.itemsize * (self.scale or 1)
        from_home = self.space.received(vertex, homes, wanted) * item
        again = self.space.received(vertex, wanted, wanted) * item
        # A second layout is all of it, where a reader may ask for less.
        moved: Any = getattr(self.space, "moved", self.space.received)
        to_keep = moved(vertex, homes, wanted) * item
        load = vertex.dtype.itemsize if self.scale else 0
        kept, also = (load * self.space.held(vertex, own) for own in (homes, wanted))

        def of_home(h: int) -> Floats:
            own = from_home[h]
            plain = [
                self._spread(own[at], [reader], names)
                for (reader, _), at in zip(readers, index, strict=True)
            ]
            best = sum(plain, np.zeros([1] * len(names)))
            for (keeper, _), at in zip(readers, index, strict=True):
                # The second layout is the one that this reader needs.
                total = self._spread(to_keep[h][at] + also[at], [keeper], names)
                for (reader, _), to, fetched in zip(readers, index, plain, strict=True):
                    if reader == keeper:
                        second = self._spread(again[at, to], [keeper], names)
                    else:
                        second = self._spread(again[np.ix_(at, to)], [keeper, reader], names)
                    total = total + np.minimum(fetched, second)
                best = np.minimum(best, total)
            return best + kept[h]

        return of_home

    def _spread(self, costs: Floats, over: Sequence[str], names: Sequence[str]) -> Floats:
        """A table over some vertices as one that has an axis for each of `names`."""
        order = sorted(range(len(over)), key=lambda i: names.index(over[i]))
        sizes = iter(np.transpose(costs, order).shape)
        shape = [next(sizes) if name in over else 1 for name in names]
        return np.transpose(costs, order).reshape(shape)

    @cached_property
    def cells(self) -> int:
        """The entries of the largest table that is needed."""
        sizes = {name: len(rows) for name, rows in self.rows.items()}
        largest = max((prod(sizes[name] for name in scope) for scope in self.scopes), default=1)
        for _, names in elimination(self.scopes, sizes):
            largest = max(largest, prod(sizes[name] for name in names))
        return largest

    def least(self) -> int:
        """The least bytes of all plans."""
        tables = [self._table(owner, tensors) for owner, tensors in self._owners()]
        if self.scale:
            tables += [
                Table((name,), np.array(list(rows.values()))) for name, rows in self.rows.items()
            ]
        sizes = {name: len(rows) for name, rows in self.rows.items()}
        for name, names in elimination([table.names for table in tables], sizes):
            joined = np.zeros([sizes[n] for n in names])
            for table in tables:
                if name in table.names:
                    joined = joined + self._spread(table.costs, table.names, names)
            tables = [table for table in tables if name not in table.names]
            rest = tuple(n for n in names if n != name)
            tables.append(Table(rest, joined.min(axis=names.index(name))))
        total = sum(float(table.costs) for table in tables)
        assert total < 2**53, "no plan, or costs that floats cannot hold"
        return int(total)


def elimination(
    scopes: Sequence[Sequence[str]], sizes: Mapping[str, int]
) -> list[tuple[str, list[str]]]:
    """The vertices, those with the smallest tables first, and whom each table is over."""
    left = [frozenset(scope) for scope in scopes]
    order: list[tuple[str, list[str]]] = []
    waiting = list(sizes)
    while waiting:
        around = {
            name: frozenset({name}).union(*(s for s in left if name in s)) for name in waiting
        }
        name = min(waiting, key=lambda n: prod(sizes[m] for m in around[n]))
        order.append((name, sorted(around[name])))
        left = [s for s in left if name not in s] + [around[name] - {name}]
        waiting.remove(name)
    return order
