"""`Search`: what is planned, at which prices and for how long; `Outcome`: what was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.planner.space.choices import choices, parts_of_assignments, refined
from eindecomp.planner.space.cut import outer_cut
from eindecomp.planner.space.pin import reaching
from eindecomp.solve.solution import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.space.choices import Assignment
    from eindecomp.planner.space.cut import Cut
    from eindecomp.planner.space.decision import Decision
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.strategy import Restriction
    from eindecomp.planner.space.view import View

    Ints = NDArray[np.int64]


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
    """The pinned results whose pieces must each be computed by several devices."""
    memory: int | None = None
    ranks: bool = False
    """Whether what devices read and hold decides between equal costs."""
    devices: int = 0
    """The devices of the whole mesh, where this one has only its outer axes."""
    started: float = 0.0
    deadline: float = np.inf
    bound: float = 0
    on_event: Callable[[Progress], None] | None = None

    def tell(self, stage: str, cost: float = np.inf) -> None:
        """Report the stage and the cost of the best complete plan so far."""
        if self.on_event is not None:
            self.on_event(Progress(monotonic() - self.started, stage, cost, self.bound))

    def on(self, mesh: Mesh) -> Search:
        """The same on another mesh."""
        # A group of devices that inner axes will divide has the memory of all of them.
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
        """Those that agree with `base` on all but some axes and that restriction and pins allow.

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
        """The assignments that the restriction allows."""
        if self.restriction is None or not rows:
            return rows
        table = np.array(rows).reshape(len(rows), len(self.mesh.sizes))
        parts = parts_of_assignments(table, self.mesh, len(view.labels))
        mask = self.restriction(vertex, view, parts, self.mesh)
        return tuple(row for row, keep in zip(rows, mask.tolist(), strict=True) if keep)


@dataclass(frozen=True)
class Outcome:
    """Decisions for every planned vertex and pinned input, their cost, and a lower bound."""

    decisions: dict[str, Decision]
    given: dict[str, Cut]
    cost: float
    bound: float
    method: str
    load: int
    """What all devices together read and hold: it decides between plans of equal cost."""

    @property
    def rank(self) -> tuple[float, int]:
        """What the best plan minimizes."""
        return self.cost, self.load


def all_axes(search: Search) -> tuple[int, ...]:
    """Every axis, as one block."""
    return tuple(range(len(search.mesh.sizes)))
