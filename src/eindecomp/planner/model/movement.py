"""The model of real movement: a choice problem whose cost is what an engine counts.

Its variables, in the order of the graph, are each vertex's assignment; its home, where reducing
leaves a choice; and the second layout of a tensor that is read more than once. Which of the two
layouts a reader fetches from is a table over three variables, the narrowest form for elimination.
Methods that work on pairs take another form, in which an assignment also says which layouts it
reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.state_types import state_bytes
from eindecomp.planner.costs.infinite import infinite_where, is_infinite
from eindecomp.planner.model.input_read import Holder, InputRead
from eindecomp.planner.model.tables import CostTables
from eindecomp.planner.space.cut import boxes_key
from eindecomp.planner.space.decision import Decision
from eindecomp.planner.space.view import is_planned, view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.space.choices import Assignment, Choices, Reads
    from eindecomp.planner.space.cut import Cut
    from eindecomp.planner.space.view import View
    from eindecomp.solve import Problem

    Ints = NDArray[np.int64]


LARGEST = 1 << 23  # the most costs in a table over three variables
SHARED = 1 << 20  # costs above which a relaxed problem divides fetches among readers


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A planned vertex: what it can choose, and its variables."""

    vertex: Vertex
    choices: Choices
    shared: tuple[int, ...]
    """The inputs for which its choices say which of the two layouts is read."""
    second_layouts: tuple[Cut, ...]
    """Second layouts that its result may be kept in; none if it is read at most once."""
    sharers: int = 1
    """The number of readers among which fetches of its result are divided, instead of those."""

    @property
    def home_of(self) -> Ints:
        """The home of each assignment, where there is one."""
        return np.argmax(self.choices.reduced >= 0, axis=1)


@dataclass(slots=True)
class MovementModel:
    """The problem over a graph, and what its variables mean."""

    graph: Graph
    price: Price
    inputs: str
    sites: dict[str, Site]
    pinned: Mapping[str, tuple[Cut, ...]]
    pairs: bool = False
    """Whether only tables over pairs of variables are made."""
    apart: bool = False
    """Whether every home has a variable of its own, as counting memory needs it."""
    tables: CostTables = field(default_factory=CostTables)
    assign: dict[str, int] = field(default_factory=dict[str, int])
    home: dict[str, int] = field(default_factory=dict[str, int])
    second: dict[str, int] = field(default_factory=dict[str, int])
    _loads: dict[Any, Ints] = field(default_factory=dict[Any, Any])

    @staticmethod
    def of(
        graph: Graph,
        price: Price,
        choices_of: Callable[[Vertex, View], Choices | None],
        inputs: str = "free",
        pinned: Mapping[str, tuple[Cut, ...]] | None = None,
        *,
        pairs: bool = False,
        apart: bool = False,
        shared: bool = False,
        deadline: float = inf,
    ) -> MovementModel:
        """Build the problem over the choices of each vertex.

        With `shared`, the problem is relaxed where a table would be too large: instead of keeping a
        second layout, each of n readers pays 1/n of what it fetches from home. No plan pays less.
        Nor does any plan pay less where a vertex's choices are None: then reading for it, and from
        it, is free.
        """
        sites = _sites(graph, choices_of, pairs=pairs)
        if shared:
            sites = _with_shares(graph, sites)
        tables = CostTables(deadline)
        model = MovementModel(graph, price, inputs, sites, pinned or {}, pairs, apart, tables)
        for name in model.pinned:
            if isinstance(graph[name].op, Input):
                unary = np.zeros(len(model.pinned[name]), dtype=np.int64)
                model.home[name] = model.tables.variable(unary)
        for site in model.sites.values():
            model._add(site)
        return model

    def problem(self, limit: int | None = None) -> Problem:
        """What the solver takes."""
        return self.tables.problem(limit)

    @property
    def load(self) -> Ints:
        """What each choice makes devices read and hold, packed like the problem's unary costs."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.tables.load])

    def load_of(self, choice: Ints) -> int:
        """What devices read and hold under a choice."""
        picked: list[int] = choice.tolist()
        return sum(int(own[k]) for own, k in zip(self.tables.load, picked, strict=True))

    def assignments(self, choice: Ints) -> dict[str, Assignment]:
        """The assignment of every vertex under a choice of the problem."""
        return {
            name: site.choices.assignments[self._chosen(site, choice)]
            for name, site in self.sites.items()
        }

    def _chosen(self, site: Site, choice: Ints) -> int:
        return int(choice[self.assign[site.vertex.name]]) >> len(site.shared)

    def decisions(self, choice: Ints) -> dict[str, Decision]:
        """What a choice of the problem means."""
        decided: dict[str, Decision] = {}
        for name, site in self.sites.items():
            a = self._chosen(site, choice)
            home = int(choice[self.home[name]]) if name in self.home else int(site.home_of[a])
            second = int(choice[self.second[name]]) if name in self.second else 0
            decided[name] = Decision(
                site.choices.assignments[a],
                site.choices.places[a, home],
                site.choices.homes[home],
                site.second_layouts[second - 1] if second else None,
            )
        return decided

    def pinned_cuts(self, choice: Ints) -> dict[str, Cut]:
        """The layouts of pinned inputs under a choice."""
        graph = self.graph
        return {
            name: cuts[int(choice[self.home[name]])]
            for name, cuts in self.pinned.items()
            if isinstance(graph[name].op, Input)
        }

    def _add(self, site: Site) -> None:
        name, own = site.vertex.name, site.choices
        item = site.vertex.dtype.itemsize
        flags = 1 << len(site.shared)
        items = tuple(self.graph[n].dtype.itemsize for n in site.vertex.inputs)
        unary = self.price.compute(site.vertex, own, items) + self._given_inputs(site)
        scatter = self._reduce_scatter(site)
        merged = own.is_settled and not self.apart
        if merged:
            settled = scatter[np.arange(len(scatter)), site.home_of]
            # A pin forbids homes, and ∞ plus something must still be ∞.
            unary = infinite_where(is_infinite(settled), unary + settled)
        load = self._read_load(site)
        held = self._held(own, own.homes, item)
        load = load + held[site.home_of] if merged else load
        self.assign[name] = self.tables.variable(np.repeat(unary, flags), np.repeat(load, flags))
        if not merged:
            zeros = np.zeros(len(own.homes), dtype=np.int64)
            self.home[name] = self.tables.variable(zeros, held)
            key = (id(own), "scatter", flags, item, scatter.tobytes())
            self.tables.edge(
                self.assign[name], self.home[name], key, lambda: np.repeat(scatter, flags, axis=0)
            )
        if site.second_layouts:
            self._add_second_layout(site)
        for k in range(len(site.vertex.inputs)):
            self._add_read(site, k)

    def _read_load(self, site: Site) -> Ints:
        """The bytes that devices read for each assignment: the paper's cost of a join.

        Fills are generated where they are read.
        """
        total = np.zeros(len(site.choices.assignments), dtype=np.int64)
        for name, reads in zip(site.vertex.inputs, site.choices.reads, strict=True):
            source = self.graph[name]
            if reads is not None and not isinstance(source.op, Fill):
                total = total + self._held(reads, reads.cuts, source.dtype.itemsize)[reads.of]
        return total

    def _held(self, owner: Choices | Reads, cuts: tuple[Cut, ...], item: int) -> Ints:
        """The bytes of each cut on all devices; equal layers have the same choices."""
        key = (id(owner), item)
        if key not in self._loads:
            self._loads[key] = self.price.held(cuts, item)
        return self._loads[key]

    def _reduce_scatter(self, site: Site) -> Any:
        own = site.choices
        vertex = site.vertex
        table = self.price.reduce_scatter(
            own, vertex.elements, state_bytes(self.graph, vertex), vertex.dtype.itemsize
        )
        if vertex.name in self.pinned:
            mesh = self.price.mesh
            wanted = {boxes_key(mesh, cut) for cut in self.pinned[vertex.name]}
            banned = np.array([boxes_key(mesh, home) not in wanted for home in own.homes])
            table = infinite_where(np.broadcast_to(banned, table.shape), table)
        return table

    def _given_inputs(self, site: Site) -> Any:
        """What reading inputs that are stored once over all devices costs each assignment."""
        total = np.zeros(len(site.choices.assignments), dtype=np.int64)
        for name, reads in zip(site.vertex.inputs, site.choices.reads, strict=True):
            source = self.graph[name]
            if reads is None or name in self.pinned or not isinstance(source.op, Input):
                continue
            if self.inputs == "sharded":
                price = self.price.gather_input(reads.cuts, source.dtype.itemsize)
                total = total + price[reads.of]
        return total

    def holder(self, name: str) -> Holder:
        """Where a tensor's home is chosen."""
        if name not in self.sites:
            return Holder(self.home[name], self.pinned[name])
        site = self.sites[name]
        if name in self.home:
            return Holder(self.home[name], site.choices.homes)
        flags = 1 << len(site.shared)
        return Holder(self.assign[name], site.choices.homes, site.home_of, flags)

    def _add_second_layout(self, site: Site) -> None:
        """The second layout, moved from the home once; choice 0 means there is none."""
        name = site.vertex.name
        item = site.vertex.dtype.itemsize
        zeros = np.zeros(1 + len(site.second_layouts), dtype=np.int64)
        load = np.append(0, self.price.held(site.second_layouts, item))
        self.second[name] = self.tables.variable(zeros, load)
        holder = self.holder(name)

        def table() -> Any:
            rows = holder.spread(self.price.fetch(holder.homes, site.second_layouts, item))
            return np.concatenate([np.zeros((len(rows), 1), rows.dtype), rows], axis=1)

        key = (id(site.choices), holder.flags, "second", site.second_layouts, item)
        self.tables.edge(holder.variable, self.second[name], key, table)

    def _add_read(self, site: Site, k: int) -> None:
        """The fetch of an input from its home, or from its second layout."""
        name, reads = site.vertex.inputs[k], site.choices.reads[k]
        if reads is None or (name not in self.sites and name not in self.pinned):
            return
        fetch = InputRead(
            self.price,
            self.graph[name].dtype.itemsize,
            self.holder(name),
            self.sites[name].second_layouts if name in self.sites else (),
            reads,
            1 << len(site.shared),
            site.shared.index(k) if k in site.shared else None,
            self.sites[name].sharers if name in self.sites else 1,
        )
        maker = id(self.sites[name].choices) if name in self.sites else name
        read = (id(site.choices), k, fetch.flags, fetch.bit)
        key = (maker, fetch.holder.flags, *read, fetch.item, fetch.sharers)
        reader = self.assign[site.vertex.name]
        if name in self.second and not self.pairs:
            scope = (fetch.holder.variable, self.second[name], reader)
            if prod(len(self.tables.unary[v]) for v in scope) > LARGEST:
                raise UnsolvedError(f"too many ways for {site.vertex} to read {self.graph[name]}")
            self.tables.factor(scope, (*key, fetch.second_layouts), fetch.cheaper_table)
            return
        self.tables.edge(fetch.holder.variable, reader, (*key, "home"), fetch.home_table)
        if fetch.bit is not None:
            second_key = (*key, "second", fetch.second_layouts)
            self.tables.edge(self.second[name], reader, second_key, fetch.second_table)


def _sites(
    graph: Graph, choices_of: Callable[[Vertex, View], Choices | None], *, pairs: bool
) -> dict[str, Site]:
    planned: list[Vertex] = []
    own: dict[str, Choices] = {}
    readers: dict[str, list[tuple[str, int]]] = {}
    for vertex in graph.vertices.values():
        if not is_planned(vertex):
            continue
        view = view_of(graph, vertex)
        choices = choices_of(vertex, view)
        if choices is None:
            continue
        planned.append(vertex)
        own[vertex.name] = choices
        for k, name in enumerate(vertex.inputs):
            if view.reads[k] is not None:
                readers.setdefault(name, []).append((vertex.name, k))
    layouts: dict[str, tuple[Cut, ...]] = {}
    for vertex in planned:
        reading = readers.get(vertex.name, [])
        if len(reading) > 1:
            cuts = [own[name].reads[k] for name, k in reading]
            layouts[vertex.name] = tuple(dict.fromkeys(c for r in cuts if r for c in r.cuts))
    return {
        v.name: Site(
            v,
            own[v.name],
            tuple(
                k
                for k, name in enumerate(v.inputs)
                if pairs and name in layouts and own[v.name].reads[k] is not None
            ),
            layouts.get(v.name, ()),
        )
        for v in planned
    }


def _with_shares(graph: Graph, sites: dict[str, Site]) -> dict[str, Site]:
    """The sites, with fetches divided among readers where second layouts make too large tables.

    The same where some reader is left out: the second layout may be one that it wants.
    """
    left_out = [v for v in graph.vertices.values() if is_planned(v) and v.name not in sites]
    unseen = {name for vertex in left_out for name in vertex.inputs}
    most: dict[str, list[int]] = {}
    for site in sites.values():
        for name, reads in zip(site.vertex.inputs, site.choices.reads, strict=True):
            if name in sites and reads is not None:
                most.setdefault(name, []).append(len(site.choices.assignments))
    shared: dict[str, Site] = {}
    for name, site in sites.items():
        held = len(site.choices.assignments if site.choices.is_settled else site.choices.homes)
        cells = held * (1 + len(site.second_layouts)) * max(most.get(name, [0]))
        shares = name in most and (name in unseen or (site.second_layouts and cells > SHARED))
        shared[name] = replace(site, second_layouts=(), sharers=len(most[name])) if shares else site
    return shared
