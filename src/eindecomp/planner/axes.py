"""Chooses mesh axes for every vertex so that least is moved.

All axes at once while the tables allow. Beyond that a few axes at a time: first coarse to fine, the
outer axes on a mesh of their own and each further block inside what is settled; then blocks of axes
are chosen anew, all others as they are, until nothing improves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from time import monotonic
from typing import TYPE_CHECKING, Protocol

import numpy as np

from eindecomp.errors import InfeasibleError, PlanError, UnsolvedError
from eindecomp.planner.box import outer_cut
from eindecomp.planner.choices import (
    REPLICATED,
    UNUSED,
    Assignment,
    Choices,
    choices,
    parts_of_assignments,
    refined,
)
from eindecomp.planner.memory import show_bytes
from eindecomp.planner.mesh import Mesh
from eindecomp.planner.pin import reaching
from eindecomp.planner.residence import add_usage
from eindecomp.planner.traffic import Decision, Traffic
from eindecomp.planner.viable import some_parts
from eindecomp.planner.view import is_planned, view_of
from eindecomp.solve.minimize import minimize
from eindecomp.solve.solution import Progress
from eindecomp.solve.tie_break import minimize_ranked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.box import Cut
    from eindecomp.planner.price import Price
    from eindecomp.planner.view import View
    from eindecomp.solve.solution import Solution

    Ints = NDArray[np.int64]

BLOCK = 130  # the most assignments of one vertex that are looked at together
_GRACE = 20.0  # seconds beyond the deadline that a first plan may take
_SOME = 1 << 14  # the most vectors among which any one is sought


class Restriction(Protocol):
    """Which partition vectors a vertex may take."""

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> NDArray[np.bool_]:
        """A mask over rows of parts; `mesh` may hold only the outer axes."""
        ...


@dataclass(frozen=True)
class Search:
    """One search for axes: what is planned, at which prices, within which time."""

    graph: Graph
    price: Price
    inputs: str = "free"
    pinned: Mapping[str, tuple[Cut, ...]] | None = None
    restriction: Restriction | None = None
    redundant: bool = False
    loose: frozenset[str] = frozenset()
    """Pinned results of which several devices must compute the same pieces."""
    memory: int | None = None
    ranks: bool = False
    """Whether what devices read and hold decides between equal costs."""
    devices: int = 0
    """Of the whole mesh, where this one holds only its outer axes."""
    started: float = 0.0
    deadline: float = np.inf
    bound: float = 0
    on_event: Callable[[Progress], None] | None = None

    def tell(self, stage: str, cost: float = np.inf) -> None:
        """Report the stage and the cost of the best whole plan so far."""
        if self.on_event is not None:
            self.on_event(Progress(monotonic() - self.started, stage, cost, self.bound))

    def on(self, mesh: Mesh) -> Search:
        """The same on another mesh."""
        # A group of devices that further axes will cut has the memory of all of them.
        outer = len(mesh.sizes)
        pinned = {
            name: tuple(dict.fromkeys(outer_cut(cut, outer) for cut in cuts))
            for name, cuts in (self.pinned or {}).items()
        }
        group = self.mesh.devices // mesh.devices
        memory = None if self.memory is None else self.memory * group
        return replace(
            self,
            price=self.price.on(mesh),
            pinned=pinned,
            memory=memory,
            devices=self.mesh.devices,
        )

    @property
    def mesh(self) -> Mesh:
        """The mesh that is planned for."""
        return self.price.mesh

    def assignments(
        self, vertex: Vertex, view: View, base: Assignment, axes: tuple[int, ...]
    ) -> tuple[Assignment, ...]:
        """All that agree with `base` but for some axes, as far as restriction and pins leave them.

        A loose result is cut into as many pieces as its pin allows.
        """
        loose = vertex.name in self.loose and not self.redundant
        rows = refined(view.sizes, self.mesh, base, axes, self.redundant or loose)
        if not loose or not rows or self.pinned is None:
            return self.restricted(vertex, view, rows)
        own = choices(view, self.mesh, rows)
        pieces = own.parts.prod(axis=1) * reaching(own, self.pinned[vertex.name])
        most = [row for row, n in zip(rows, pieces.tolist(), strict=True) if n == pieces.max()]
        return self.restricted(vertex, view, tuple(most)) or tuple(most)

    def restricted(
        self, vertex: Vertex, view: View, rows: tuple[Assignment, ...]
    ) -> tuple[Assignment, ...]:
        """The assignments that the restriction leaves."""
        if self.restriction is None or not rows:
            return rows
        table = np.array(rows).reshape(len(rows), len(self.mesh.sizes))
        parts = parts_of_assignments(table, self.mesh, len(view.labels))
        mask = self.restriction(vertex, view, parts, self.mesh)
        return tuple(row for row, keep in zip(rows, mask.tolist(), strict=True) if keep)


@dataclass(frozen=True)
class Outcome:
    """Decisions for every planned vertex and pinned input, what they cost, and whether at least."""

    decisions: dict[str, Decision]
    given: dict[str, Cut]
    cost: float
    bound: float
    method: str
    load: int
    """What devices read and hold, all together: it decides between plans of equal cost."""

    @property
    def rank(self) -> tuple[float, int]:
        """What is least for the best plan."""
        return self.cost, self.load


def all_axes(search: Search) -> tuple[int, ...]:
    """Every axis, as one block."""
    return tuple(range(len(search.mesh.sizes)))


def solve(search: Search, of: Callable[[Vertex, View], Choices], *, pairs: bool = False) -> Outcome:
    """By elimination; by search and bound where pairs are asked for or memory is limited."""
    limited = search.memory is not None
    pairs = pairs or limited
    traffic = Traffic.of(
        search.graph,
        search.price,
        of,
        search.inputs,
        search.pinned,
        pairs=pairs,
        apart=limited,
        deadline=search.deadline,
    )
    return outcome_of(traffic, _minimize(search, traffic, pairs=pairs))


def outcome_of(traffic: Traffic, found: Solution) -> Outcome:
    """What a choice of the problem means for the plan."""
    return Outcome(
        traffic.decisions(found.choice),
        traffic.pinned_cuts(found.choice),
        found.cost,
        found.bound,
        found.method,
        traffic.load_of(found.choice),
    )


def _minimize(search: Search, traffic: Traffic, *, pairs: bool) -> Solution:
    limit: int | None = None
    if search.memory is not None:
        limit = max(search.memory - add_usage(traffic), 0)
    left = max(search.deadline - monotonic(), 1.0)
    try:
        if search.ranks and not pairs:
            return minimize_ranked(traffic.problem(), traffic.load, time_limit=left)
        return minimize(
            traffic.problem(limit),
            method="auto" if pairs else "exact",
            time_limit=left,
            keep_on_interrupt=False,
        )
    except InfeasibleError as error:
        if search.memory is None:
            raise PlanError("no plan found that agrees with what is pinned") from None
        raise _too_little_memory(search, traffic, error) from None


def _too_little_memory(search: Search, traffic: Traffic, error: InfeasibleError) -> PlanError:
    names = list(traffic.sites)
    step = "" if error.step is None else f" at step {error.step + 1} of {len(names)}"
    if error.step is not None and error.step < len(names):
        step += f", which computes {search.graph[names[error.step]]}"
    lacking = "" if error.excess is None else f": {show_bytes(error.excess)} are missing"
    return PlanError(
        f"found no plan that keeps to {show_bytes(search.memory or 0)} of memory per device"
        f"{step}{lacking}"
    )


def choose_by_blocks(search: Search, sizes: Sequence[int]) -> Outcome:
    """A choice of axes block by block, in the largest blocks that elimination can take.

    Its bound holds if all axes were one block. Once time is up, it is one axis at a time, which
    takes little more.
    """
    for size in sizes:
        if monotonic() > search.deadline:
            break
        try:
            return _coarse_to_fine(search, size)
        except UnsolvedError:
            continue
    late = max(search.deadline, monotonic() + _GRACE)
    try:
        return _coarse_to_fine(replace(search, deadline=late), 1)
    except UnsolvedError:
        late = max(search.deadline, monotonic() + _GRACE)
        return _coarse_to_fine(replace(search, deadline=late), 1, pairs=True)


def _coarse_to_fine(search: Search, size: int, *, pairs: bool = False) -> Outcome:
    axes = all_axes(search)
    blocks = [axes[a : a + size] for a in range(0, max(len(axes), 1), size)]
    outcome: Outcome | None = None
    for block in blocks:
        end = block[-1] + 1 if block else 0
        mesh = Mesh(search.mesh.names[:end], search.mesh.sizes[:end])
        base = {} if outcome is None else outcome.decisions
        search.tell(f"axes {block[0] + 1} to {end}" if block else "axes")
        # What reads least while outer axes are chosen may leave the inner ones less to choose from.
        ranks = search.ranks and len(blocks) == 1
        part = replace(search.on(mesh), ranks=ranks)
        outcome = choose_block(part, block, base, pairs=pairs)
    assert outcome is not None  # noqa: S101 - there is a block
    return outcome if len(blocks) == 1 else replace(outcome, bound=0)


def improve(search: Search, outcome: Outcome, goal: float, sizes: Sequence[int]) -> Outcome:
    """Choose blocks of axes anew until nothing improves, the goal is met or time is up."""
    for size in sizes:
        windows = _windows(search, size)
        stale = turn = 0
        last = 0.0
        while stale < len(windows) and outcome.cost > goal:
            started = monotonic()
            if started + last > search.deadline:
                return outcome
            try:
                found = choose_block(search, windows[turn % len(windows)], outcome.decisions)
            except UnsolvedError:
                break
            last = monotonic() - started
            search.tell("improve", min(found.cost, outcome.cost))
            stale = 0 if found.cost < outcome.cost else stale + 1
            outcome = found if found.cost < outcome.cost else outcome
            turn += 1
        if stale == len(windows):
            break  # smaller blocks would find no more
    return outcome


def lighten(search: Search, outcome: Outcome) -> Outcome:
    """Choose every axis anew, once, so that devices read and hold less at equal cost."""
    search = replace(search, ranks=True)
    last = 0.0
    for axis in all_axes(search):
        started = monotonic()
        if started + last > search.deadline:
            break
        try:
            found = choose_block(search, (axis,), outcome.decisions)
        except UnsolvedError:
            break
        last = monotonic() - started
        outcome = min(outcome, found, key=lambda each: each.rank)
    return outcome


def most_labels(search: Search) -> int:
    """Among how many labels an axis can choose."""
    planned = [v for v in search.graph.vertices.values() if is_planned(v)]
    labels = [len(view_of(search.graph, v).labels) for v in planned]
    return max([*labels, 1]) + search.redundant


def block_sizes(search: Search) -> tuple[int, ...]:
    """How many axes can be chosen together, at most first."""
    most, size = max(most_labels(search), 2), 1
    while most ** (size + 1) <= BLOCK:
        size += 1
    return tuple(range(min(size, max(len(search.mesh.sizes), 1)), 0, -1))


def _windows(search: Search, size: int) -> list[tuple[int, ...]]:
    """Blocks to choose anew: neighbouring axes first, then all other groups."""
    axes = len(search.mesh.sizes)
    near = [tuple(range(a, a + size)) for a in range(axes - size + 1)]
    others = [block for block in combinations(range(axes), size) if block not in near]
    return near + others


def choose_block(
    search: Search,
    block: tuple[int, ...],
    base: Mapping[str, Decision],
    *,
    pairs: bool = False,
) -> Outcome:
    """Choose the axes of a block, those of all others as decided."""

    def of(vertex: Vertex, view: View) -> Choices:
        mesh = search.mesh
        before = base.get(vertex.name)
        blank = (UNUSED,) * len(mesh.sizes)
        current = blank if before is None else (*before.assignment, *blank)[: len(mesh.sizes)]
        rows = search.assignments(vertex, view, current, block)
        settled: list[tuple[int, int]] = []
        if before is not None:
            settled = [
                (a, place)
                for a, place in enumerate(before.places)
                if a not in block and current[a] in view.aggregated
            ]
        if not rows:
            rows = (_any_assignment(search, vertex, view),)
            settled = [(a, REPLICATED) for a in range(len(mesh.sizes))]
        return choices(view, mesh, rows, tuple(settled))

    return solve(search, of, pairs=pairs)


def _any_assignment(search: Search, vertex: Vertex, view: View) -> Assignment:
    """Some assignment with the most pieces, for a vertex that earlier blocks left no room."""
    mesh = search.mesh
    parts = some_parts(view.sizes, mesh.sizes, _SOME)
    if search.restriction is not None:
        parts = parts[search.restriction(vertex, view, parts, mesh)]
    if not len(parts):
        if mesh.devices < search.devices:
            return (UNUSED,) * len(mesh.sizes)  # the inner axes will do it
        raise PlanError(f"{vertex} cannot be cut as asked")
    left: list[int] = parts[0].tolist()
    found = [UNUSED] * len(mesh.sizes)
    for axis in sorted(range(len(mesh.sizes)), key=lambda a: -mesh.sizes[a]):
        for label, pieces in enumerate(left):
            if pieces % mesh.sizes[axis] == 0 and pieces > 1:
                found[axis] = label
                left[label] //= mesh.sizes[axis]
                break
    return tuple(found)
