"""Plans in which layouts follow one another: axes for given pieces, and better plans near others.

Little moves where what a device needs begins like what it holds: the axes of a dimension are the
outer ones of those that cut it before, or those and more. So each vertex takes over the axes of
what it reads as far as its numbers of pieces allow, then any that are left, in whichever order;
what numbers of pieces cost at the least is then reached more often than not, on any number of
devices. `combine` chooses for every vertex among what it has, what plans and neighbours
suggest, all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import partial_bytes
from eindecomp.layout.cut import Axes, Cut, combined, pending_in
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import View
from eindecomp.planner import budgets
from eindecomp.planner.search.relaxation import Relaxed
from eindecomp.planner.search.search import (
    Outcome,
    Search,
    allowed_vectors,
    in_no_parts,
    part_of_time,
    solve,
    without_parts,
)
from eindecomp.planner.space.choices import (
    Assignment,
    Choices,
    Decision,
    Option,
    decided_choices,
    listed_choices,
    needed_cut,
    unassigned,
)
from eindecomp.planner.space.following import Wanted, axes_for, left_over, places_for, taken_over
from eindecomp.planner.space.homes import Places
from eindecomp.planner.space.pieces import Levels, Pieces, Vector, pieces_of
from eindecomp.planner.space.pin import assignments_of, choices_reaching, pinned_choices
from eindecomp.solve.clock import has_passed, planning_time


def follow(search: Search, relaxed: Relaxed) -> Outcome | None:
    """The plan that the relaxed problem's pieces lead to if layouts follow one another.

    Without pieces, every vertex does what costs it the least.
    """
    if search.loose:
        return None
    levels = relaxed.levels if relaxed.pieces else (search.mesh.sizes,)
    followers = Followers(replace(search, alike={}), levels, relaxed.pieces)
    followers.begin()
    return followers.solve()


def assemble(search: Search, plans: Collection[Outcome], more: Iterable[Search]) -> Outcome | None:
    """The best of plans and of what more searches begin with, in a second or while there is time.

    One elimination chooses what each vertex does. Without plans, there is time for one.
    """
    least = budgets.LEAST_SEARCH if plans else budgets.FIRST_PLAN_GRACE
    late = max(search.deadline, planning_time() + least)
    every = Followers(replace(search, alike={}, deadline=late), (search.mesh.sizes,))
    every.options = {name: {} for name in every.views}
    for plan in plans:
        every.take(plan)
    until = part_of_time(late, budgets.BEGINNING_SHARE)
    for other in takewhile(lambda _: not has_passed(until), more):
        every.begin_as(other)
    return every.solve(min(plans, key=lambda each: each.rank, default=None))


def combine(
    search: Search, levels: Levels, plans: Iterable[Outcome], goal: float
) -> Iterator[Outcome]:
    """What plans lead to: each by itself, from the best on, and then all together."""
    found: list[Outcome] = []
    for plan in sorted(plans, key=lambda each: each.rank)[: budgets.COMBINED_PLANS]:
        found.append(_improve(search, levels, [plan], goal))
        yield found[-1]
        if found[-1].cost <= goal or has_passed(search.deadline):
            return
    if len(found) > 1:
        yield _improve(search, levels, found, goal)


def _improve(search: Search, levels: Levels, plans: Sequence[Outcome], goal: float) -> Outcome:
    """Choose among plans and what neighbours in the best one suggest, until nothing improves."""
    best = min(plans, key=lambda each: each.rank)
    followers = Followers(replace(search, alike={}), levels)
    while best.cost > goal and not has_passed(search.deadline):
        followers.options = {name: {} for name in followers.views}
        for plan in (*plans, best):
            followers.take(plan)
        followers.suggest(best)
        other = followers.solve(best)
        search.tell("follow", best.cost)
        if other is None or other.cost >= best.cost:
            break
        best = other
    return best


@dataclass
class Followers:
    """What every vertex may choose from."""

    search: Search
    levels: Levels
    pieces: Mapping[str, Pieces] = field(default_factory=dict[str, Pieces])
    options: dict[str, dict[Option, None]] = field(default_factory=dict[str, dict[Option, None]])
    prices: dict[tuple[Cut, Cut, int], float] = field(default_factory=dict[Any, float])
    """What moves from one cut to another cost."""
    agreed: dict[Hashable, tuple[Axes, ...]] = field(default_factory=dict[Any, Any])
    """The axes of what is divided into turns together: of its label, and of what is read alike."""
    groups: int = 1
    """How many groups of vertices choose one after another, where all at once are too many."""

    @property
    def mesh(self) -> Mesh:
        """The mesh that is planned for."""
        return self.search.mesh

    @cached_property
    def vertices(self) -> dict[str, Vertex]:
        """Those that choose."""
        return {v.name: v for v in self.search.rules.chosen(self.search.graph)}

    @cached_property
    def views(self) -> dict[str, View]:
        """How each of them can be cut."""
        rules, graph = self.search.rules, self.search.graph
        return {name: rules.view_of(graph, v) for name, v in self.vertices.items()}

    @cached_property
    def readers(self) -> dict[str, list[tuple[str, int]]]:
        """Who reads the result of a vertex, and as which of its inputs."""
        readers: dict[str, list[tuple[str, int]]] = {name: [] for name in self.views}
        for name, vertex in self.vertices.items():
            for k, dims in enumerate(self.views[name].reads):
                if dims is not None and (maker := self._maker(vertex.inputs[k])) in readers:
                    readers[maker].append((name, k))
        return readers

    def _maker(self, name: str) -> str:
        return self.search.rules.tie.get(name, name)

    # From given pieces

    def begin(self) -> None:
        """Options to begin with: each vertex follows what it reads, inputs their readers."""
        self.options = {name: {} for name in self.views}
        decided: dict[str, Option] = {}
        homes: dict[str, Cut] = {}
        for name, vertex in self.vertices.items():
            if isinstance(vertex.op, Input):
                continue
            if has_passed(self.search.deadline):
                return
            held = self._held(name, homes)
            priced = {own: self._price(name, own, held) for own in self._first(name, held)}
            if priced:
                decided[name] = min(priced, key=lambda option: priced[option])
                for key, told in self._told(name, decided[name][0]):
                    self.agreed.setdefault(key, tuple(axes for _, axes in told))
                homes[name] = self._home(name, decided[name])
                kept = priced if self.pieces else [decided[name]]
                self.options[name] |= dict.fromkeys(kept)
        for name, vertex in self.vertices.items():
            if isinstance(vertex.op, Input):
                known = [(r, k) for r, k in self.readers[name] if r in decided]
                needs = [self._need(r, k, decided[r][0]) for r, k in known]
                self._let_lie(name, self.pieces[name].own if self.pieces else None, needs)

    def begin_as(self, search: Search) -> None:
        """Add options to begin with under another search in which no result stays in parts."""
        late = replace(search, deadline=self.search.deadline)
        own = Followers(without_parts(late), self.levels, prices=self.prices)
        own.begin()
        for name, options in own.options.items():
            padded = (in_no_parts(self.views[name], *option) for option in options)
            self.options[name] |= dict.fromkeys(padded)

    def _first(self, name: str, held: Mapping[int, Cut]) -> Iterator[Option]:
        """Options that follow what is held, each time another input first: of the given pieces."""
        view = self.views[name]
        for first in held or (0,):
            wanted = self._wanted(name, held, first)
            if self.pieces:
                pieces = self.pieces[name]
                own = axes_for(self.mesh, self.levels, pieces.own, wanted)
                places = None if own is None else self._places(name, own, pieces, ())
                if own is not None and places is not None:
                    yield own, places
                if not (view.stays or view.ways):
                    continue  # else parts may lie where nobody can read them
            rows = self.search.restricted(
                self.vertices[name], view, tuple(self._taken_over(view, wanted))
            )
            for own in rows or self._left_open(name, wanted):
                for places in left_over(view, own, ()):
                    yield own, places

    def _left_open(self, name: str, wanted: Wanted) -> Iterator[Assignment]:
        """Some assignments that a restriction leaves, as near to what is wanted as they may be."""
        parts = allowed_vectors(self.search, self.vertices[name], self.views[name])
        for row in parts[: budgets.FEW_VECTORS].tolist():
            own = axes_for(self.mesh, (self.mesh.sizes,), tuple((n,) for n in row), wanted)
            if own is not None:
                yield own

    def _held(self, name: str, homes: Mapping[str, Cut]) -> dict[int, Cut]:
        """Where the inputs of a vertex lie, as far as that is known."""
        reads = enumerate(zip(self.vertices[name].inputs, self.views[name].reads, strict=True))
        makers = {k: self._maker(source) for k, (source, dims) in reads if dims is not None}
        return {k: homes[maker] for k, maker in makers.items() if maker in homes}

    @cached_property
    def _divided(self) -> dict[str, list[tuple[Hashable, int]]]:
        """What each vertex reads in turns, and as which of its inputs."""
        divided: dict[str, list[tuple[Hashable, int]]] = {}
        for number, turns in enumerate(self.search.rules.turns):
            for key, readers in turns.divided(self.search.graph).items():
                for name, k in readers:
                    divided.setdefault(name, []).append(((number, key), k))
        return divided

    def _told(self, name: str, own: Assignment) -> Iterator[tuple[Hashable, list[Any]]]:
        """What a vertex in turns must have like the others: labels by number, and their axes."""
        view = self.views[name]
        for number, turns in enumerate(self.search.rules.turns):
            if name in turns.labels:
                label = view.labels.index(turns.labels[name])
                yield number, [(label, own[label])]
        for key, k in self._divided.get(name, ()):
            dims = zip(view.reads[k] or (), combined(self._need(name, k, own)), strict=True)
            yield key, [(view.index(dim), span.axes) for dim, span in dims]

    def _wanted(self, name: str, held: Mapping[int, Cut], first: int) -> Wanted:
        view = self.views[name]
        wanted: dict[int, Axes] = {}
        if self.agreed:
            for key, told in self._told(name, unassigned(view)):
                for (label, _), axes in zip(told, self.agreed.get(key, ()), strict=False):
                    if label is not None:
                        wanted[label] = axes
        for k in sorted(held, key=lambda k: k != first):
            if (left := pending_in(held[k])) is not None:
                ways = (i for i, way in enumerate(view.ways) if k in way.operands)
                wanted |= {len(view.cut_labels) + i: left.axes for i in ways}
            for dim, span in zip(view.reads[k] or (), combined(held[k]), strict=True):
                if (label := view.along(dim)) is not None and span.axes:
                    wanted.setdefault(label, span.axes)
        return tuple(wanted.items())

    def _price(self, name: str, option: Option, held: Mapping[int, Cut]) -> float:
        """What a vertex fetches from where its inputs lie, and what it reduces."""
        graph, price, vertex = self.search.graph, self.search.price, self.vertices[name]
        total = 0.0
        for k, cut in held.items():
            item = graph[vertex.inputs[k]].dtype.itemsize
            move = (cut, self._need(name, k, option[0]), item)
            if move not in self.prices:
                self.prices[move] = float(price.fetch([cut], [move[1]], item)[0, 0])
            total += self.prices[move]
        if self.pieces:
            return total  # all reduce alike
        own = listed_choices(self.views[name], self.mesh, (option,))
        sizes = (vertex.elements, partial_bytes(graph, vertex), vertex.dtype.itemsize)
        return total + float(price.reduce_scatter(own, *sizes).min())

    def _need(self, name: str, k: int, own: Assignment) -> Cut:
        return needed_cut(self.views[name], self.mesh, k, own)

    def _home(self, name: str, option: Option) -> Cut:
        return listed_choices(self.views[name], self.mesh, (option,)).homes[0]

    def _let_lie(self, name: str, pieces: Vector | None, needs: Iterable[Cut]) -> None:
        """Let an input lie inside what a reader needs, in these pieces if possible."""
        view = self.views[name]
        rows: dict[Assignment, None] = {}
        for need in needs:
            wanted = tuple(
                (label, span.main_axes)
                for dim, span in zip(view.output, combined(need), strict=True)
                if (label := view.index(dim)) is not None
            )
            own = None if pieces is None else axes_for(self.mesh, self.levels, pieces, wanted)
            if own is not None:
                rows[own] = None
            # An input is stored once, whatever computing may be repeated.
            rows |= dict.fromkeys(taken_over(view, self.mesh, wanted))
        self.options[name] |= {(own, ((),) * len(view.output)): None for own in rows}

    def _places(self, name: str, own: Assignment, pieces: Pieces, wanted: Wanted) -> Places | None:
        return places_for(self.views[name], self.mesh, self.levels, own, pieces.home, wanted)

    def _taken_over(self, view: View, wanted: Wanted) -> dict[Assignment, None]:
        redundant = self.search.redundant
        return dict.fromkeys(taken_over(view, self.mesh, wanted, redundant=redundant))

    # From plans and neighbours

    def take(self, plan: Outcome) -> None:
        """Let every vertex choose what it does in a plan."""
        for name, decision in plan.decisions.items():
            if name in self.options:
                self.options[name][decision.assignment, decision.places] = None

    def suggest(self, plan: Outcome) -> None:
        """Let every vertex follow its neighbours in a plan."""
        decided = plan.decisions
        homes = {name: decision.home for name, decision in decided.items()}
        for name, vertex in self.vertices.items():
            needs = [self._need(r, k, decided[r].assignment) for r, k in self.readers[name]]
            if isinstance(vertex.op, Input):
                pieces = pieces_of(self.mesh, self.levels, decided[name].assignment)
                self._let_lie(name, pieces, needs)
            else:
                for option in self._suggested(name, decided[name], self._held(name, homes), needs):
                    self.options[name][option] = None

    def _suggested(
        self, name: str, now: Decision, held: Mapping[int, Cut], needs: Sequence[Cut]
    ) -> Iterator[Option]:
        view = self.views[name]
        same = Pieces(
            pieces_of(self.mesh, self.levels, now.assignment),
            pieces_of(self.mesh, self.levels, (span.axes for span in now.home)),
        )
        after: list[Wanted] = [
            tuple((d, span.main_axes) for d, span in enumerate(need) if span.main_axes)
            for need in (*(need if view.stays else combined(need) for need in needs), ())
        ]
        wanted = [self._wanted(name, held, first) for first in held]
        for dims in after:
            labels = {view.index(view.output[d]): axes for d, axes in dims if d < len(view.output)}
            wanted.append(tuple((i, axes) for i, axes in labels.items() if i is not None))
        rows: dict[Assignment, None] = {now.assignment: None}
        for each in wanted:
            own = axes_for(self.mesh, self.levels, same.own, each)
            if own is not None:
                rows[own] = None
            rows |= self._taken_over(view, each)
        for own in self.search.restricted(self.vertices[name], view, tuple(rows)):
            found: dict[Places, None] = {}
            for dims in after:
                places = self._places(name, own, same, dims)
                if places is not None:
                    found[places] = None
                found |= dict.fromkeys(left_over(view, own, dims))
            for places in found:
                yield own, places

    # The best of all

    def solve(self, best: Outcome | None = None) -> Outcome | None:
        """The best plan among the options, near a plan if they are too many; None if none is."""
        if self.groups == 1:
            try:
                return replace(solve(self.search, self._choices), bound=0)
            except PlanError:
                return None
            except UnsolvedError:
                self.groups = 2
        return None if best is None else self._solve_groups(best)

    def _solve_groups(self, best: Outcome) -> Outcome:
        """Let one group of vertices after the other choose, all others as they do now."""
        names = list(self.options)
        at = 0
        while at < len(names) and not has_passed(self.search.deadline):
            size = -(-len(names) // self.groups)
            group = set(names[at : at + size])
            try:
                other = solve(self.search, self._near(best, group))
                best = min(best, replace(other, bound=0), key=lambda each: each.rank)
            except UnsolvedError:
                if size > 1:
                    self.groups *= 2
                    continue
            except PlanError:
                pass
            at += size
        return best

    def _near(self, plan: Outcome, free: Collection[str]) -> Callable[[Vertex, View], Choices]:
        """What vertices can choose if all but some choose as in a plan."""

        def of(vertex: Vertex, view: View) -> Choices:
            if vertex.name in free:
                return self._choices(vertex, view)
            return decided_choices(view, self.mesh, plan.decisions[vertex.name])

        return of

    def _choices(self, vertex: Vertex, view: View) -> Choices:
        pinned = self.search.rules.pinned.get(vertex.name)
        options = self.options[vertex.name]
        if pinned is not None and isinstance(vertex.op, Input):
            places = ((),) * len(view.output)
            options = {(own, places): None for own in assignments_of(view, pinned)}
        if not options:
            raise PlanError(f"found no layout for {vertex}")
        own = listed_choices(view, self.mesh, tuple(options))
        if pinned is None or isinstance(vertex.op, Input):
            return own
        return pinned_choices(own, pinned) or choices_reaching(view, self.mesh, pinned[0])
