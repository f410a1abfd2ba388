"""Meshes with fewer dimensions than a plan's: axes that the plan never keeps apart become one.

A mesh of 8 devices has three axes of 2 here, so that tensors can be cut 2 × 4 or 4 × 2. Where a
plan cuts by all three or none, one dimension of 8 says the same, and a framework that communicates
along one dimension of its mesh at a time moves less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.frontends.layouts import layouts_of, vertex_cuts, widened
from eindecomp.layout.cut import pieces_by
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.pieces import CEIL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.frontends.layouts import VertexCuts
    from eindecomp.layout.cut import Axes, Cut, Span
    from eindecomp.planner.plan import Plan


@dataclass(frozen=True, slots=True)
class Coarse:
    """A mesh whose axes are one or several neighbouring ones of a plan's mesh."""

    mesh: Mesh
    group: tuple[int, ...]
    """Into which axis each axis of the plan's mesh went."""

    def axes(self, axes: Sequence[int]) -> Axes:
        """Axes of the plan's mesh as those of this one."""
        return tuple(dict.fromkeys(self.group[axis] for axis in axes))

    def cut(self, cut: Cut) -> Cut:
        """A cut by the plan's mesh as one by this."""
        return tuple(span._replace(axes=self.axes(span.axes)) for span in cut)

    def vertex(self, own: VertexCuts) -> VertexCuts:
        """The cuts of a vertex by this mesh."""
        return replace(
            own,
            reads=tuple(None if cut is None else self.cut(cut) for cut in own.reads),
            made=self.cut(own.made),
            summed=self.axes(own.summed),
            home=self.cut(own.home),
        )


def as_planned(plan: Plan) -> Coarse:
    """The plan's own mesh."""
    return _merged(plan.mesh, [True] * len(plan.mesh.sizes))


def coarsest(plan: Plan) -> Coarse:
    """The mesh of the fewest axes that says the same.

    >>> import eindecomp as ed
    >>> graph = ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z")
    >>> coarsest(ed.plan(graph, 8)).mesh.sizes
    (8,)
    """
    return _merged(plan.mesh, _boundaries(plan))


def of_shape(plan: Plan, sizes: Sequence[int]) -> Coarse:
    """The mesh of a given shape, refused where the plan keeps axes apart that would be one."""
    wanted = [size for size in sizes if size > 1]
    ends = {prod(wanted[:k]) for k in range(len(wanted))}
    sizes_before = [prod(plan.mesh.sizes[:axis]) for axis in range(len(plan.mesh.sizes))]
    starts = [before in ends for before in sizes_before]
    merged = _merged(plan.mesh, starts)
    if list(merged.mesh.sizes) != wanted:
        raise PlanError(f"the plan is for a mesh of {_words(plan.mesh)}, not of {tuple(sizes)}")
    for axis, (begins_here, apart) in enumerate(zip(starts, _boundaries(plan), strict=True)):
        if apart and not begins_here:
            one, other = plan.mesh.names[axis - 1 : axis + 1]
            raise PlanError(
                f"the plan is for a mesh of {_words(plan.mesh)} and cuts by {one} and {other} "
                f"separately: a mesh of {tuple(sizes)} has them as one"
            )
    return merged


def _words(mesh: Mesh) -> str:
    axes = ", ".join(f"{name}: {size}" for name, size in zip(mesh.names, mesh.sizes, strict=True))
    return f"({axes})"


def _merged(mesh: Mesh, starts: Sequence[bool]) -> Coarse:
    """The mesh whose axes start at some of the given one's."""
    group = tuple(count - 1 for count in accumulate(map(int, starts)))
    parts = [[a for a, own in enumerate(group) if own == k] for k in range(sum(starts))]
    names = tuple("_".join(mesh.names[a] for a in part) for part in parts)
    sizes = tuple(prod(mesh.sizes[a] for a in part) for part in parts)
    return Coarse(Mesh(names, sizes, mesh.pieces), group)


def _boundaries(plan: Plan) -> list[bool]:
    """Whether the plan keeps each axis apart from the one before it."""
    spans = {span for cut in _cuts(plan) for span in cut if span.axes}
    summed = {own.summed for own in vertex_cuts(plan).values()}
    return [
        axis == 0
        or any(_parts(plan.mesh, span, axis - 1, axis) for span in spans)
        or any((axis - 1 in own) != (axis in own) for own in summed)
        for axis in range(len(plan.mesh.sizes))
    ]


def _cuts(plan: Plan) -> Iterator[Cut]:
    for cuts in layouts_of(plan).values():
        yield from cuts
    for own in vertex_cuts(plan).values():
        yield own.made
        yield own.home
        for source, cut in zip(plan.graph[own.vertex].inputs, own.reads, strict=True):
            if cut is not None:
                yield widened(cut, plan.graph[source].shape)


def _parts(mesh: Mesh, span: Span, one: int, other: int) -> bool:
    """Whether a dimension is not cut by two axes as if they were one."""
    if one not in span.axes and other not in span.axes:
        return False
    place = span.axes.index(one) if one in span.axes else -1
    if place < 0 or span.axes[place : place + 2] != (one, other):
        return True
    # Chunks of chunks are not the chunks that both axes make at once.
    return mesh.pieces == CEIL and span.units % pieces_by(mesh, span.axes) != 0
