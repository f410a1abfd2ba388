"""Layouts that the user fixes: `{"X": {"i": 2}}` or `{"X": {"i": "gpu"}}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from math import prod
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError, suggest
from eindecomp.planner.box import span_of
from eindecomp.planner.view import Dim

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.box import Cut
    from eindecomp.planner.mesh import Mesh

_MOST = 2000  # layouts that one pin may leave open

Pin = Mapping[str, Mapping[str, int | str | Sequence[str]]]


def pinned_cuts(graph: Graph, mesh: Mesh, pin: Pin | None) -> dict[str, tuple[Cut, ...]]:
    """For each pinned tensor the layouts that agree with its pin; labels not named are whole."""
    found: dict[str, tuple[Cut, ...]] = {}
    if pin is not None and not isinstance(pin, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a pin is {{tensor: {{label: pieces or axis}}}}, not {pin!r}")
    for name, wanted in (pin or {}).items():
        if name not in graph:
            raise PlanError(f"pin: the graph has no tensor {name!r}{suggest(name, graph.vertices)}")
        vertex = graph[name]
        if not isinstance(wanted, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"pin: {vertex} needs {{label: pieces or axis}}, not {wanted!r}")
        for label in wanted:
            if label not in vertex.labels:
                raise PlanError(
                    f"pin: {vertex} has no label {label!r}{suggest(label, vertex.labels)}"
                )
        asked = [_asked(vertex, mesh, label, wanted.get(label, 1)) for label in vertex.labels]
        masks = list(islice(_masks(mesh, asked, 0), _MOST + 1))
        if not masks:
            raise PlanError(f"pin: no axes of {_show(mesh)} cut {vertex} as {dict(wanted)}")
        if len(masks) > _MOST:
            raise PlanError(f"pin: too many ways to cut {vertex} as {dict(wanted)}: name the axes")
        found[name] = tuple(
            tuple(span_of(Dim(None, 0, n), axes) for n, axes in zip(vertex.shape, row, strict=True))
            for row in masks
        )
    return found


def _asked(
    vertex: Vertex, mesh: Mesh, label: str, given: int | str | Sequence[str]
) -> int | tuple[int, ...]:
    """A number of pieces, or the axes by number."""
    size = vertex.sizes[label]
    if isinstance(given, int) and not isinstance(given, bool):
        if not 1 <= given <= size:
            raise PlanError(f"pin: {vertex} cannot be cut {given} ways along {label!r} of {size}")
        return given
    if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"pin: {vertex} needs pieces or axes along {label!r}, not {given!r}")
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in mesh.names:
            raise PlanError(f"pin: no mesh axis {name!r}{suggest(name, mesh.names)}")
    if len(set(names)) < len(names):
        raise PlanError(f"pin: an axis stands twice in {list(names)}, along {label!r} of {vertex}")
    axes = tuple(mesh.names.index(name) for name in names)
    if prod(mesh.sizes[a] for a in axes) > size:
        raise PlanError(f"pin: {vertex} has only {size} elements along {label!r}")
    return axes


def _masks(mesh: Mesh, asked: Sequence[int | tuple[int, ...]], used: int) -> Iterator[list[int]]:
    """Every way to give the dimensions what is asked for, as bits of axes."""
    if not asked:
        yield []
        return
    free = [a for a in range(len(mesh.sizes)) if not used >> a & 1]
    first = asked[0]
    if isinstance(first, tuple):
        groups = [first] if all(a in free for a in first) else []
    else:
        groups = [
            group
            for size in range(len(free) + 1)
            for group in combinations(free, size)
            if prod(mesh.sizes[a] for a in group) == first
        ]
    for group in groups:
        mask = sum(1 << a for a in group)
        for rest in _masks(mesh, asked[1:], used | mask):
            yield [mask, *rest]


def _show(mesh: Mesh) -> str:
    return "the mesh " + " × ".join(f"{n}={s}" for n, s in zip(mesh.names, mesh.sizes, strict=True))
