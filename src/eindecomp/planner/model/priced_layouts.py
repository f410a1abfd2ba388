"""The vertices and tensors of a graph as `layout_prices.py` prices them, and what they use."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.work import partial_bytes
from eindecomp.layout.cut import Cut
from eindecomp.layout.view import is_planned
from eindecomp.planner.costs.named_rows import fetched, rows_read
from eindecomp.planner.costs.price import Price, beyond, hidden
from eindecomp.planner.model.layout_prices import (
    Groups,
    LayoutPrices,
    Link,
    Maker,
    Reader,
    Tensor,
    exact_step,
)
from eindecomp.planner.model.tables import Agreed, agreements, second_layouts
from eindecomp.planner.space.choices import Choices, Reads
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.solve.clock import has_passed
from eindecomp.solve.problem.arrays import Floats, is_infinite


def layout_prices(
    graph: Graph, rules: LayoutRules, price: Price, own: dict[str, Choices], deadline: float
) -> LayoutPrices | None:
    """Those of all that vertices can choose; None if there is no time for that.

    What is left out of the choices costs nothing, nor does reading for it or from it.
    """
    making = _Making(graph, rules, price, own)
    for part, names in ((making.add_maker, own), (making.add_tensor, making.read)):
        for name in names:
            if has_passed(deadline):
                return None
            part(name)
    for pair in agreements(graph, rules, own):
        making.add_agreement(pair)
    step = min(exact_step(making.largest), 1.0) if making.is_whole else 0.0
    return LayoutPrices(own, making.makers, making.tensors, step)


@dataclass(slots=True)
class _Making:
    """What is made of a graph; equal vertices share tables."""

    graph: Graph
    rules: LayoutRules
    price: Price
    own: dict[str, Choices]
    makers: dict[str, Maker] = field(default_factory=dict[str, Maker])
    tensors: list[Tensor] = field(default_factory=list[Tensor])
    largest: float = 1.0
    """Of all costs."""
    is_whole: bool = True
    """Whether all costs are whole numbers."""
    second: dict[str, tuple[Cut, ...]] = field(init=False)
    read: dict[str, list[tuple[str, int, Reads]]] = field(init=False)
    """Every tensor whose home is chosen, with its readers, where all of them choose."""
    _made: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])

    def __post_init__(self) -> None:
        graph, own, self.read = self.graph, self.own, {}
        self.second = second_layouts(graph, self.rules, own, {})
        left_out = [v for v in graph.vertices.values() if is_planned(v) and v.name not in own]
        unseen = {name for vertex in left_out for name in vertex.inputs}
        for reader, choices in own.items():
            reads = enumerate(zip(graph[reader].inputs, choices.reads, strict=True))
            for k, (name, each) in reads:
                if each is not None and self._maker(name) in own and name not in unseen:
                    self.read.setdefault(name, []).append((reader, k, each))

    def _maker(self, name: str) -> str:
        return self.rules.tie.get(name, name)

    def _once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _floats(self, costs: Any) -> Floats:
        found = np.where(is_infinite(costs), np.inf, costs).astype(np.float64)
        self.is_whole &= costs.dtype.kind == "i"
        self.largest = max(self.largest, found.max(where=np.isfinite(found), initial=0.0))
        return found

    def add_maker(self, name: str) -> None:
        """Add a vertex, or an input that has a home."""
        vertex, own = self.graph[name], self.own[name]
        asked = vertex.elements, partial_bytes(self.graph, vertex), vertex.dtype.itemsize
        hides = self._hides(name)

        def pairs() -> tuple[Floats, Groups, Groups]:
            scatter = self.price.reduce_scatter(own, *asked)
            costs = self._floats(beyond(scatter, None if hides is None else hides[:, None]))
            row, home = np.nonzero(np.isfinite(costs))
            rows, homes = Groups.by(row, len(costs)), Groups.by(home, costs.shape[1])
            return costs[row, home], rows, homes

        key = (id(own), *asked, None if hides is None else name)
        made: tuple[Floats, Groups, Groups] = self._once(key, pairs)
        assigned, placed = np.zeros(len(own.assignments)), np.zeros(len(own.homes))
        if not isinstance(vertex.op, Input):
            assigned += self._floats(np.asarray(self.price.compute(vertex, own, self._items(name))))
        self.makers[name] = Maker(*made, assigned, placed)

    def _items(self, name: str) -> tuple[int, ...]:
        return tuple(self.graph[source].dtype.itemsize for source in self.graph[name].inputs)

    def _hides(self, name: str) -> Any | None:
        """What each assignment hides of each fetch and of the reduction, where anything is."""
        vertex, own = self.graph[name], self.own[name]
        if isinstance(vertex.op, Input):
            return None
        reads = zip(vertex.inputs, own.reads, strict=True)
        fetches = sum(each is not None and self._maker(n) in self.own for n, each in reads)
        make = partial(hidden, self.price, vertex, own, self._items(name), fetches)
        return self._once(("hides", name), make)

    def add_tensor(self, name: str) -> None:
        """Add a tensor, linked with who makes and who reads it."""
        item, maker = self.graph[name].dtype.itemsize, self._maker(name)
        homes, second = self.own[maker].homes, self.second.get(name, ())
        move = np.zeros((len(homes), 0))
        if second:
            key = id(homes), id(second), item
            move = self._once(key, lambda: self._floats(self.price.fetch(homes, second, item)))
        tensor = Tensor(move, [], np.zeros(len(homes)))
        self.makers[maker].kept.append(Link(tensor, None, self.makers[maker].homes))
        for reader, k, reads in self.read[name]:
            near: Floats = self._fetch(homes, reader, k, reads, item)
            far: Floats = self._fetch(second, reader, k, reads, item)
            count = int(near.shape[1])
            own = Reader(near, far, np.zeros(count))
            tensor.readers.append(own)
            of = reads.of  # or, where rows are fetched by name, each assignment by itself
            of = of if count == len(reads.cuts) else np.arange(len(of))
            groups = self._once(
                (id(reads), own.prices.size), partial(Groups.by, of, own.prices.size)
            )
            self.makers[reader].needs.append(Link(tensor, own, groups))
        self.tensors.append(tensor)

    def add_agreement(self, pair: tuple[Agreed, Agreed]) -> None:
        """Let two vertices agree, as readers do who need the same: it costs nothing to have it."""
        numbers: dict[Any, int] = {}
        of = [np.array([numbers.setdefault(own, len(numbers)) for own in told]) for _, told in pair]
        count = len(numbers)
        same = np.where(np.eye(count, dtype=bool), 0.0, np.inf)
        tensor = Tensor(np.zeros((count, 0)), [], np.zeros(count))
        for (name, _), each in zip(pair, of, strict=True):
            reader = Reader(same, np.zeros((0, count)), np.zeros(count))
            tensor.readers.append(reader)
            self.makers[name].needs.append(Link(tensor, reader, Groups.by(each, count)))
        self.tensors.append(tensor)

    def _fetch(self, held: tuple[Cut, ...], reader: str, k: int, reads: Reads, item: int) -> Floats:
        """What fetching costs from each layout, for each need, or each assignment of a lookup."""
        own = self.own[reader]
        by_rows = rows_read(self.price, own, k, item) is not None
        hides = self._hides(reader)
        if not held:
            return np.zeros((0, len(reads.of if by_rows else reads.cuts)))

        def fetch() -> Floats:
            if by_rows:
                return self._floats(beyond(fetched(self.price, own, k, held, item), hides))
            most = None
            if hides is not None:  # for each need, the most that any assignment hides
                most = np.zeros(len(reads.cuts))
                np.maximum.at(most, reads.of, hides)
            return self._floats(beyond(self.price.fetch(held, reads.cuts, item), most))

        return self._once((id(held), id(reads), item, hides is not None and reader), fetch)
