"""`Search`: what is planned, at which prices, for how long; `solve`: one problem of it, solved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from eindecomp.errors import InfeasibleError, PlanError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import View
from eindecomp.planner import budgets
from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.planner.costs.price import Price, PriceInBytes, PriceInSeconds
from eindecomp.planner.model.layout_prices import LayoutPrices
from eindecomp.planner.model.memory_limit import add_usage
from eindecomp.planner.model.movement import MovementModel
from eindecomp.planner.space.choices import (
    Assignment,
    Choices,
    Decision,
    Layouts,
    Option,
    choices,
    nestings,
    parts_of_assignments,
    refined,
    unassigned,
    ways,
)
from eindecomp.planner.space.homes import Places, Settled
from eindecomp.planner.space.layout_rules import LayoutRules, read_tensors
from eindecomp.planner.space.pin import assignments_of, pinned_choices, reaching
from eindecomp.planner.space.viable import Restriction, some_vectors, vectors_of, viable_parts
from eindecomp.solve.clock import planning_time, seconds_since
from eindecomp.solve.least_usage import least_usage
from eindecomp.solve.minimize import minimize, minimize_ranked
from eindecomp.solve.problem.arrays import Ints
from eindecomp.solve.run import Progress, Solution


@dataclass(frozen=True)
class Search:
    """One search for axes: what is planned, at which prices, within which time."""

    graph: Graph
    price: Price
    rules: LayoutRules = field(default_factory=LayoutRules)
    restriction: Restriction | None = None
    any_order: bool = False
    """Whether axes nest in any order within a dimension, or only in mesh order."""
    redundant: bool = False
    loose: frozenset[str] = frozenset()
    """The pinned results whose pieces must each be computed by several devices."""
    memory: int | None = None
    alike: Mapping[str, str] = field(default_factory=dict[str, str])
    """For vertices that choose alike, as those of equal layers, in whose name they do."""
    close: float = 0.0
    """How far above the bound, as a fraction of it, a plan may be that ends the search."""
    ranks: bool = False
    """Whether what devices read and hold decides between equal costs."""
    smallest: bool = False
    """Whether what the fullest device holds is minimal, in place of the cost."""
    devices: int = 0
    """The devices of the whole mesh, where this one has only its outer axes."""
    started: float = 0.0
    deadline: float = np.inf
    bound: float = 0
    on_event: Callable[[Progress], None] | None = None
    priced: list[tuple[Search, LayoutPrices]] = field(default_factory=list[Any])
    """The last relaxed problem without a restriction, and its prices, which are not found again."""

    def tell(self, stage: str, cost: float = np.inf) -> None:
        """Report the stage and the cost of the best complete plan so far."""
        if self.on_event is not None:
            self.on_event(Progress(seconds_since(self.started), stage, cost, self.bound))

    def on(self, mesh: Mesh) -> Search:
        """The same on another mesh."""
        # A group of devices that inner axes will divide has the memory of all of them.
        group = self.mesh.devices // mesh.devices
        memory = None if self.memory is None else self.memory * group
        price, rules = self.price.on(mesh), self.rules.outer(len(mesh.sizes))
        return replace(self, price=price, rules=rules, memory=memory, devices=self.mesh.devices)

    def hurried(self, share: float) -> Search:
        """The same search with a share of the time that is left."""
        return replace(self, deadline=part_of_time(self.deadline, share))

    @property
    def mesh(self) -> Mesh:
        """The mesh that is planned for."""
        return self.price.mesh

    def assignments(
        self, vertex: Vertex, view: View, base: Assignment, axes: tuple[int, ...]
    ) -> tuple[Assignment, ...]:
        """Those that agree with `base` on all but some axes and that restriction and pins allow.

        A loose result is cut into as many pieces as its pin allows. An input that is pinned lies
        where its pin says, whatever `base` is.
        """
        pinned = self.rules.pinned.get(vertex.name)
        is_input = isinstance(vertex.op, Input)
        if is_input and pinned is not None:
            return assignments_of(view, pinned)
        loose = vertex.name in self.loose and not self.redundant
        redundant = not is_input and (self.redundant or loose)
        rows = refined(view.sizes, self.mesh, base, axes, redundant, len(view.ways))
        outer = self.mesh.devices < self.devices and self.restriction is not None
        if not (loose or outer) or not rows or pinned is None:
            return self.nested(vertex, view, self.restricted(vertex, view, rows), axes)
        # On outer axes alone, a pin may cut what a restriction leaves to the inner ones.
        rows = self.nested(vertex, view, rows, axes)
        own = choices(view, self.mesh, rows, any_order=True)
        pieces = own.parts.prod(axis=1) * reaching(own, pinned)
        most = [row for row, n in zip(rows, pieces.tolist(), strict=True) if n == pieces.max()]
        return self.restricted(vertex, view, tuple(most)) or tuple(most)

    def nested(
        self, vertex: Vertex, view: View, rows: tuple[Assignment, ...], axes: tuple[int, ...]
    ) -> tuple[Assignment, ...]:
        """The assignments in every order of their axes, where order is a choice."""
        pinned = vertex.name in self.rules.pinned
        if not (self.any_order or pinned):
            return rows
        return nestings(rows, axes, self._seen(vertex, view))

    def _seen(self, vertex: Vertex, view: View) -> list[bool]:
        """For each label whether the order of its axes makes a difference to anyone."""
        reads = zip(vertex.inputs, view.reads, strict=True) if view.reads else ()
        homes = self.rules.has_home
        dims = [d for name, dims in reads if dims and homes(self.graph[name]) for d in dims]
        if vertex.name in self._read or vertex.name in self.rules.pinned:
            dims += view.output
        labels = {label for dim in dims for label in dim.labels}
        return [label in labels for label in view.labels]

    @cached_property
    def _read(self) -> set[str]:
        """The tensors whose layout matters to some reader, or to the next run."""
        return read_tensors(self.graph).union(self.rules.tie.values())

    def restricted(
        self, vertex: Vertex, view: View, rows: tuple[Assignment, ...]
    ) -> tuple[Assignment, ...]:
        """The assignments that the restriction allows."""
        if self.restriction is None or not rows:
            return rows
        parts = parts_of_assignments(rows, self.mesh, len(view.labels))
        mask = self.restriction(vertex, view, parts, self.mesh)
        return tuple(row for row, keep in zip(rows, mask.tolist(), strict=True) if keep)

    def vectors(self, vertex: Vertex, view: View) -> Ints | None:
        """The partition vectors to which a vertex is restricted; None if it may take any."""
        mesh, pinned = self.mesh, self.rules.pinned
        if isinstance(vertex.op, Input):
            if vertex.name not in pinned:
                return None
            rows = assignments_of(view, pinned[vertex.name])
            return np.unique(parts_of_assignments(rows, mesh, len(view.labels)), axis=0)
        if vertex.name in self.loose:
            # One more bucket of any size holds the factors that cut nothing.
            spare = (*view.sizes, mesh.devices)
            parts = viable_parts(spare, mesh.sizes, even=mesh.cuts_evenly)
            return np.unique(parts[:, :-1], axis=0)
        if self.restriction is None:
            return None
        parts = vectors_of(view, mesh.sizes, even=mesh.cuts_evenly)
        return parts[self.restriction(vertex, view, parts, mesh)]

    def choices(
        self,
        vertex: Vertex,
        view: View,
        rows: tuple[Assignment, ...],
        settled: Settled | None = None,
    ) -> Choices:
        """What a vertex can choose with these assignments, within its pin."""
        pinned = self.rules.pinned.get(vertex.name)
        order_matters = vertex.name in self._read and self.any_order
        any_order = order_matters or pinned is not None
        own = choices(view, self.mesh, rows, settled, any_order=any_order)
        kept = own if pinned is None else pinned_choices(own, pinned)
        if kept is None:
            raise PlanError("found no plan that agrees with the pins")
        return kept

    def every_choice(self, vertex: Vertex, view: View) -> Choices:
        """Everything that a vertex can choose: all axes at once."""
        rows = self.assignments(vertex, view, unassigned(view), all_axes(self))
        return self.choices(vertex, view, rows)

    def model(self, of: Callable[[Vertex, View], Choices], *, pairs: bool = False) -> MovementModel:
        """The problem over what each vertex can choose."""
        apart, alike = self.memory is not None, self.alike
        until = np.inf if self.smallest else self.deadline  # the least is told even late
        price = self.price
        if isinstance(price, PriceInSeconds):
            price = replace(price, deadline=until)
        asked = (self.graph, price, of, self.rules)
        return MovementModel.of(*asked, pairs=pairs, apart=apart, alike=alike, deadline=until)

    @cached_property
    def choosers(self) -> int:
        """How many choose for themselves."""
        return len({self.alike.get(name, name) for name in self.graph.vertices})

    @cached_property
    def most_labels(self) -> int:
        """The most labels that an axis can be given to."""
        labels = [
            len(self.rules.view_of(self.graph, v).labels) for v in self.rules.chosen(self.graph)
        ]
        return max([*labels, 1]) + self.redundant

    @property
    def most_ways(self) -> int:
        """The most assignments that a vertex or an input can have."""
        return ways(self.most_labels, len(self.mesh.sizes), any_order=self.any_order)

    @property
    def is_ranked(self) -> bool:
        """Whether what devices read and hold decides between plans of equal cost."""
        return self.memory is None and isinstance(self.price, PriceInBytes)


def allowed_vectors(search: Search, vertex: Vertex, view: View) -> Ints:
    """Some partition vectors into the most pieces, of those that the restriction allows."""
    parts, asked = some_vectors(view, search.mesh, budgets.SOME_VECTORS), search.restriction
    return parts if asked is None else parts[asked(vertex, view, parts, search.mesh)]


@dataclass(frozen=True)
class Outcome:
    """Decisions for every vertex and input that has a home, their cost, and a lower bound."""

    decisions: dict[str, Decision]
    given: dict[str, Layouts]
    """The layouts of inputs, tied ones included."""
    cost: float
    bound: float
    method: str
    load: int
    """What all devices together read and hold: it decides between plans of equal cost."""
    held: int = 0
    """Within a memory limit: the bytes that the fullest device holds at most,"""
    fullest: int = 0
    """and the step at which it does."""

    @property
    def rank(self) -> tuple[float, int]:
        """What the best plan minimizes."""
        return self.cost, self.load


def without_parts(search: Search) -> Search:
    """The same search in which no result stays in parts: far fewer choices."""
    return replace(search, rules=replace(search.rules, waiting={}))


def in_no_parts(view: View, own: Assignment, places: Places) -> Option:
    """An assignment and places of a search without parts, in a view that may have some."""
    left = len(view.output) + bool(view.stays) - len(places)
    return (*own, *[()] * (len(view.labels) - len(own))), (*places, *[()] * left)


def found_without_parts(search: Search, plan: Outcome) -> Outcome:
    """A plan of the search without parts, as one of the search itself."""
    decisions = dict(plan.decisions)
    for name, now in plan.decisions.items():
        view = search.rules.view_of(search.graph, search.graph[name])
        own, places = in_no_parts(view, now.assignment, now.places)
        decisions[name] = replace(now, assignment=own, places=places)
    return replace(plan, decisions=decisions, bound=0)


def part_of_time(deadline: float, share: float) -> float:
    """The end of a share of the time that is left."""
    now = planning_time()
    return now + share * max(deadline - now, 0)


def better(one: Outcome | None, other: Outcome) -> Outcome:
    """The cheaper of two plans."""
    return other if one is None or other.cost <= one.cost else one


def is_open(cost: float, bound: float) -> bool:
    """Whether a plan may cost less; seconds that differ by rounding are equal."""
    slack = 0 if isinstance(cost, int) else budgets.ROUNDING * abs(cost)
    return cost - slack > bound


def is_enough(search: Search, cost: float, bound: float) -> bool:
    """Whether a plan ends the search: it is optimal or, where that is not to be had, nearly so."""
    close = budgets.CLOSE_IN_MEMORY if search.memory is not None else search.close
    return (close > 0 and cost <= (1 + close) * bound) or not is_open(cost, bound)


def goal_of(bound: float) -> float:
    """The most that a plan can cost that meets a bound."""
    return bound if isinstance(bound, int) else bound * (1 + budgets.ROUNDING)


def all_axes(search: Search) -> tuple[int, ...]:
    """Every axis, as one block."""
    return tuple(range(len(search.mesh.sizes)))


def solve(search: Search, of: Callable[[Vertex, View], Choices], *, pairs: bool = False) -> Outcome:
    """Solve one problem by elimination, or by branch and bound with `pairs` or a memory limit."""
    limited = search.memory is not None
    model = search.model(of, pairs=pairs or limited)
    outcome = _solve_within(search, model) if limited else _solve(search, model, pairs=pairs)
    return replace(outcome, bound=0) if model.alike else outcome


def outcome_of(model: MovementModel, solution: Solution) -> Outcome:
    """The outcome that a solution of the problem stands for."""
    choice, cost, bound = solution.choice, solution.cost, solution.bound
    decided, given, load = model.decisions(choice), model.given(choice), model.load_of(choice)
    return Outcome(decided, given, cost, bound, solution.method, load)


def no_plan_fits(memory: int) -> str:
    """The words of an error where no plan was found within a memory limit."""
    return f"found no plan that fits into {show_bytes(memory)} of memory per device"


def _solve(search: Search, model: MovementModel, *, pairs: bool) -> Outcome:
    left = max(search.deadline - planning_time(), 1.0)
    try:
        if search.ranks and not pairs:
            return outcome_of(model, minimize_ranked(model.problem(), model.load, time_limit=left))
        problem, method = model.problem(), "auto" if pairs else "exact"
        solution = minimize(problem, method=method, time_limit=left, keep_on_interrupt=False)
        return outcome_of(model, solution)
    except InfeasibleError:
        raise PlanError("found no plan that agrees with the pins") from None


def _solve_within(search: Search, model: MovementModel) -> Outcome:
    """The cheapest plan within the memory limit, or the one that holds the least."""
    memory = search.memory or 0
    always = add_usage(model)
    problem = model.problem(max(memory - always, 0))
    left = max(search.deadline - planning_time(), budgets.LEAST_SOLVE)
    try:
        if search.smallest:
            choice = least_usage(problem, search.deadline)
            solution = Solution(choice, problem.cost_of(choice), 0, False, "least memory", 0)
        else:
            solution = minimize(problem, time_limit=left, keep_on_interrupt=False)
    except InfeasibleError:
        alone = memory * search.mesh.devices // max(search.devices, search.mesh.devices)
        raise PlanError(no_plan_fits(alone)) from None
    used = problem.usage_of(solution.choice)
    held, fullest = always + int(used.max(initial=0)), int(used.argmax()) if used.size else 0
    return replace(outcome_of(model, solution), held=held, fullest=fullest)
