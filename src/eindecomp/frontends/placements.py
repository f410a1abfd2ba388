"""Cuts as DTensor's placements and JAX's partition specs, and whole plans as JSON of these.

DTensor cuts a tensor along the dimensions of the mesh in their order, each cutting what those
before have left into chunks of ⌈n/m⌉. Where the axes of a dimension nest in another order, an axis
that comes first but lies inside others is *strided*: it cuts each of the chunks which those others
will make, `split_factor` of them, and takes its part of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from eindecomp.errors import PlanError
from eindecomp.frontends.input_names import qualified
from eindecomp.frontends.plan_cuts import as_planned, coarsest, has_window, layouts_of
from eindecomp.frontends.tensor_parallel import tp_plan
from eindecomp.layout.cut import is_plain, pieces_by
from eindecomp.layout.pieces import CEIL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.layout.cut import Cut, Span
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.plan import Plan


@dataclass(frozen=True, slots=True)
class Sharded:
    """Devices along a mesh dimension have chunks of a dimension of the tensor."""

    dim: int
    split_factor: int = 1

    def __str__(self) -> str:
        if self.split_factor == 1:
            return f"Shard({self.dim})"
        return f"_StridedShard({self.dim}, split_factor={self.split_factor})"


Places = tuple[Sharded | None, ...]
"""For each dimension of the mesh what it does with a tensor; None where it replicates it."""


def placed(mesh: Mesh, cut: Cut, shape: Sequence[int], tensor: str) -> Places:
    """The placements that give every device the block that a cut gives it.

    >>> from eindecomp.layout.cut import Span
    >>> from eindecomp.layout.mesh import Mesh
    >>> mesh = Mesh.of_axes({"x": 2, "y": 4})
    >>> [str(each) for each in placed(mesh, (Span((1, 0), 8, 1, 0, 8),), (8,), "X")]
    ['_StridedShard(0, split_factor=4)', 'Shard(0)']
    """
    _check_plain(cut, shape, tensor)
    found: list[Sharded | None] = [None for _ in mesh.sizes]
    for dim, span in enumerate(cut):
        for k, axis in enumerate(span.axes):
            outer_but_later = [a for a in span.axes[:k] if a > axis]
            found[axis] = Sharded(dim, pieces_by(mesh, tuple(outer_but_later)))
        if span.units % pieces_by(mesh, span.axes):
            _check_chunks(mesh, span, dim, tensor)
    return tuple(found)


def _check_plain(cut: Cut, shape: Sequence[int], tensor: str) -> None:
    """Refuse a layout of which no framework can speak."""
    if not is_plain(cut):
        raise PlanError(
            f"{tensor} lies along its diagonal: a mesh axis cuts two of its dimensions, which no "
            "placement can say"
        )
    if has_window(cut, shape):
        raise PlanError(f"devices hold a part of {tensor} only, which no placement can say")


def _check_chunks(mesh: Mesh, span: Span, dim: int, tensor: str) -> None:
    """Refuse an uneven dimension that DTensor may cut at other places than the plan."""
    size, parts = span.stop, pieces_by(mesh, span.axes)
    where = f"dimension {dim} of {tensor}, {size} elements in {parts} parts"
    if mesh.pieces != CEIL:
        raise PlanError(
            f"DTensor cuts {where}, into chunks of {-(-size // parts)}, the plan into pieces that "
            "differ by at most one: plan with pieces='ceil', or pieces='even'"
        )
    if list(span.axes) != sorted(span.axes) or span.scale > 1:
        why = "blocks of several elements" if span.scale > 1 else "axes that are not in mesh order"
        raise PlanError(
            f"no placement cuts {where}, where the plan does: they are uneven, by {why}; plan with "
            "pieces='even', or on a mesh of one axis: mesh={'x': n}"
        )


Spec = tuple[tuple[str, ...] | None, ...]


def partition_spec(mesh: Mesh, cut: Cut, shape: Sequence[int], tensor: str) -> Spec:
    """For each dimension of a tensor the axes that cut it, outermost first; None for none.

    >>> from eindecomp.layout.cut import Span
    >>> from eindecomp.layout.mesh import Mesh
    >>> mesh = Mesh.of_axes({"x": 2, "y": 4})
    >>> partition_spec(mesh, (Span((1, 0), 8, 1, 0, 8), Span((), 3, 1, 0, 3)), (8, 3), "X")
    (('y', 'x'), None)
    """
    _check_plain(cut, shape, tensor)
    for dim, span in enumerate(cut):
        parts = pieces_by(mesh, span.axes)
        if span.units % parts:
            blocks = f" in blocks of {span.scale}" if span.scale > 1 else ""
            raise PlanError(
                f"JAX cuts into equal parts only, and dimension {dim} of {tensor} has "
                f"{span.stop} elements{blocks}, which {parts} does not divide: plan with "
                "pieces='even'"
            )
    return tuple(tuple(mesh.names[a] for a in span.axes) or None for span in cut)


Target = Literal["dtensor", "jax", "tp-plan"]


def exported(plan: Plan, to: Target, *, fewest: bool = False) -> dict[str, Any]:
    """A plan as JSON values for a framework, which need not be installed.

    With `fewest`, DTensor's placements are those on the mesh of the fewest dimensions.
    """
    if to == "tp-plan":
        return tp_plan(plan)
    on = coarsest(plan) if fewest and to == "dtensor" else as_planned(plan)
    weights = {each.name: qualified(each.name) for each in plan.graph.inputs}
    words: dict[str, list[Any]] = {}
    for name, cuts in layouts_of(plan).items():
        shape = plan.graph[name].shape
        if to == "jax":
            words[name] = [partition_spec(on.mesh, cut, shape, name) for cut in cuts]
        else:
            places = [placed(on.mesh, on.cut(cut), shape, name) for cut in cuts]
            words[weights.get(name, name)] = [
                [str(each or "Replicate()") for each in own] for own in places
            ]
    return {
        "mesh": dict(zip(on.mesh.names, on.mesh.sizes, strict=True)),
        "shardings" if to == "jax" else "placements": {name: w[0] for name, w in words.items()},
        "copies": {name: own[1:] for name, own in words.items() if len(own) > 1},
    }
