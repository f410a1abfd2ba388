"""What `plan` and `cost` take, checked, and what planning chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from eindecomp.errors import PlanError, quote, suggest
from eindecomp.graph.arrays import check_outputs
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.reduce_types import ReduceTypes
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.cores import cores
from eindecomp.layout.mesh import BALANCED, EVEN, LOOKUPS, PIECES, WHOLE, Mesh, can_cut, is_whole
from eindecomp.layout.view import View, planned_views
from eindecomp.planner import budgets
from eindecomp.planner.costs.cost import Cost
from eindecomp.planner.costs.machine import Machine
from eindecomp.planner.costs.presets import machine_of
from eindecomp.planner.costs.price import OBJECTIVES, Objective
from eindecomp.planner.space.choices import Decision, Layouts
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.planner.space.pin import Pins, loosely_cut
from eindecomp.planner.space.viable import Restriction, viable_parts
from eindecomp.solve.problem.arrays import Ints
from eindecomp.solve.run import Progress

T = TypeVar("T")
SOLVERS = ("auto", "exact", "tree", "linear")
INPUTS = ("free", "sharded")
STOPPED_BY = ("", "time", "interrupt")


@dataclass(frozen=True)
class Options:
    """What was asked of one plan, checked."""

    graph: Graph
    mesh: Mesh
    objective: str | Objective
    solver: str
    rules: LayoutRules
    restriction: Restriction | None
    machine: Machine | None
    memory: int | None
    time_limit: float
    on_event: Callable[[Progress], None] | None
    pin: Pins = field(default_factory=dict[str, Any])
    work: float | None = None
    """How many times their operations contractions may take that read parts; None if none may."""
    pending: bool = False
    """Whether results may stay pending."""
    reduce_types: ReduceTypes = field(default_factory=dict[str, str])
    is_last: bool = True
    """Whether nothing simpler is tried where no plan fits: errors then name the least memory."""

    @cached_property
    def loose(self) -> frozenset[str]:
        """The pinned results whose pieces must each be computed by several devices."""
        return loosely_cut(self.graph, self.mesh, self.rules.pinned)

    def vectors(self, vertex: Vertex, view: View) -> Ints | None:
        """The partition vectors to which a vertex is restricted; None if it may take any."""
        if self.restriction is None or isinstance(vertex.op, Input):
            return None
        rows = viable_parts(view.sizes, self.mesh.sizes, even=self.mesh.cuts_evenly)
        return rows[self.restriction(vertex, view, rows, self.mesh)]


class Deferred(Mapping[str, T]):
    """Decisions or layouts that are made when they are first accessed.

    The paper's objective does not need mesh axes, and choosing them takes longer than planning.
    """

    def __init__(self, decide: Callable[[], Mapping[str, T]]) -> None:
        self._decide = decide

    @cached_property
    def _made(self) -> Mapping[str, T]:
        return self._decide()

    def __getitem__(self, name: str) -> T:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True)
class Chosen:
    """What planning chooses: the part of a plan that the options do not give."""

    graph: Graph
    """The graph in the order of contractions that was chosen."""
    parts: dict[str, dict[str, int]]
    decisions: Mapping[str, Decision]
    given: Mapping[str, Layouts]
    costs: Cost
    bound: float
    method: str
    orders: Orders | None = None
    pending: bool = False
    """Whether some results might have stayed pending."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The contraction orders among which that of a plan was chosen."""

    considered: int
    """How many there are; the bound of the plan holds for all of them."""
    complete: bool
    """Whether these are all orders within the limit on work."""
    most: Mapping[str, float] = field(default_factory=dict[str, float])
    """The most operations that fused vertices may take, where cutting them repeats some."""


def unproved(cost: float, bound: float) -> PlanError:
    """The error of solver "exact" where the best plan is not proved optimal."""
    return PlanError(
        f"no plan was proved optimal: the best one costs {cost}, the bound is {bound}; "
        "solver='auto' returns it"
    )


def described_machine(
    objective: str | Objective,
    machine: Machine | str | Path | None,
    devices: int | None = None,
    axes: Mapping[str, int] | None = None,
) -> Machine | None:
    """The machine that was given, on the mesh that was; objective "time" needs one."""
    if objective != "time" and machine is None:
        return None
    return machine_of(machine, devices, axes)


def mesh_of(
    devices: int | None,
    axes: Mapping[str, int] | None,
    machine: Machine | None,
    pieces: str = BALANCED,
    lookups: str = WHOLE,
) -> Mesh:
    """The mesh of the user's axes, of the machine's, or of the prime factors of `devices`.

    Without any of them, there is a device for each core that this process may use.
    """
    own = machine.mesh if machine is not None else None
    if axes is None and own and devices in (None, Mesh.of_axes(own).devices):
        axes = own
    if axes is None:
        mesh = Mesh.of_devices(cores() if devices is None else devices)
        return replace(mesh, pieces=pieces, lookups=lookups)
    mesh = replace(Mesh.of_axes(axes), pieces=pieces, lookups=lookups)
    if devices is not None and devices != mesh.devices:
        has = f"has {mesh.devices} devices" if mesh.names else "is one device"
        raise PlanError(f"the mesh {dict(axes)} {has}, not {devices}: give only one of the two")
    return mesh


def check_options(
    graph: Graph,
    objective: str | Objective,
    solver: str,
    inputs: str,
    pieces: str,
    time_limit: float,
    on_event: object = None,
    lookups: str = WHOLE,
) -> None:
    """Refuse a graph that cannot be planned, and options that do not exist."""
    if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a plan is made for a Graph, not for {type(graph).__name__}")
    check_outputs(graph)
    for what, given, known in (
        ("objective", objective, OBJECTIVES),
        ("solver", solver, SOLVERS),
        ("inputs", inputs, INPUTS),
        ("pieces", pieces, PIECES),
        ("lookups", lookups, LOOKUPS),
    ):
        if isinstance(given, Objective) and what == "objective":
            continue
        if not isinstance(given, str) or given not in known:
            raise PlanError(f"{what} {given!r} is not one of {', '.join(known)}")
    if not isinstance(time_limit, Real) or not time_limit >= 0:
        raise PlanError(f"time_limit must be seconds, 0 or more, not {time_limit!r}")
    if on_event is not None and not callable(on_event):
        raise PlanError(f"on_event is a function that takes an event, not {on_event!r}")


def check_work(work: float | None, recompute_work: float = 1.0) -> None:
    """Refuse limits on operations that no order of contractions, or no step, can be within."""

    def is_number(given: object) -> bool:
        return isinstance(given, Real) and given is not True and float(given) >= 1

    if work is not None and not is_number(work):
        raise PlanError(
            f"work is how many times the least operations an order may take, 1 or more, or None "
            f"for the usual order, not {work!r}"
        )
    if not is_number(recompute_work):
        raise PlanError(
            "recompute_work is how many times the operations of the step may be carried out, 1 or "
            f"more, not {quote(recompute_work)}"
        )


def check_countable(graph: Graph, mesh: Mesh) -> None:
    """Refuse sizes that 64-bit numbers cannot count."""
    total = 0
    for name, _ in planned_views(graph):
        vertex = graph[name]
        tensors = [vertex, vertex, *(graph[source] for source in vertex.inputs)]
        total += sum(t.elements * t.dtype.itemsize for t in tensors) * mesh.devices * 2
        if total >= budgets.LARGEST_COUNT:
            raise PlanError(f"{vertex}: too many bytes on {mesh.devices} devices to count")


def given_vectors(
    graph: Graph, parts: Mapping[str, Mapping[str, int]], rule: str = BALANCED
) -> dict[str, tuple[int, ...]]:
    """The user's decomposition as vectors in the order of each view's labels."""
    views = dict(planned_views(graph))
    if not isinstance(parts, Mapping) or not all(isinstance(p, Mapping) for p in parts.values()):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError("a decomposition is {vertex: {label: pieces}}")
    for name in parts:
        if name not in views:
            raise PlanError(f"the graph has no computed vertex {name!r}{suggest(name, views)}")
    vectors: dict[str, tuple[int, ...]] = {}
    for name, view in views.items():
        if name not in parts:
            raise PlanError(f"the decomposition does not say how {graph[name]} is cut")
        given: Mapping[str, Any] = parts[name]
        for label, pieces in given.items():
            if label not in view.labels:
                raise PlanError(
                    f"{graph[name]} has no label {label!r}{suggest(label, view.labels)}"
                )
            size = view.sizes[view.labels.index(label)]
            if not is_whole(pieces) or pieces < 1 or not can_cut(rule, size, pieces):
                equal = " equal pieces" if rule == EVEN else ""
                raise PlanError(
                    f"{graph[name]}: label {label!r} of size {size} cannot be cut into "
                    f"{pieces!r}{equal}"
                )
        vectors[name] = tuple(int(given.get(label, 1)) for label in view.labels)
    return vectors
