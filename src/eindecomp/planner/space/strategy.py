"""Strategies: restrictions on how vertices are cut, under which plans are made like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.planner.space.viable import parts_along
from eindecomp.planner.space.view import is_planned, view_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import View

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

NAMED: dict[str, list[str]] = {
    "data": ["b"],
    "sequence": ["s"],
    "attention": ["h"],
    "megatron": ["h", "f"],
}
"""The usual ways to parallelize a transformer whose labels are b, s, h and f."""


class Restriction(Protocol):
    """Which partition vectors a vertex may take."""

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> NDArray[np.bool_]:
        """A mask over rows of parts; `mesh` may hold only the outer axes."""
        ...


@dataclass(frozen=True, slots=True)
class ByLabels:
    """Cuts every vertex along the first of these labels that it has, as far as its size allows."""

    labels: tuple[str, ...]

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """Vertices that have none of the labels are cut optimally."""
        del vertex
        columns = [view.labels.index(label) for label in self.labels if label in view.labels]
        rows = parts_along(view.sizes, mesh.sizes, tuple(columns))
        keep = np.ones(len(parts), dtype=bool)
        for i, column in enumerate(columns):
            most = rows[:, i].max()
            rows = rows[rows[:, i] == most]
            keep &= parts[:, column] == most
        return keep


@dataclass(frozen=True, slots=True)
class SquareRoot:
    """Cuts every result √p ways along each of its two largest dimensions."""

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """As evenly as the factors of p allow, the larger dimension into more pieces."""
        del vertex
        kept = {dim.label for dim in view.output}
        columns = [i for i, label in enumerate(view.labels) if label in kept]
        columns = sorted(columns, key=lambda i: -view.sizes[i])[:2]
        if not columns:
            return np.ones(len(parts), dtype=bool)
        rows = parts_along(view.sizes, mesh.sizes, tuple(columns))
        rows = rows[rows.prod(axis=1) == rows.prod(axis=1).max()]
        spread = rows[:, 0] / rows[:, -1]
        uneven = np.maximum(spread, 1 / spread) + (spread < 1) * 1e-6
        return (parts[:, columns] == rows[uneven.argmin()]).all(axis=1)


@dataclass(frozen=True)
class FixedParts:
    """Cuts every vertex as a given decomposition for `devices` devices says."""

    parts: Mapping[str, tuple[int, ...]]
    devices: int

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """On a mesh of only the outer axes, whatever inner axes can still turn into that."""
        del view
        wanted = np.array(self.parts[vertex.name], dtype=np.int64)
        if mesh.devices == self.devices:
            return (parts == wanted).all(axis=1)
        return (wanted % parts == 0).all(axis=1)


Strategy = ByLabels | SquareRoot


def strategy_of(given: str | Sequence[str], graph: Graph) -> Strategy:
    """The strategy of a name or of a list of labels."""
    if given == "sqrt":
        return SquareRoot()
    if isinstance(given, str):
        if given not in NAMED:
            known = ", ".join(["sqrt", *NAMED])
            raise PlanError(f"strategy {given!r} is not one of {known}, nor a list of labels")
        given = NAMED[given]
    if not isinstance(given, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a strategy is 'sqrt', a name or a list of labels, not {given!r}")
    labels = tuple(given)
    if not labels or not all(isinstance(label, str) for label in labels):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a strategy is 'sqrt', a name or a list of labels, not {given!r}")
    if not _labels(graph) & set(labels):
        raise PlanError(f"no tensor has any label of the strategy {list(labels)}")
    return ByLabels(labels)


def applicable(graph: Graph, without: Collection[str] = ()) -> dict[str, str | list[str]]:
    """The named strategies that apply to a graph's labels and would cut something."""
    labels = _labels(graph)
    vertices = graph.vertices.values()
    long = {t for v in vertices for t, size in zip(v.labels, v.shape, strict=True) if size > 1}
    named: dict[str, str | list[str]] = {
        name: wanted
        for name, wanted in NAMED.items()
        if set(wanted) <= labels and long & set(wanted) and name not in without
    }
    return {"sqrt": "sqrt", **named}


def _labels(graph: Graph) -> set[str]:
    """Every label of a tensor, and every label that some vertex can be cut along."""
    vertices = graph.vertices.values()
    labels = {label for vertex in vertices for label in vertex.labels}
    for vertex in vertices:
        if is_planned(vertex):
            labels.update(view_of(graph, vertex).labels)
    return labels
