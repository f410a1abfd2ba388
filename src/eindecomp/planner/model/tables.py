"""The variables and tables that the solver is given, among them what fetching an input costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from eindecomp.errors import UnsolvedError
from eindecomp.graph.graph import Graph
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.cut import Cut, Span, pending_in
from eindecomp.layout.view import View, is_planned
from eindecomp.planner import budgets
from eindecomp.planner.costs.named_rows import RowsRead
from eindecomp.planner.costs.price import Price, beyond
from eindecomp.planner.space.choices import Choices, Reads
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.solve import Problem
from eindecomp.solve.clock import has_passed
from eindecomp.solve.problem.arrays import (
    Costs,
    Ints,
    Mask,
    infinite_where,
    multiplied,
)
from eindecomp.solve.problem.cost_network import problem_over

Scope = tuple[int, ...]


@dataclass(slots=True)
class CostTables:
    """Variables with unary costs, and tables over several, made once where they are equal.

    Raises `UnsolvedError` before tables take more memory or time than there is.
    """

    deadline: float = inf
    cells: int = 0
    """Costs in all tables so far."""
    unary: list[Costs] = field(default_factory=list[Any])
    tables: list[Costs] = field(default_factory=list[Any])
    uses: Counter[tuple[Scope, int]] = field(default_factory=Counter[Any])
    """How often each table is between which variables."""
    load: list[Costs] = field(default_factory=list[Any])
    """What choices make devices read and hold, which decides where costs are equal."""
    usage: list[Costs] = field(default_factory=list[Any])
    intervals: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _known: dict[Hashable, int] = field(default_factory=dict[Hashable, int])

    def variable(self, unary: Costs, load: Costs | None = None) -> int:
        """Add a variable and return its number."""
        self.unary.append(unary)
        self.load.append(np.zeros(len(unary), dtype=np.int64) if load is None else load)
        self.usage.append(np.zeros(len(unary), dtype=np.int64))
        self.intervals.append((0, 0))
        return len(self.unary) - 1

    def charge(self, variable: int, unary: Costs, load: Costs) -> None:
        """Add to what the choices of a variable cost and make devices read and hold."""
        self.unary[variable] = self.unary[variable] + unary
        self.load[variable] = self.load[variable] + load

    def use(self, variable: int, usage: Costs, start: int, stop: int) -> None:
        """Say what a variable's choices use from step `start` up to `stop`, beside what they do."""
        if self.intervals[variable] != (0, 0):
            # Another variable, which always chooses the same.
            size = len(usage)
            twin = self.variable(np.zeros(size, dtype=np.int64))
            other, zero = ~np.eye(size, dtype=bool), np.zeros((1, 1), dtype=np.int64)
            self.table((variable, twin), ("same", size), lambda: infinite_where(other, zero))
            variable = twin
        self.usage[variable] = usage
        self.intervals[variable] = (start, stop)

    def table(self, scope: Scope, key: Hashable, make: Callable[[], Costs]) -> None:
        """Add a table over the choices of several variables, unless it is all zeros."""
        if key not in self._known:
            self.cells += prod(len(self.unary[v]) for v in scope)
            if self.cells > budgets.ALL_CELLS:
                raise UnsolvedError(f"the cost tables have more than {budgets.ALL_CELLS} entries")
            if has_passed(self.deadline):
                raise UnsolvedError("time is up")
            table = make()
            self._known[key] = len(self.tables) if table.any() else -1
            if table.any():
                self.tables.append(table)
        if self._known[key] >= 0:
            self.uses[scope, self._known[key]] += 1

    @property
    def used(self) -> int:
        """Costs in all tables, each as often as it is used."""
        return sum(self.tables[number].size for _, number in self.uses)

    def problem(self, limit: int | None = None) -> Problem:
        """What the solver takes."""
        limited: dict[str, Any] = {}
        if limit is not None:
            limited = {"usage": self.usage, "intervals": self.intervals, "limit": limit}
        made: dict[Hashable, tuple[Scope, Costs]] = {}
        tables: list[tuple[Scope, Costs]] = []
        for (scope, number), times in self.uses.items():
            # Which variables are the same, not which ones they are, decides what becomes of it.
            axes = tuple(scope.index(v) for v in scope)
            key = (number, times, axes)
            if key not in made:
                table, kept = multiplied(self.tables[number], times), tuple(dict.fromkeys(axes))
                if kept != axes:  # of a variable that is named twice, the choices are equal
                    table = np.ascontiguousarray(np.einsum(table, axes, kept))
                made[key] = kept, table
            places, table = made[key]
            tables.append((tuple(scope[k] for k in places), table))
        return problem_over(self.unary, tables, **limited)


class Holder(NamedTuple):
    """The variable that chooses a tensor's home, and the homes it chooses from."""

    variable: int
    homes: tuple[Cut, ...]
    home_of: Ints | None = None
    """The home of each assignment where the variable is that of assignments; else None."""
    flags: int = 1
    """How many choices of the variable stand for one assignment."""

    def chosen(self, choice: Ints) -> Cut:
        """The home under a choice."""
        number = int(choice[self.variable])
        return self.homes[number if self.home_of is None else self.home_of[number // self.flags]]

    def spread(self, table: Any) -> Any:
        """From a row for each home to one for each choice of the variable."""
        if self.home_of is None:
            return table
        return np.repeat(table[self.home_of], self.flags, axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class InputRead:
    """One input of a vertex: where it lies, and which cut of it each choice of the reader needs."""

    price: Price
    item: int
    holder: Holder
    second_layouts: tuple[Cut, ...]
    """The second layouts that the input may be kept in."""
    reads: Reads
    flags: int
    """How many choices of the reader stand for one assignment."""
    bit: int | None
    """The bit of the reader's choice that says to read the second layout, if there is one."""
    hides: Any = None
    """What each assignment of the reader hides of a fetch; None for nothing."""
    rows: RowsRead | None = None
    """What fetching rows costs at worst; None where blocks are fetched whole."""

    @property
    def _from_second(self) -> Mask:
        """Which choices of the reader read the second layout."""
        if self.bit is None:
            return np.zeros(self.flags * len(self.reads.of), dtype=bool)
        return np.tile(np.arange(self.flags) >> self.bit & 1 == 1, len(self.reads.of))

    def home_table(self) -> Any:
        """From the home: the holder's choices × the reader's."""
        price = self.price.fetch(self.holder.homes, self.reads.cuts, self.item)
        table = self.holder.spread(self._read(self.holder.homes, price))
        return np.where(self._from_second[None], 0, table)

    def _read(self, held: tuple[Cut, ...], price: Any) -> Any:
        """From a column for each needed cut to one for each choice of the reader."""
        hides = None if self.hides is None else np.repeat(self.hides, self.flags)[None]
        if self.rows is not None:
            price = np.repeat(self.rows.cheaper(price, held, self.reads), self.flags, axis=1)
            return beyond(price, hides)
        return beyond(price[:, np.repeat(self.reads.of, self.flags)], hides)

    def second_table(self) -> Any:
        """From the second layout, where the reader's choice says so; row 0 means there is none."""
        price = self.price.fetch(self.second_layouts, self.reads.cuts, self.item)
        said = self._from_second[None]
        none = infinite_where(said, np.zeros((1, 1), price.dtype))
        return np.concatenate([none, np.where(said, self._read(self.second_layouts, price), 0)])

    def cheaper_table(self) -> Any:
        """From whichever costs less: the holder's choices × second layouts × the reader's."""
        from_home = self.home_table()
        price = self.price.fetch(self.second_layouts, self.reads.cuts, self.item)
        second = self._read(self.second_layouts, price)
        none = infinite_where(np.ones((1, second.shape[1]), dtype=bool), second[:1])
        return np.minimum(from_home[:, None], np.concatenate([none, second])[None])


def choices_of_all(
    graph: Graph,
    rules: LayoutRules,
    choices_of: Callable[[Vertex, View], Choices | None],
    alike: Mapping[str, str],
    deadline: float = inf,
) -> dict[str, Choices]:
    """What each vertex can choose; those that are left out choose nothing."""
    of_kind: dict[str, Choices | None] = {}
    own: dict[str, Choices] = {}
    for vertex in rules.chosen(graph):
        kind = alike.get(vertex.name, vertex.name)
        if kind not in of_kind:
            if has_passed(deadline):
                raise UnsolvedError("time is up")
            of_kind[kind] = choices_of(vertex, rules.view_of(graph, vertex))
        if (choices := of_kind[kind]) is not None:
            own[vertex.name] = choices
    return own


def second_layouts(
    graph: Graph,
    rules: LayoutRules,
    own: Mapping[str, Choices],
    alike: Mapping[str, str],
) -> dict[str, tuple[Cut, ...]]:
    """For each tensor that has a home and several readers, the layouts that they may want."""
    wanted: dict[str, list[Reads]] = {}
    for name, _, reads in _read(graph, rules, own):
        wanted.setdefault(name, []).append(reads)
    of_kind: dict[str, tuple[Cut, ...]] = {}
    of_readers: dict[tuple[int, ...], tuple[Cut, ...]] = {}  # equal layers share what they read
    layouts: dict[str, tuple[Cut, ...]] = {}
    for name, reading in wanted.items():
        may_be_kept = name not in rules.gathered and name not in rules.within_turns
        if len(reading) > 1 and may_be_kept:
            key = tuple(id(reads) for reads in reading)
            if key not in of_readers:
                every = dict.fromkeys(cut for reads in reading for cut in reads.cuts)
                of_readers[key] = tuple(cut for cut in every if _may_be_kept(cut))
            if of_readers[key]:
                layouts[name] = of_kind.setdefault(alike.get(name, name), of_readers[key])
    return layouts


def _may_be_kept(cut: Any) -> bool:
    """Whether a tensor may be kept in a layout: it is whole there, and no image of others."""
    return pending_in(cut) is None and all(getattr(span, "image", None) is None for span in cut)


def widest_read(
    graph: Graph, rules: LayoutRules, own: Mapping[str, Choices], *, by_needs: bool
) -> float:
    """The costs in the largest table of a read; ∞ where some vertex is left out.

    Whoever is left out may want a second layout that nobody else does.
    """
    if any(is_planned(v) and v.name not in own for v in graph.vertices.values()):
        return inf
    second, widest = second_layouts(graph, rules, own, {}), 0
    for name, choices, reads in _read(graph, rules, own):
        maker = own[rules.tie.get(name, name)]
        held = len(maker.assignments if maker.is_settled else maker.homes)
        ways = len(reads.cuts if by_needs else choices.assignments)
        widest = max(widest, held * (1 + len(second.get(name, ()))) * ways)
    return widest


Agreed = tuple[str, list[Any]]
"""A vertex, and for each of its assignments what another one must have alike."""


def agreements(
    graph: Graph, rules: LayoutRules, own: Mapping[str, Choices]
) -> Iterator[tuple[Agreed, Agreed]]:
    """What is computed in turns cuts the label that they divide alike, and reads alike."""

    def cuts(name: str) -> Agreed:
        at = own[name].view.labels.index(rules.labels_in_turns[name])
        return name, [assignment[at] for assignment in own[name].assignments]

    def reads(name: str, k: int) -> Agreed:
        reads = own[name].reads[k]
        assert reads is not None  # noqa: S101 - operands that are divided are read
        every: Any = reads.cuts  # in axes, or in numbers of pieces
        told = [tuple(s.axes if isinstance(s, Span) else s.levels for s in cut) for cut in every]
        return name, [told[k] for k in reads.of.tolist()]

    for turns in rules.turns:
        for name, reader in turns.edges(graph):
            if name in own and reader in own:
                yield cuts(name), cuts(reader)
        for first, *others in turns.divided(graph).values():
            for other in others:
                if first[0] in own and other[0] in own and first[0] != other[0]:
                    yield reads(*first), reads(*other)


def _read(
    graph: Graph, rules: LayoutRules, own: Mapping[str, Choices]
) -> Iterator[tuple[str, Choices, Reads]]:
    """Every tensor whose home is chosen, once for each reader, with the reader's choices."""
    for reader, choices in own.items():
        for name, reads in zip(graph[reader].inputs, choices.reads, strict=True):
            if reads is not None and rules.tie.get(name, name) in own:
                yield name, choices, reads
