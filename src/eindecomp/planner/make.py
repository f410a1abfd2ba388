"""`plan` and `cost`: from a graph to the plan that costs least, or to what a given one costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.rewrite import rewrite as rewritten
from eindecomp.planner.costs.byte_sizes import parse_bytes
from eindecomp.planner.costs.bytes_moved import PriceInBytes
from eindecomp.planner.costs.cost import Cost, decided_cost, paper_cost
from eindecomp.planner.costs.machine import Machine, machine_of
from eindecomp.planner.costs.seconds import PriceInSeconds
from eindecomp.planner.model.piece_counts import Pieces
from eindecomp.planner.model.tables import MOST_CELLS
from eindecomp.planner.options import (
    check_countable,
    check_options,
    given_vectors,
    mesh_of,
    planned_views,
)
from eindecomp.planner.paper.dynamic_program import choose_on_tree
from eindecomp.planner.paper.linearisation import choose_linearly
from eindecomp.planner.plan import Deferred, Plan
from eindecomp.planner.search.choose import choose
from eindecomp.planner.search.relaxation import Relaxed, relax
from eindecomp.planner.search.search import Restriction, Search
from eindecomp.planner.space.decision import parts_by_label
from eindecomp.planner.space.mesh import Mesh
from eindecomp.planner.space.pin import Pin, loosely_cut, pinned_cuts, pins_of
from eindecomp.planner.space.strategy import FixedParts, applicable, strategy_of
from eindecomp.planner.space.viable import most_pieces, viable_parts
from eindecomp.solve.minimize import minimize

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.search.search import Outcome
    from eindecomp.planner.space.cut import Cut
    from eindecomp.planner.space.decision import Decision
    from eindecomp.planner.space.view import View
    from eindecomp.solve.solution import Progress

    Ints = NDArray[np.int64]

_LEAST_TIME = 0.1  # seconds that a further search needs
_AXES_TIME = 10.0  # seconds for the axes of a plan whose objective knows none


def plan(
    graph: Graph,
    devices: int | None = None,
    objective: str = "bytes",
    solver: str = "auto",
    strategy: str | Sequence[str] | None = None,
    inputs: str = "free",
    memory: int | str | None = None,
    mesh: Mapping[str, int] | None = None,
    machine: Machine | str | None = None,
    pin: Pin | None = None,
    rewrite: bool = True,
    *,
    time_limit: float = 45,
    on_event: Callable[[Progress], None] | None = None,
) -> Plan:
    """Divide every vertex of a graph among devices so that the objective is least.

    Every vertex is cut into as many pieces as there are devices, or as its sizes allow; only for
    objective "time" may several devices compute the same. Of plans that cost the same it is one
    whose devices read and hold least.

    `objective` is "bytes" (what really moves), "bound" (the paper's upper bound, in elements) or
    "time" (seconds on `machine`, a preset's name or an `ed.Machine`). Without `devices` there are
    as many as `mesh` or `machine` has, or one for each core that this process may use. `solver` is
    "auto", "exact" (raises unless the optimum is proved) or, for "bound", the paper's "tree" and
    "linear". `strategy` restricts the plan: "sqrt", a name such as "megatron", or labels to cut
    along. `inputs` are "free", placed as they are wanted, or "sharded", each stored once over all
    devices; `pin` fixes layouts of tensors. `memory` limits what a device holds. `mesh` gives axes
    other than the prime factors of `devices`. With `rewrite` the graph is planned as `ed.rewrite`
    leaves it, without as it is written.

    After `time_limit` seconds the plan is the best that was found, with a bound on what any costs.
    `on_event` is called now and then with the seconds so far, the stage, the cost of the best plan
    and the bound. Ctrl-C ends planning without a plan.
    """
    started = monotonic()
    check_options(graph, objective, solver, inputs, time_limit)
    described = machine_of(machine) if objective == "time" or machine is not None else None
    laid_out = mesh_of(devices, mesh, described)
    planned = rewritten(graph) if rewrite else graph
    check_countable(planned, laid_out)
    task = _Task(
        planned,
        laid_out,
        inputs,
        None if strategy is None else strategy_of(strategy, planned),
        pinned_cuts(planned, laid_out, pin, graph),
        None if memory is None else parse_bytes(memory),
        time_limit,
        on_event,
    )
    if objective == "bound":
        made = _plan_pieces(task, solver)
    else:
        made = _plan_traffic(task, _price(objective, laid_out, described), solver)
    return Plan(
        planned, laid_out, objective, inputs, made.parts, made.decisions, made.given,
        made.costs, _proved(made.bound, made.costs.total),
        strategy=strategy if strategy is None or isinstance(strategy, str) else tuple(strategy),
        pin=pins_of(pin), machine=described, memory=task.memory, solver=solver, method=made.method,
        seconds=monotonic() - started,
    )  # fmt: skip


def cost(
    graph: Graph,
    parts: Mapping[str, Mapping[str, int]],
    devices: int,
    objective: str = "bound",
    *,
    inputs: str = "free",
    mesh: Mapping[str, int] | None = None,
    machine: Machine | str | None = None,
) -> Cost:
    """What a hand-made decomposition of a graph as it is written costs.

    `parts` says for each computed vertex into how many pieces each label is cut; labels left out
    are whole. Real movement is that of the best axes and homes for these parts.
    """
    check_options(graph, objective, "auto", inputs, 0)
    described = machine_of(machine) if objective == "time" or machine is not None else None
    laid_out = mesh_of(devices, mesh, described)
    check_countable(graph, laid_out)
    wanted = given_vectors(graph, parts)
    if objective == "bound":
        return paper_cost(graph, wanted)
    most = {n: most_pieces(v.sizes, laid_out.sizes) for n, v in planned_views(graph)}
    redundant = any(prod(wanted[name]) != pieces for name, pieces in most.items())
    price: Price = PriceInBytes(laid_out)
    if objective == "time" and described is not None:
        price = PriceInSeconds(laid_out, described)
    search = Search(
        graph, price, inputs, restriction=FixedParts(wanted, laid_out.devices), redundant=redundant
    )
    outcome = choose(search, Relaxed(0), _AXES_TIME)
    return decided_cost(graph, price, outcome.decisions, outcome.given, inputs)


def _price(objective: str, mesh: Mesh, machine: Machine | None) -> Price:
    if objective == "time" and machine is not None:
        return PriceInSeconds(mesh, machine)
    return PriceInBytes(mesh)


@dataclass(frozen=True)
class _Task:
    graph: Graph
    mesh: Mesh
    inputs: str
    restriction: Restriction | None
    pinned: dict[str, tuple[Cut, ...]]
    memory: int | None
    time_limit: float
    on_event: Callable[[Progress], None] | None

    @cached_property
    def loose(self) -> frozenset[str]:
        """Pinned results of which several devices must compute the same pieces."""
        return loosely_cut(self.graph, self.mesh, self.pinned)

    def rows(self, vertex: Vertex, view: View) -> Ints | None:
        """The partition vectors that the restriction leaves a vertex; None for all."""
        if vertex.name in self.loose:
            # One more bucket of any size holds the factors that cut nothing.
            spare = (*view.sizes, self.mesh.devices)
            return np.unique(viable_parts(spare, self.mesh.sizes)[:, :-1], axis=0)
        if self.restriction is None:
            return None
        rows = viable_parts(view.sizes, self.mesh.sizes)
        return rows[self.restriction(vertex, view, rows, self.mesh)]


@dataclass(frozen=True)
class _Made:
    parts: dict[str, dict[str, int]]
    decisions: Mapping[str, Decision]
    given: dict[str, Cut]
    costs: Cost
    bound: float
    method: str


def _plan_pieces(task: _Task, solver: str) -> _Made:
    """The paper's objective: numbers of pieces first, then axes for them."""
    if task.pinned or task.memory is not None:
        raise PlanError("objective 'bound' knows no layouts: pin and memory need 'bytes' or 'time'")

    def restrict(vertex: Vertex, view: View, rows: Ints) -> Ints:
        kept = task.rows(vertex, view)
        return rows if kept is None else kept

    every = Pieces.of(task.graph, task.mesh.sizes, None if task.restriction is None else restrict)
    pieces = every.fitting(MOST_CELLS // 4)
    bound: float = 0
    if solver == "tree":
        choice, method = choose_on_tree(pieces), "tree"
    elif solver == "linear":
        choice, method = choose_linearly(pieces), "linear"
    else:
        found = minimize(
            pieces.problem(),
            method="exact" if solver == "exact" else "auto",
            time_limit=task.time_limit if pieces is every else task.time_limit / 2,
            on_event=task.on_event,
            keep_on_interrupt=False,
        )
        choice, bound, method = found.choice, found.bound, found.method
    vectors = pieces.parts(choice)
    costs = paper_cost(task.graph, vectors)

    def decide() -> Mapping[str, Decision]:
        search = Search(
            task.graph, PriceInBytes(task.mesh), restriction=FixedParts(vectors, task.mesh.devices)
        )
        relaxed = relax(
            task.graph, task.mesh, "free", lambda v, _: np.array([vectors[v.name]]), _AXES_TIME
        )
        return choose(search, relaxed, _AXES_TIME).decisions

    labels = {name: view.labels for name, view in pieces.views.items()}
    parts = {n: dict(zip(labels[n], v, strict=True)) for n, v in vectors.items()}
    bound = costs.total if solver == "tree" else bound
    if pieces is not every:
        lower = minimize(
            pieces.problem(every), time_limit=task.time_limit / 2, keep_on_interrupt=False
        )
        bound = lower.bound
        if solver == "exact" and bound < costs.total:
            raise _unproved(costs.total, bound)
    return _Made(parts, Deferred(decide), {}, costs, bound, method)


def _plan_traffic(task: _Task, price: Price, solver: str) -> _Made:
    """Real movement, or time: axes for every vertex, homes for every result."""
    if solver in ("tree", "linear"):
        raise PlanError(f"solver {solver!r} is for objective 'bound'")
    in_time = isinstance(price, PriceInSeconds)
    search = Search(
        task.graph, price, task.inputs, task.pinned, task.restriction,
        redundant=in_time, loose=task.loose, memory=task.memory, started=monotonic(),
        on_event=task.on_event,
    )  # fmt: skip
    started = monotonic()
    search.tell("relax")
    if isinstance(price, PriceInSeconds):
        relaxed = Relaxed(_least_compute(task, price))
    else:
        inputs = "free" if task.pinned else task.inputs
        relaxed = relax(task.graph, task.mesh, inputs, task.rows, task.time_limit / 2)
    left = max(task.time_limit - (monotonic() - started), 1.0)
    try:
        outcome = choose(search, relaxed, left)
    except UnsolvedError as error:
        raise PlanError(f"no plan found in {task.time_limit:g} s: {error}") from None
    if task.restriction is None and outcome.bound < outcome.cost * (1 - 1e-9):
        outcome = _as_good_as_usual(search, outcome, started + task.time_limit)
    costs = decided_cost(task.graph, price, outcome.decisions, outcome.given, task.inputs)
    if solver == "exact" and outcome.bound < costs.total * (1 - 1e-9):
        raise _unproved(costs.total, outcome.bound)
    views = dict(planned_views(task.graph))
    parts = {
        name: parts_by_label(views[name], task.mesh, decision)
        for name, decision in outcome.decisions.items()
    }
    return _Made(parts, outcome.decisions, outcome.given, costs, outcome.bound, outcome.method)


def _unproved(cost: float, bound: float) -> PlanError:
    return PlanError(
        f"the optimum is not proved: the best plan costs {cost}, the bound is {bound}; "
        "solver='auto' takes it"
    )


def _as_good_as_usual(search: Search, found: Outcome, deadline: float) -> Outcome:
    """A plan that is not proved to be the best, or a better one that a usual strategy leads to.

    Those restrict every vertex, so that searches look elsewhere; what they find is a plan as well.
    """
    best = found
    usual = applicable(search.graph)
    for number, (name, strategy) in enumerate(usual.items()):
        left = (deadline - monotonic()) / (len(usual) - number)
        if left < _LEAST_TIME or best.cost <= found.bound:
            break
        search.tell(name, best.cost)
        restricted = replace(search, restriction=strategy_of(strategy, search.graph))
        with suppress(UnsolvedError, PlanError):
            other = choose(restricted, Relaxed(found.bound), left)
            if other.rank < best.rank:
                best = replace(other, bound=found.bound)
    return best


def _least_compute(task: _Task, price: PriceInSeconds) -> float:
    """The seconds that computing takes at least, however it is cut."""
    total = 0.0
    for name, view in planned_views(task.graph):
        vertex = task.graph[name]
        items = tuple(task.graph[source].dtype.itemsize for source in vertex.inputs)
        total += price.least(vertex, view, items)
    return total * (1 - 1e-9)


def _proved(bound: float, total: float) -> float:
    """The bound, which rounding alone may have put above the cost."""
    if bound > total * (1 + 1e-6):
        raise AssertionError(f"{bound} is no bound on a plan that costs {total}")
    return min(bound, total)
