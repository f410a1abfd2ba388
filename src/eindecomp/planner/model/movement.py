"""The model of real movement: a choice problem whose cost is what an engine counts.

Its variables, in the order of the graph, are each vertex's assignment; its home, where reducing
leaves a choice; and the second layout of a tensor that is read more than once. An input that has a
home is a vertex that computes nothing; a tied input shares the home of the result it is tied to.
Which of the two layouts a reader fetches from is a table over three variables, the narrowest form
for elimination. Methods that work on pairs take another form, in which an assignment also says
which layouts it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf, prod
from typing import Any

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import partial_bytes
from eindecomp.layout.cut import Cut
from eindecomp.layout.view import View
from eindecomp.planner import budgets
from eindecomp.planner.costs.named_rows import rows_read
from eindecomp.planner.costs.price import Price, beyond, hidden
from eindecomp.planner.model.tables import (
    Agreed,
    CostTables,
    Holder,
    InputRead,
    agreements,
    choices_of_all,
    second_layouts,
)
from eindecomp.planner.space.choices import Choices, Decision, Layouts, Reads
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.solve import Problem
from eindecomp.solve.problem.arrays import Ints, infinite_where


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A vertex or an input with a home: what it can choose."""

    vertex: Vertex
    choices: Choices
    shared: tuple[int, ...]
    """The inputs for which its choices say which of the two layouts is read."""

    @property
    def home_of(self) -> Ints:
        """The home of each assignment, where there is one."""
        return np.argmax(self.choices.reduced >= 0, axis=1)


@dataclass(slots=True)
class MovementModel:
    """The problem over a graph, and what its variables mean."""

    graph: Graph
    price: Price
    rules: LayoutRules
    sites: dict[str, Site]
    second_layouts: dict[str, tuple[Cut, ...]]
    """The second layouts that a tensor may be kept in, if it is read more than once."""
    pairs: bool = False
    """Whether only tables over pairs of variables are made."""
    apart: bool = False
    """Whether every home has a variable of its own, as counting memory needs it."""
    needs: bool = False
    """Whether what a vertex reads of a tensor with a second layout is a variable of its own."""
    alike: Mapping[str, str] = field(default_factory=dict[str, str])
    """For vertices that choose alike, in whose name they do."""
    tables: CostTables = field(default_factory=CostTables)
    assign: dict[str, int] = field(default_factory=dict[str, int])
    home: dict[str, int] = field(default_factory=dict[str, int])
    second: dict[str, int] = field(default_factory=dict[str, int])
    _variables: dict[tuple[str, str], int] = field(default_factory=dict[Any, int])
    _made: dict[Hashable, Any] = field(default_factory=dict[Any, Any])

    @staticmethod
    def of(
        graph: Graph,
        price: Price,
        choices_of: Callable[[Vertex, View], Choices | None],
        rules: LayoutRules,
        *,
        pairs: bool = False,
        apart: bool = False,
        needs: bool = False,
        alike: Mapping[str, str] | None = None,
        deadline: float = inf,
    ) -> MovementModel:
        """Build the problem over the choices of each vertex, and of each input that has a home.

        With `alike`, all vertices that have one name there share one choice.
        """
        alike = {} if alike is None else alike
        own = choices_of_all(graph, rules, choices_of, alike, deadline)
        second = second_layouts(graph, rules, own, alike)
        sites: dict[str, Site] = {}
        for name, choices in own.items():
            reads = enumerate(zip(graph[name].inputs, choices.reads, strict=True))
            flagged = (k for k, (source, read) in reads if source in second and read is not None)
            sites[name] = Site(graph[name], choices, tuple(flagged) if pairs else ())
        model = MovementModel(
            graph, price, rules, sites, second, pairs, apart, needs, alike, CostTables(deadline)
        )  # fmt: skip
        model._add_sites()
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

    def chosen(self, choice: Ints) -> dict[str, tuple[int, int]]:
        """The numbers of the assignment and the home of every vertex under a choice."""
        numbers: dict[str, tuple[int, int]] = {}
        for name, site in self.sites.items():
            a = int(choice[self.assign[name]]) >> len(site.shared)
            home = int(choice[self.home[name]]) if name in self.home else int(site.home_of[a])
            numbers[name] = a, home
        return numbers

    def decisions(self, choice: Ints) -> dict[str, Decision]:
        """What a choice of the problem means for each vertex, and each input of its own home."""
        decided: dict[str, Decision] = {}
        for name, (a, home) in self.chosen(choice).items():
            own = self.sites[name].choices
            second = self._second_cut(name, choice)
            decided[name] = Decision(
                own.assignments[a], own.places[a, home], own.homes[home], second
            )
        return decided

    def given(self, choice: Ints) -> dict[str, Layouts]:
        """The layouts of inputs that have a home under a choice."""
        decided = self.decisions(choice)
        given: dict[str, Layouts] = {}
        for vertex in self.graph.inputs:
            name = vertex.name
            if name in decided:
                given[name] = decided[name].layouts
            elif (maker := self.rules.tie.get(name)) in decided:
                given[name] = Layouts(decided[maker].home, self._second_cut(name, choice))
        return given

    def _second_cut(self, name: str, choice: Ints) -> Cut | None:
        number = int(choice[self.second[name]]) if name in self.second else 0
        return self.second_layouts[name][number - 1] if number else None

    def _add_sites(self) -> None:
        """Add all variables and tables, a tied input with the result it is tied to."""
        tied: dict[str, list[str]] = {}
        for name, maker in self.rules.tie.items():
            tied.setdefault(maker, []).append(name)
        waiting: dict[str, list[tuple[Site, int]]] = {name: [] for name in self.rules.tie}
        for site in self.sites.values():
            self._add(site)
            self._add_second_layout(site.vertex.name)
            for k, source in enumerate(site.vertex.inputs):
                if source in waiting:
                    waiting[source].append((site, k))
                else:
                    self._add_read(site, k)
            for name in tied.get(site.vertex.name, ()):
                self._add_second_layout(name)
                for reader, k in waiting.pop(name):
                    self._add_read(reader, k)
        own = {name: site.choices for name, site in self.sites.items()}
        for pair in agreements(self.graph, self.rules, own):
            self._alike(pair)

    def _add(self, site: Site) -> None:
        name, own = site.vertex.name, site.choices
        item = site.vertex.dtype.itemsize
        flags = 1 << len(site.shared)
        unary: Any = np.zeros(len(own.assignments), dtype=np.int64)
        if not isinstance(site.vertex.op, Input):
            unary = unary + self.price.compute(site.vertex, own, self._items(site))
        hides = self._hides(site)
        asked = (site.vertex.elements, partial_bytes(self.graph, site.vertex), item)
        scatter = self.once(
            (id(own), "scatter", *asked), lambda: self.price.reduce_scatter(own, *asked)
        )
        scatter = beyond(scatter, None if hides is None else hides[:, None])
        merged = own.is_settled and not self.apart
        if merged:
            settled = scatter[np.arange(len(scatter)), site.home_of]
            unary = unary + settled
        load = self._read_load(site)
        held = self._held(own, own.homes, item)
        load = load + held[site.home_of] if merged else load
        unary, load = np.repeat(unary, flags), np.repeat(load, flags)
        self.assign[name] = self._variable("assign", name, unary, load)
        if not merged:
            zeros = np.zeros(len(own.homes), dtype=np.int64)
            self.home[name] = self._variable("home", name, zeros, held)
            key = (id(own), "scatter", flags, item, scatter.tobytes())
            scope = (self.assign[name], self.home[name])
            self.tables.table(scope, key, lambda: np.repeat(scatter, flags, axis=0))

    def _alike(self, pair: tuple[Agreed, Agreed]) -> None:
        """Let two vertices agree."""
        numbers: dict[Any, int] = {}
        rows: list[Ints] = []
        for name, told in pair:
            each = [numbers.setdefault(own, len(numbers)) for own in told]
            rows.append(np.repeat(np.array(each), 1 << len(self.sites[name].shared)))
        differ = rows[0][:, None] != rows[1][None]
        key = ("alike", rows[0].tobytes(), rows[1].tobytes())
        self.tables.table(
            (self.assign[pair[0][0]], self.assign[pair[1][0]]), key,
            lambda: infinite_where(differ, np.zeros((1, 1), dtype=np.int64)),
        )  # fmt: skip

    def _variable(self, what: str, name: str, unary: Any, load: Ints) -> int:
        """The variable for a vertex, shared by all that choose alike."""
        key = (what, self.alike.get(name, name))
        if key in self._variables:
            self.tables.charge(self._variables[key], unary, load)
        else:
            self._variables[key] = self.tables.variable(unary, load)
        return self._variables[key]

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
        return self.once((id(owner), item), lambda: self.price.held(cuts, item))

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of `make`, made once for all vertices that share the choices in the key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _items(self, site: Site) -> tuple[int, ...]:
        return tuple(self.graph[n].dtype.itemsize for n in site.vertex.inputs)

    def _hides(self, site: Site) -> Any | None:
        """What each assignment hides of each fetch and of the reduction, where anything is."""
        vertex, own = site.vertex, site.choices
        if isinstance(vertex.op, Input):
            return None
        fetches = sum(
            reads is not None and self.maker(name) in self.sites
            for name, reads in zip(vertex.inputs, own.reads, strict=True)
        )
        make = partial(hidden, self.price, vertex, own, self._items(site), fetches)
        return self.once(("hides", vertex.name), make)

    def maker(self, name: str) -> str:
        """The vertex that chooses a tensor's home: itself, or the result that it is tied to."""
        return self.rules.tie.get(name, name)

    def holder(self, name: str) -> Holder:
        """Where a tensor's home is chosen."""
        site = self.sites[self.maker(name)]
        if site.vertex.name in self.home:
            return Holder(self.home[site.vertex.name], site.choices.homes)
        flags = 1 << len(site.shared)
        return Holder(self.assign[site.vertex.name], site.choices.homes, site.home_of, flags)

    def _add_second_layout(self, name: str) -> None:
        """The second layout, moved from the home once; choice 0 means there is none."""
        if name not in self.second_layouts:
            return
        cuts, item = self.second_layouts[name], self.graph[name].dtype.itemsize
        zeros = np.zeros(1 + len(cuts), dtype=np.int64)
        load = np.append(0, self.price.held(cuts, item))
        self.second[name] = self._variable("second", name, zeros, load)
        holder = self.holder(name)

        def table() -> Any:
            rows = holder.spread(self.price.fetch(holder.homes, cuts, item))
            return np.concatenate([np.zeros((len(rows), 1), rows.dtype), rows], axis=1)

        own = self.sites[self.maker(name)].choices
        key = (id(own), holder.flags, "second", cuts, item)
        self.tables.table((holder.variable, self.second[name]), key, table)

    def _add_read(self, site: Site, k: int) -> None:
        """The fetch of an input from its home, or from its second layout."""
        name, reads = site.vertex.inputs[k], site.choices.reads[k]
        if reads is None or self.maker(name) not in self.sites:
            return
        reader, hides = self.assign[site.vertex.name], self._hides(site)
        if self.needs and name in self.second and len(reads.cuts) < len(reads.of):
            if hides is not None:  # for each cut, the most that any assignment hides that reads it
                most = np.zeros(len(reads.cuts))
                np.maximum.at(most, reads.of, hides)
                hides = most
            reader, reads = self._add_need(site, k, reads)
        fetch = InputRead(
            self.price,
            self.graph[name].dtype.itemsize,
            self.holder(name),
            self.second_layouts.get(name, ()),
            reads,
            1 << len(site.shared),
            site.shared.index(k) if k in site.shared else None,
            hides,
            rows_read(self.price, site.choices, k, self.graph[name].dtype.itemsize),
        )
        maker = id(self.sites[self.maker(name)].choices)
        read = (id(site.choices), k, fetch.flags, fetch.bit)
        least = b"" if hides is None else hides.tobytes()
        key = (maker, fetch.holder.flags, *read, fetch.item, least)
        if name in self.second and not self.pairs:
            scope = (fetch.holder.variable, self.second[name], reader)
            if prod(len(self.tables.unary[v]) for v in scope) > budgets.TRIPLE_CELLS:
                raise UnsolvedError(f"too many ways for {site.vertex} to read {self.graph[name]}")
            self.tables.table(scope, (*key, fetch.second_layouts), fetch.cheaper_table)
            return
        home_key = (*key, "home")
        self.tables.table((fetch.holder.variable, reader), home_key, fetch.home_table)
        if fetch.bit is not None:
            second_key = (*key, "second", fetch.second_layouts)
            self.tables.table((self.second[name], reader), second_key, fetch.second_table)

    def _add_need(self, site: Site, k: int, reads: Reads) -> tuple[int, Reads]:
        """A variable for what a vertex reads of an input: fewer choices than its assignments."""
        each = np.arange(len(reads.cuts))
        need = self.tables.variable(np.zeros(len(each), dtype=np.int64))

        def table() -> Any:
            return np.where(reads.of[:, None] == each[None], 0.0, inf)

        key = (id(site.choices), k, "need")
        self.tables.table((self.assign[site.vertex.name], need), key, table)
        return need, Reads(reads.cuts, each)
