"""Cutting by labels: what a strategy lets each vertex be cut along, and where it lets state lie."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.mesh import Mesh, can_cut
from eindecomp.layout.view import View, planned_views
from eindecomp.planner.space.viable import parts_along
from eindecomp.solve.problem.arrays import Ints, Mask

STATES = ("free", "replicated", "gathered", "servers")
OTHERS = "*"
"""The kind of the vertices that are of no other kind."""
SERVER = 8
"""The devices of a server, to which named strategies leave what communicates most."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """Cuts every vertex along the first of its labels that are listed, as far as sizes allow."""

    labels: tuple[tuple[str, tuple[str, ...]], ...]
    """For each kind of vertex, what it is cut along; the first kind that a vertex is of counts.

    A kind is a label, for the vertices that have it, the name of a vertex, or all `OTHERS`.
    """
    degrees: tuple[tuple[str, int], ...] = ()
    """Labels that a number of devices cut first; all others are left to `labels`.

    Those that a kind lists are cut so only where it does.
    """
    state: str = "free"
    """Where the results lie that become inputs of the next run.

    "free": anywhere. "replicated": on all devices that compute with them, cut only along the labels
    of the strategy. "gathered": cut over all devices, gathered for each use and let go again.
    "servers": cut over the devices of a server, alike on all servers, and gathered like that.
    """

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """Vertices that have none of the labels are cut optimally, inputs lie anywhere."""
        keep = np.ones(len(parts), dtype=bool)
        if isinstance(vertex.op, Input):
            return keep
        for column, pieces in self._pieces(vertex.name, view, mesh).items():
            keep &= parts[:, column] == pieces
        return keep

    def _pieces(self, name: str, view: View, mesh: Mesh) -> dict[int, int]:
        """Into how many pieces labels are cut, the first as far as possible, and so on."""
        _, own = self._kind(name, view)
        listed = {label for _, labels in self.labels for label in labels}
        degrees = {t: n for t, n in self.degrees if t in own or t not in listed}
        # Those that a number of devices cut come first, each with that number.
        wanted: dict[str, int | None] = degrees | dict.fromkeys(own) | degrees
        columns = {view.labels.index(t): n for t, n in wanted.items() if t in view.labels}
        rows = parts_along(view.cut_sizes, mesh.sizes, tuple(columns), even=mesh.cuts_evenly)
        pieces: dict[int, int] = {}
        for i, (column, degree) in enumerate(columns.items()):
            values: list[int] = rows[:, i].tolist()
            # A vertex that can be cut along nothing else is cut by more devices.
            within = [n for n in values if degree is None or degree % n == 0] or [min(values)]
            pieces[column] = max(within)
            rows = rows[rows[:, i] == pieces[column]]
        return pieces

    def _kind(self, name: str, view: View) -> tuple[str, tuple[str, ...]]:
        """The kind of a vertex, and the labels of that kind."""
        of = {OTHERS, name, *view.labels}
        return next((each for each in self.labels if each[0] in of), (OTHERS, ()))

    def uses(self, graph: Graph, mesh: Mesh) -> int:
        """The devices among which labels divide vertices: most of a kind, fewest of all kinds.

        What is left of the devices is used as is best.
        """
        most: dict[str, int] = {}
        for name, view in planned_views(graph):
            if pieces := self._pieces(name, view, mesh):
                kind, _ = self._kind(name, view)
                most[kind] = max(most.get(kind, 1), prod(pieces.values()))
        return min(most.values(), default=mesh.devices)

    def pin(self, name: str, view: View, mesh: Mesh) -> dict[str, int | list[str]]:
        """State cut along the strategy's labels, by the innermost axes where these suffice."""
        if self.state == "servers":
            return _over_a_server(view, mesh)
        pin: dict[str, int | list[str]] = {}
        end = len(mesh.sizes)
        for column, pieces in reversed(self._pieces(name, view, mesh).items()):
            start = end
            while prod(mesh.sizes[start:end]) < pieces:
                start -= 1
            fits = prod(mesh.sizes[start:end]) == pieces
            if column not in view.aggregated:
                pin[view.labels[column]] = list(mesh.names[start:end]) if fits else pieces
            end = start if fits else end
        return pin


def _over_a_server(view: View, mesh: Mesh) -> dict[str, int | list[str]]:
    """A result cut along its longest dimension by the devices of a server, alike on all servers."""
    first = len(mesh.sizes)
    while first and prod(mesh.sizes[first - 1 :]) <= SERVER:
        first -= 1
    ways = prod(mesh.sizes[first:])
    kept = [i for i in range(len(view.labels)) if i not in view.aggregated]
    kept = [i for i in kept if can_cut(mesh.pieces, view.sizes[i], ways)]
    if not kept or ways == 1:
        return {}
    longest = max(kept, key=lambda i: (view.sizes[i] % ways == 0, view.sizes[i]))
    return {view.labels[longest]: list(mesh.names[first:])}


@dataclass(frozen=True, slots=True)
class SquareRoot:
    """Cuts every result √p ways along each of its two largest dimensions."""

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """As evenly as the factors of p allow, the larger dimension into more pieces."""
        kept = {dim.label for dim in view.output}
        columns = [i for i, label in enumerate(view.labels) if label in kept]
        columns = sorted(columns, key=lambda i: -view.sizes[i])[:2]
        if not columns or isinstance(vertex.op, Input):
            return np.ones(len(parts), dtype=bool)
        rows = parts_along(view.cut_sizes, mesh.sizes, tuple(columns), even=mesh.cuts_evenly)
        rows = rows[rows.prod(axis=1) == rows.prod(axis=1).max()]
        spread = rows[:, 0] / rows[:, -1]
        uneven = np.maximum(spread, 1 / spread) + (spread < 1) * 1e-6
        return (parts[:, columns] == rows[uneven.argmin()]).all(axis=1)


def by_labels(*labels: str, state: str = "free") -> Strategy:
    """The strategy that treats all vertices alike."""
    return Strategy(((OTHERS, labels),), (), state)
