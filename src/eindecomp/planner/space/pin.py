"""Layouts that the user fixes: `{"X": {"i": 2}}` or `{"X": {"i": "gpu"}}`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, permutations, product
from math import prod

import numpy as np

from eindecomp.errors import PlanError, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.cut import Axes, Cut, boxes_key, pieces_by, span_of
from eindecomp.layout.mesh import Mesh, can_cut, is_whole
from eindecomp.layout.view import Dim, View, dim_parts, is_planned, view_of
from eindecomp.planner import budgets
from eindecomp.planner.space.choices import (
    Assignment,
    Choices,
    choices,
    nestings,
    refined,
    unassigned,
    ways,
)
from eindecomp.planner.space.homes import Settled
from eindecomp.planner.space.viable import viable_parts
from eindecomp.solve.problem.arrays import Mask

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
        # NumPy's integers included.
        return tuple(given) if isinstance(given, Sequence) else int(given)

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
            near = suggest(str(name), graph.vertices)
            raise PlanError(f"pin: the graph has no tensor {name!r}{near}")
        cuts[name] = _cuts(graph[name], mesh, wanted)
        check_can_be_cut(graph, mesh, graph[name], cuts[name])
    return cuts


def check_can_be_cut(
    graph: Graph, mesh: Mesh, vertex: Vertex, cuts: tuple[Cut, ...], tied: Vertex | None = None
) -> None:
    """Refuse pins along dimensions that the vertex cannot compute in blocks.

    `tied` is the input that was pinned where the vertex only has the same home.
    """
    if not is_planned(vertex):
        return
    dims = zip(vertex.labels, view_of(graph, vertex).output, strict=True)
    for k, (label, dim) in enumerate(dims):
        pieces = min(pieces_by(mesh, cut[k].axes) for cut in cuts)
        if dim.label is None and pieces > 1:
            whose = f"{vertex}" if tied is None else f"{tied} is tied to {vertex}, which"
            raise PlanError(
                f"pin: {whose} cannot be cut along {label!r}, because its elements there come "
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
    if ways(len(view.labels), len(mesh.sizes)) <= budgets.LISTED_WAYS:
        axes = tuple(range(len(mesh.sizes)))
        plain = refined(view.sizes, mesh, unassigned(view), axes)
        rows = nestings(plain, axes, [True] * len(view.labels))
        return bool(reaching(choices(view, mesh, rows, any_order=True), cuts).any())
    parts = viable_parts(view.sizes, mesh.sizes, even=mesh.cuts_evenly)
    tile = dim_parts(view, view.output, parts)
    summed = parts[:, list(view.aggregated)].prod(axis=1)
    for cut in cuts:
        wanted = np.array([pieces_by(mesh, span.axes) for span in cut], dtype=np.int64)
        grown, left = np.divmod(wanted[None], tile)
        spread = np.maximum(grown.prod(axis=1), 1)
        if ((left == 0).all(axis=1) & (grown > 0).all(axis=1) & (summed % spread == 0)).any():
            return True
    return False


def reaching(own: Choices, cuts: Sequence[Cut]) -> Mask:
    """Which assignments can leave their result in one of the cuts."""
    return np.any((own.reduced >= 0) & _agreeing(own, cuts)[None], axis=1)


def _agreeing(own: Choices, cuts: Sequence[Cut]) -> Mask:
    """Which homes are one of the cuts."""
    wanted = {boxes_key(own.mesh, cut) for cut in cuts}
    return np.array([boxes_key(own.mesh, home) in wanted for home in own.homes], dtype=bool)


def pinned_choices(own: Choices, cuts: Sequence[Cut]) -> Choices | None:
    """The choices that leave a result in one of the cuts; None if there are none."""
    homes = _agreeing(own, cuts)
    return own if homes.all() else own.left_in(homes)


def choices_reaching(view: View, mesh: Mesh, cut: Cut) -> Choices:
    """Ways to leave a result in a cut: its outer axes cut the tile, and all others what is summed.

    Axes of summed labels nest in mesh order; each axis goes to the first label with room for it.
    """
    rows: list[Assignment] = []
    for ends in product(*(range(len(span.axes) + 1) for span in cut)):
        tiles = [span.axes[:end] for span, end in zip(cut, ends, strict=True)]
        own: list[Axes] = [()] * len(view.labels)
        for dim, axes in zip(view.output, tiles, strict=True):
            if (i := view.index(dim)) is not None:
                own[i] = axes
        for axis in sorted(set(range(len(mesh.sizes))).difference(*tiles)):
            for i in view.aggregated:
                if can_cut(mesh.pieces, view.sizes[i], pieces_by(mesh, (*own[i], axis))):
                    own[i] = (*own[i], axis)
                    break
        rows.append(tuple(own))
    every = (1 << len(mesh.sizes)) - 1
    return choices(view, mesh, tuple(rows), Settled(tuple(span.axes for span in cut), every))


def assignments_of(view: View, cuts: Sequence[Cut]) -> tuple[Assignment, ...]:
    """The assignments under which an input lies in one of the cuts."""
    places = [[dim.label for dim in view.output].index(label) for label in view.labels]
    return tuple(tuple(cut[d].axes for d in places) for cut in cuts)


def _cuts(
    vertex: Vertex, mesh: Mesh, wanted: Mapping[str, int | str | Sequence[str]]
) -> tuple[Cut, ...]:
    if isinstance(vertex.op, Fill):
        raise PlanError(f"pin: {vertex} is a fill, which is generated wherever it is read")
    if not isinstance(wanted, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"pin: {vertex} needs {{label: pieces or axis}}, not {wanted!r}")
    for label in wanted:
        if label not in vertex.labels:
            near = suggest(str(label), vertex.labels)
            raise PlanError(f"pin: {vertex} has no label {label!r}{near}")
    asked = [_asked(vertex, mesh, label, wanted.get(label, 1)) for label in vertex.labels]
    pieces = [n if isinstance(n, int) else pieces_by(mesh, n) for n in asked]
    every = tuple(range(len(mesh.sizes)))
    alone = all(any(True for _ in _groups(mesh, every, n)) for n in set(pieces))
    rows: list[tuple[Axes, ...]] = []
    # On axes of prime sizes nothing else can fail, so the enumeration of all ways ends soon.
    if alone and mesh.devices % prod(pieces) == 0:
        for orders in (permutations, _rotations, _mesh_order):
            rows = list(islice(_axes(mesh, asked, (), orders), budgets.PINNED_LAYOUTS + 1))
            if len(rows) <= budgets.PINNED_LAYOUTS:
                break
    if not rows:
        axes = " × ".join(f"{n}={s}" for n, s in zip(mesh.names, mesh.sizes, strict=True))
        raise PlanError(f"pin: no axes of the mesh {axes} cut {vertex} as {dict(wanted)}")
    if len(rows) > budgets.PINNED_LAYOUTS:
        raise PlanError(f"pin: too many ways to cut {vertex} as {dict(wanted)}: name the axes")
    return tuple(
        tuple(span_of(Dim(None, 0, n), axes) for n, axes in zip(vertex.shape, row, strict=True))
        for row in rows
    )


def _asked(
    vertex: Vertex, mesh: Mesh, label: str, given: int | str | Sequence[str]
) -> int | tuple[int, ...]:
    """A number of pieces, or the axes by number."""
    size = vertex.sizes[label]
    if is_whole(given):
        given = int(given)
        if given < 1 or not can_cut(mesh.pieces, size, given):
            evenly = _evenly(mesh, size, given)
            raise PlanError(
                f"pin: {vertex} cannot be cut {given} ways{evenly} along {label!r} of {size}"
            )
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
    pieces = pieces_by(mesh, axes)
    if axes and not can_cut(mesh.pieces, size, pieces):
        raise PlanError(
            f"pin: {vertex} cannot be cut {pieces} ways{_evenly(mesh, size, pieces)}, "
            f"by {'·'.join(names)}, along {label!r} of {size}"
        )
    return axes


def _evenly(mesh: Mesh, size: int, pieces: int) -> str:
    """What an error adds where only an uneven cut is possible."""
    return " evenly" if mesh.cuts_evenly and 1 <= pieces <= size else ""


def _rotations(group: Axes) -> Iterator[Axes]:
    """The orders in which some outer axes nest inside all others, each in mesh order."""
    return (group[k:] + group[:k] for k in range(max(len(group), 1)))


def _mesh_order(group: Axes) -> Iterator[Axes]:
    yield group


def _axes(
    mesh: Mesh,
    asked: Sequence[int | tuple[int, ...]],
    used: Axes,
    orders: Callable[[Axes], Iterable[Axes]],
) -> Iterator[tuple[Axes, ...]]:
    """Every way to cut the dimensions as asked, in these orders of axes that are not named."""
    if not asked:
        yield ()
        return
    free = tuple(a for a in range(len(mesh.sizes)) if a not in used)
    first = asked[0]
    if isinstance(first, tuple):
        groups = iter([first] if all(a in free for a in first) else [])
    else:
        groups = (order for group in _groups(mesh, free, first) for order in orders(group))
    for group in groups:
        for rest in _axes(mesh, asked[1:], (*used, *group), orders):
            yield (group, *rest)


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
