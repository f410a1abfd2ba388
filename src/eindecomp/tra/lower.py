"""Lowers a plan to tasks: kernel calls, the exact pieces to fetch, reductions, lifetimes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Fill, Input
from eindecomp.planner.costs.bytes_moved import PriceInBytes
from eindecomp.planner.costs.price import partial_item
from eindecomp.planner.space.cut import Cut, span_of
from eindecomp.planner.space.decision import decided_choices
from eindecomp.planner.space.view import view_of
from eindecomp.tra.boxes import Box, boxes_of, meet, shares, volume
from eindecomp.tra.tasks import (
    Compute,
    Fetch,
    Layout,
    Piece,
    Reduce,
    Replicate,
    Step,
    Store,
    Task,
    TaskGraph,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.plan import Plan
    from eindecomp.planner.space.decision import Decision
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import View


def lower(plan: Plan) -> TaskGraph:
    """The tasks of a plan; what they move is `plan.traffic`, which for bytes is `plan.cost`."""
    lowering = _Lowering(plan)
    for name, decision in plan.decisions.items():
        lowering.add(plan.graph[name], decision)
    outputs = {vertex.name for vertex in plan.graph.outputs}
    kept = {Store(name, layout) for name in outputs for layout in (Layout.HOME, Layout.GIVEN)}
    last_use = {store: step for store, step in lowering.last_use.items() if store not in kept}
    return TaskGraph(plan, tuple(lowering.steps), last_use)


@dataclass
class _Lowering:
    plan: Plan
    steps: list[Step] = field(default_factory=list[Step])
    last_use: dict[Store, int] = field(default_factory=dict[Store, int])

    @property
    def mesh(self) -> Mesh:
        return self.plan.mesh

    def add(self, vertex: Vertex, decision: Decision) -> None:
        """All steps of a vertex."""
        view = view_of(self.plan.graph, vertex)
        choice = decided_choices(view, self.mesh, decision)
        needs = [None if r is None else boxes_of(self.mesh, r.cuts[0]) for r in choice.reads]
        cuts = [None if r is None else r.cuts[0] for r in choice.reads]
        stores = [
            self._fetch(vertex, source, cut)
            for source, cut in zip(vertex.inputs, cuts, strict=True)
        ]
        axes, summed = _axes(view, decision)
        tile = boxes_of(self.mesh, _tile(view, axes))
        into = Store(vertex.name, Layout.PARTIAL if summed else Layout.HOME)
        calls = [
            Compute(
                device,
                vertex.name,
                tuple(None if need is None else need[device] for need in needs),
                tile[device],
                into,
            )
            for device in range(self.mesh.devices)
        ]
        self._step("compute", vertex.name, calls, [s for s in stores if s is not None])
        if summed:
            self._reduce(vertex, decision, summed)
        if decision.second is not None:
            home = Store(vertex.name, Layout.HOME)
            kept = self._fetches(vertex, home, decision.home, decision.second)
            self._step("keep", vertex.name, kept, [home])

    def _step(self, kind: str, vertex: str, tasks: Sequence[Task], reads: Sequence[Store]) -> None:
        for store in reads:
            self.last_use[store] = len(self.steps)
        self.steps.append(Step(kind, vertex, tuple(tasks)))

    def _fetch(self, vertex: Vertex, source: str, need: Cut | None) -> Store | None:
        """The fetches of one input, from the layout that costs least; where it is then read."""
        plan = self.plan
        origin = plan.graph[source]
        if need is None or isinstance(origin.op, Fill):
            return None
        if source in plan.decisions:
            held = plan.decisions[source]
            layouts = [(Layout.HOME, held.home)]
            if held.second is not None:
                layouts.append((Layout.FURTHER, held.second))
            prices = PriceInBytes(self.mesh).fetch([cut for _, cut in layouts], [need], 1)[:, 0]
            layout, cut = layouts[int(prices.argmin())]
            store = Store(source, layout)
            tasks = self._fetches(origin, store, cut, need, vertex.name)
        elif source in plan.given:
            store = Store(source, Layout.GIVEN)
            tasks = self._fetches(origin, store, plan.given[source], need, vertex.name)
        else:
            store = Store(source, Layout.GIVEN)
            tasks = self._loads(origin, store, need, vertex.name)
        if any(task.moved for task in tasks):
            self._step("fetch", vertex.name, tasks, [store])
        return store

    def _fetches(
        self, origin: Vertex, store: Store, held: Cut, need: Cut, reader: str | None = None
    ) -> list[Fetch]:
        """What every device receives of a tensor that lies in one cut and is needed in another."""
        item, reader = origin.dtype.itemsize, reader or origin.name
        return [
            Fetch(device, reader, store, box, pieces, item * elements)
            for device, (box, pieces, elements) in enumerate(_received(self.mesh, held, need))
        ]

    def _loads(self, origin: Vertex, store: Store, need: Cut, reader: str) -> list[Fetch]:
        """An input that lies as wanted, or is stored once, shared out among those who need it."""
        wanted = boxes_of(self.mesh, need)
        stored_once = self.plan.inputs == "sharded" and isinstance(origin.op, Input)
        holders = _holders(wanted) if stored_once else {}
        found: list[Fetch] = []
        for device, box in enumerate(wanted):
            pieces: tuple[Piece, ...] = ()
            if stored_once:
                devices = holders[box]
                parts = zip(devices, shares(box, len(devices)), strict=True)
                pieces = tuple(
                    Piece(other, part) for other, part in parts if other != device and volume(part)
                )
            moved = sum(volume(piece.box) for piece in pieces) * origin.dtype.itemsize
            found.append(Fetch(device, reader, store, box, pieces, moved))
        return found

    def _reduce(self, vertex: Vertex, decision: Decision, summed: int) -> None:
        """A reduce-scatter into pieces, then what makes whole homes of them."""
        home = boxes_of(self.mesh, decision.home)
        groups = _groups(self.mesh, summed)
        reduces: list[Reduce] = []
        copies: list[Replicate] = []
        for device in range(self.mesh.devices):
            members = groups[device]
            replicas = [other for other in members if home[other] == home[device]]
            parts = dict(zip(replicas, shares(home[device], len(replicas)), strict=True))
            own = parts[device]
            others = len(members) - 1
            moved = others * volume(own) * partial_item(vertex)
            reduces.append(Reduce(device, vertex.name, own, members, moved))
            pieces = tuple(
                Piece(other, part)
                for other, part in parts.items()
                if other != device and volume(part)
            )
            moved = sum(volume(piece.box) for piece in pieces) * vertex.dtype.itemsize
            copies.append(Replicate(device, vertex.name, home[device], pieces, moved))
        self._step("reduce", vertex.name, reduces, [Store(vertex.name, Layout.PARTIAL)])
        if any(copy.moved for copy in copies):
            self._step("replicate", vertex.name, copies, [Store(vertex.name, Layout.HOME)])


@lru_cache(maxsize=1 << 12)
def _received(mesh: Mesh, held: Cut, need: Cut) -> tuple[tuple[Box, tuple[Piece, ...], int], ...]:
    """What each device needs, the pieces of it that others hold, and how many elements those are.

    Models repeat themselves: equal moves are worked out once.
    """
    own, wanted = boxes_of(mesh, held), boxes_of(mesh, need)
    holders = _holders(own)
    found: list[tuple[Box, tuple[Piece, ...], int]] = []
    for device, box in enumerate(wanted):
        pieces = tuple(
            Piece(_nearest(mesh, devices, device), shared)
            for other, devices in holders.items()
            if other != own[device] and (shared := meet(box, other)) is not None
        )
        found.append((box, pieces, sum(volume(piece.box) for piece in pieces)))
    return tuple(found)


def _axes(view: View, decision: Decision) -> tuple[tuple[int, ...], int]:
    """The axes of each label, as bits, and those that are summed over."""
    axes = [0] * len(view.labels)
    for axis, label in enumerate(decision.assignment):
        if label >= 0:
            axes[label] |= 1 << axis
    summed = 0
    for label in view.aggregated:
        summed |= axes[label]
    return tuple(axes), summed


def _tile(view: View, axes: Sequence[int]) -> Cut:
    """The cut in which a vertex computes its result."""
    return tuple(
        span_of(dim, 0 if (i := view.index(dim)) is None else axes[i]) for dim in view.output
    )


def _holders(boxes: Sequence[Box]) -> dict[Box, list[int]]:
    """The devices that hold each distinct box."""
    found: dict[Box, list[int]] = {}
    for device, box in enumerate(boxes):
        found.setdefault(box, []).append(device)
    return found


def _nearest(mesh: Mesh, holders: Sequence[int], device: int) -> int:
    """The holder that shares the most outer coordinates with a device: it is the nearest."""
    if len(holders) == 1:
        return holders[0]
    own = mesh.coordinates[:, device]
    return max(holders, key=lambda other: ((mesh.coordinates[:, other] == own).tolist(), -other))


def _groups(mesh: Mesh, summed: int) -> Mapping[int, tuple[int, ...]]:
    """For each device those that differ from it along summed axes only, itself among them."""
    fixed = [axis for axis in range(len(mesh.sizes)) if not summed >> axis & 1]
    groups: dict[tuple[int, ...], list[int]] = {}
    keys = [tuple(mesh.coordinates[fixed, device].tolist()) for device in range(mesh.devices)]
    for device, key in enumerate(keys):
        groups.setdefault(key, []).append(device)
    return {device: tuple(groups[key]) for device, key in enumerate(keys)}
