"""Layouts that the user fixes: `{"X": {"i": 2}}` or `{"X": {"i": "gpu"}}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError, suggest
from eindecomp.graph.ops import Fill
from eindecomp.planner.space.choices import Choices, all_assignments, choices
from eindecomp.planner.space.cut import boxes_key, parts_of, span_of
from eindecomp.planner.space.mesh import is_whole
from eindecomp.planner.space.tiles import dim_parts
from eindecomp.planner.space.viable import viable_parts
from eindecomp.planner.space.view import Dim, is_planned, view_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.space.cut import Cut
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import View

_LISTED = 5000  # the most assignments that are searched for one that a pin allows
_MOST = 2000  # layouts that one pin may leave open

Pin = Mapping[str, Mapping[str, int | str | Sequence[str]]]
"""For each tensor how many pieces, or which mesh axes, cut each of its labels."""
Pins = dict[str, dict[str, int | tuple[str, ...]]]
"""The same in one form, which can be compared and saved."""


def pins_of(pin: Pin | None) -> Pins:
    """A checked pin in its normal form.

    >>> pins_of({"X": {"i": 2, "j": "gpu"}})
    {'X': {'i': 2, 'j': ('gpu',)}}
    """

    def form(given: int | str | Sequence[str]) -> int | tuple[str, ...]:
        if isinstance(given, str):
            return (given,)
        return (
            tuple(given) if isinstance(given, Sequence) else int(given)
        )  # NumPy's integers included

    return {
        name: {label: form(given) for label, given in wanted.items()}
        for name, wanted in (pin or {}).items()
    }


def pinned_cuts(
    graph: Graph, mesh: Mesh, pin: Pin | None, written: Graph | None = None
) -> dict[str, tuple[Cut, ...]]:
    """For each pinned tensor, the layouts that agree with its pin; labels not named are whole.

    `written` is the graph before it was rewritten.
    """
    if pin is not None and not isinstance(pin, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a pin is {{tensor: {{label: pieces or axis}}}}, not {pin!r}")
    cuts: dict[str, tuple[Cut, ...]] = {}
    for name, wanted in (pin or {}).items():
        if name not in graph:
            if written is not None and name in written:
                raise PlanError(f"pin: rewriting removes the tensor {name!r}; use rewrite=False")
            raise PlanError(f"pin: the graph has no tensor {name!r}{suggest(name, graph.vertices)}")
        cuts[name] = _cuts(graph[name], mesh, wanted)
        _check_can_be_cut(graph, mesh, graph[name], cuts[name])
    return cuts


def _check_can_be_cut(graph: Graph, mesh: Mesh, vertex: Vertex, cuts: tuple[Cut, ...]) -> None:
    """Refuse pins along dimensions that the vertex cannot compute in blocks."""
    if not is_planned(vertex):
        return
    dims = zip(vertex.labels, view_of(graph, vertex).output, strict=True)
    for k, (label, dim) in enumerate(dims):
        pieces = min(parts_of(mesh, cut[k].axes | cut[k].inner) for cut in cuts)
        if dim.label is None and pieces > 1:
            raise PlanError(
                f"pin: {vertex} cannot be cut along {label!r}, because its elements there come "
                "from several inputs or positions: leave it whole, or pin a vertex that reads it"
            )


def agrees(mesh: Mesh, cut: Cut, pinned: Sequence[Cut]) -> bool:
    """Whether a layout puts every element where one of the pinned layouts does."""
    key = boxes_key(mesh, cut)
    return any(boxes_key(mesh, other) == key for other in pinned)


def loosely_cut(graph: Graph, mesh: Mesh, pinned: Mapping[str, tuple[Cut, ...]]) -> frozenset[str]:
    """The pinned results that cannot be divided among all devices and still lie as pinned.

    Each of their pieces must be computed by several devices.
    """
    loose: set[str] = set()
    for name, cuts in pinned.items():
        if is_planned(graph[name]):
            view = view_of(graph, graph[name])
            if not _can_be_cut(view, mesh, cuts):
                loose.add(name)
    return frozenset(loose)


def _can_be_cut(view: View, mesh: Mesh, cuts: tuple[Cut, ...]) -> bool:
    """Whether an assignment with the most pieces leads to one of the cuts."""
    if len(view.labels) ** len(mesh.sizes) <= _LISTED:
        rows = all_assignments(view.sizes, mesh)
        return bool(reaching(choices(view, mesh, rows), cuts).any())
    parts = viable_parts(view.sizes, mesh.sizes)
    tile = dim_parts(view, view.output, parts)
    summed = parts[:, list(view.aggregated)].prod(axis=1)
    for cut in cuts:
        wanted = np.array([parts_of(mesh, span.axes | span.inner) for span in cut], dtype=np.int64)
        grown, left = np.divmod(wanted[None], tile)
        spread = np.maximum(grown.prod(axis=1), 1)
        if ((left == 0).all(axis=1) & (grown > 0).all(axis=1) & (summed % spread == 0)).any():
            return True
    return False


def reaching(own: Choices, cuts: Sequence[Cut]) -> NDArray[np.bool_]:
    """Which assignments can leave their result in one of the cuts."""
    wanted = {boxes_key(own.mesh, cut) for cut in cuts}
    agree = np.array([boxes_key(own.mesh, home) in wanted for home in own.homes], dtype=bool)
    return np.any((own.reduced >= 0) & agree[None], axis=1)


def _cuts(
    vertex: Vertex, mesh: Mesh, wanted: Mapping[str, int | str | Sequence[str]]
) -> tuple[Cut, ...]:
    if isinstance(vertex.op, Fill):
        raise PlanError(f"pin: {vertex} is a fill, which is generated wherever it is read")
    if not isinstance(wanted, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"pin: {vertex} needs {{label: pieces or axis}}, not {wanted!r}")
    for label in wanted:
        if label not in vertex.labels:
            raise PlanError(f"pin: {vertex} has no label {label!r}{suggest(label, vertex.labels)}")
    asked = [_asked(vertex, mesh, label, wanted.get(label, 1)) for label in vertex.labels]
    masks = list(islice(_masks(mesh, asked, 0), _MOST + 1)) if _can_be(mesh, asked) else []
    if not masks:
        raise PlanError(f"pin: no axes of {_show(mesh)} cut {vertex} as {dict(wanted)}")
    if len(masks) > _MOST:
        raise PlanError(f"pin: too many ways to cut {vertex} as {dict(wanted)}: name the axes")
    return tuple(
        tuple(span_of(Dim(None, 0, n), axes) for n, axes in zip(vertex.shape, row, strict=True))
        for row in masks
    )


def _asked(
    vertex: Vertex, mesh: Mesh, label: str, given: int | str | Sequence[str]
) -> int | tuple[int, ...]:
    """A number of pieces, or the axes by number."""
    size = vertex.sizes[label]
    if is_whole(given):
        given = int(given)
        if not 1 <= given <= size:
            raise PlanError(f"pin: {vertex} cannot be cut {given} ways along {label!r} of {size}")
        return given
    if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"pin: {vertex} needs pieces or axes along {label!r}, not {given!r}")
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in mesh.names:
            near = suggest(name, mesh.names)
            raise PlanError(f"pin: no mesh axis {name!r} to cut {vertex} along {label!r}{near}")
    if len(set(names)) < len(names):
        raise PlanError(f"pin: an axis appears twice in {list(names)}, along {label!r} of {vertex}")
    axes = tuple(mesh.names.index(name) for name in names)
    if (pieces := prod(mesh.sizes[a] for a in axes)) > size:
        raise PlanError(
            f"pin: {vertex} cannot be cut {pieces} ways, by {'·'.join(names)}, "
            f"along {label!r} of {size}"
        )
    return axes


def _can_be(mesh: Mesh, asked: Sequence[int | tuple[int, ...]]) -> bool:
    """Whether each dimension alone can be cut as asked, and all together into that many pieces.

    On axes of prime sizes nothing else can fail, so the enumeration of all ways ends soon.
    """
    axes = tuple(range(len(mesh.sizes)))
    pieces = [n if isinstance(n, int) else prod(mesh.sizes[a] for a in n) for n in asked]
    alone = all(any(True for _ in _groups(mesh, axes, n)) for n in set(pieces))
    return alone and mesh.devices % prod(pieces) == 0


def _masks(mesh: Mesh, asked: Sequence[int | tuple[int, ...]], used: int) -> Iterator[list[int]]:
    """Every way to cut the dimensions as asked, as bits of axes."""
    if not asked:
        yield []
        return
    free = tuple(a for a in range(len(mesh.sizes)) if not used >> a & 1)
    first = asked[0]
    if isinstance(first, tuple):
        groups = iter([first] if all(a in free for a in first) else [])
    else:
        groups = _groups(mesh, free, first)
    for group in groups:
        mask = sum(1 << a for a in group)
        for rest in _masks(mesh, asked[1:], used | mask):
            yield [mask, *rest]


def _groups(mesh: Mesh, axes: tuple[int, ...], pieces: int) -> Iterator[tuple[int, ...]]:
    """The groups of these axes that cut into this many pieces."""
    if pieces == 1:
        yield ()
        return
    for at, axis in enumerate(axes):
        left, rest = divmod(pieces, mesh.sizes[axis])
        if not rest:
            for others in _groups(mesh, axes[at + 1 :], left):
                yield (axis, *others)


def _show(mesh: Mesh) -> str:
    return "the mesh " + " × ".join(f"{n}={s}" for n, s in zip(mesh.names, mesh.sizes, strict=True))
