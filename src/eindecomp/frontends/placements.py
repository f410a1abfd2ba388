"""Cuts as DTensor's placements, one for each dimension of a device mesh.

DTensor cuts a tensor along the dimensions of the mesh in their order, each cutting what those
before have left into chunks of ⌈n/m⌉. Where the axes of a dimension nest in another order, an axis
that comes first but lies inside others is *strided*: it cuts each of the chunks which those others
will make, `split_factor` of them, and takes its part of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.frontends.input_names import qualified
from eindecomp.frontends.plan_cuts import as_planned, has_window, layouts_of, vertex_cuts, widened
from eindecomp.graph.ops import ScatterAdd
from eindecomp.lang.einsum import EinSum
from eindecomp.layout.cut import is_plain, pieces_by
from eindecomp.layout.mesh import CEIL, piece_ends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from eindecomp.frontends.plan_cuts import Coarse
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Axes, Cut, Span
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.plan import Plan

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sharded:
    """Devices along this mesh dimension have chunks of a dimension of the tensor."""

    dim: int
    split_factor: int = 1

    def __str__(self) -> str:
        if self.split_factor == 1:
            return f"Shard({self.dim})"
        return f"_StridedShard({self.dim}, split_factor={self.split_factor})"


@dataclass(frozen=True, slots=True)
class Replicated:
    """Devices along this mesh dimension have the same block."""

    def __str__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True, slots=True)
class Pending:
    """Devices along this mesh dimension have partial results that wait to be reduced."""

    reduce_op: str = "sum"

    def __str__(self) -> str:
        return f"Partial({self.reduce_op!r})"


Placed = Sharded | Replicated | Pending
"""What one dimension of the mesh does with a tensor."""
Places = tuple[Placed, ...]
REDUCE_OPS = {"sum": "sum", "prod": "product", "max": "max", "min": "min"}
"""DTensor's words for aggregations; others it cannot leave pending."""


def placed(mesh: Mesh, cut: Cut, shape: Sequence[int], tensor: str) -> Places:
    """The placements that give every device the block that a cut gives it.

    >>> from eindecomp.layout.cut import Span
    >>> from eindecomp.layout.mesh import Mesh
    >>> mesh = Mesh.of_axes({"x": 2, "y": 4})
    >>> [str(each) for each in placed(mesh, (Span((1, 0), 8, 1, 0, 8),), (8,), "X")]
    ['_StridedShard(0, split_factor=4)', 'Shard(0)']
    """
    check_plain(cut, shape, tensor)
    found: list[Placed] = [Replicated() for _ in mesh.sizes]
    for dim, span in enumerate(cut):
        for k, axis in enumerate(span.axes):
            outer_but_later = [a for a in span.axes[:k] if a > axis]
            found[axis] = Sharded(dim, pieces_by(mesh, tuple(outer_but_later)))
        if span.units % pieces_by(mesh, span.axes):
            _check_chunks(mesh, span, dim, tensor)
    return tuple(found)


def check_plain(cut: Cut, shape: Sequence[int], tensor: str) -> None:
    """Refuse a layout of which no framework can speak."""
    if not is_plain(cut):
        raise PlanError(
            f"{tensor} lies along its diagonal: a mesh axis cuts two of its dimensions, which no "
            "placement can say"
        )
    if has_window(cut, shape):
        raise PlanError(f"devices hold a part of {tensor} only, which no placement can say")


def _check_chunks(mesh: Mesh, span: Span, dim: int, tensor: str) -> None:
    """Refuse a dimension that DTensor would cut at other places than the plan."""
    size, parts = span.stop, pieces_by(mesh, span.axes)
    where = f"dimension {dim} of {tensor}, {size} elements in {parts} parts"
    if mesh.pieces != CEIL:
        raise PlanError(
            f"DTensor cuts {where}, into chunks of {-(-size // parts)}, the plan into pieces that "
            "differ by at most one: plan with pieces='ceil', or pieces='even'"
        )
    in_mesh_order = list(span.axes) == sorted(span.axes)
    if in_mesh_order and span.scale == 1:
        return  # the rule of `ceil` is DTensor's
    if any(not np.array_equal(ours, theirs) for ours, theirs in _pieces(mesh, span)):
        why = "blocks of several elements" if span.scale > 1 else "axes that are not in mesh order"
        raise PlanError(
            f"no placement cuts {where}, where the plan does: they are uneven, by {why}; plan with "
            "pieces='even', or on a mesh of one axis: mesh={'x': n}"
        )


def _pieces(mesh: Mesh, span: Span) -> list[tuple[Ints, Ints]]:
    """The indices of a dimension that each device has: in the plan, and in DTensor."""
    found: list[tuple[Ints, Ints]] = []
    sizes = [mesh.sizes[axis] for axis in span.axes]
    for index, digits in enumerate(product(*map(range, sizes))):
        low, high = piece_ends(mesh.pieces, span.units, sizes, index)
        ours = np.arange(low * span.scale, high * span.scale)
        theirs = np.arange(span.stop)
        for axis, digit in sorted(zip(span.axes, digits, strict=True)):
            outer = [a for a in span.axes[: span.axes.index(axis)] if a > axis]
            factor = prod(mesh.sizes[a] for a in outer)
            chunks = (_chunk(part, mesh.sizes[axis])[digit] for part in _chunk(theirs, factor))
            theirs = np.concatenate(list(chunks))
        found.append((ours, theirs))
    return found


def _chunk(indices: Ints, count: int) -> list[Ints]:
    """As `torch.chunk`, with empty chunks where indices run out."""
    step = max(-(-len(indices) // count), 1)
    return [indices[k * step : (k + 1) * step] for k in range(count)]


@dataclass(frozen=True, slots=True)
class PlacedPlan:
    """Where tensors lie, and how vertices read their operands and make their results."""

    plan: Plan
    mesh: Mesh
    """The plan's mesh, or one that has several of its axes as one."""
    layouts: Mapping[str, tuple[Places, ...]]
    """Of every input and result: where it lies, then the layouts it is copied to."""
    operands: Mapping[str, tuple[Places | None, ...]]
    """How each vertex wants its operands, None for one whose elements are never read."""
    made: Mapping[str, Places]
    """The result of each vertex as it is computed, before partial results are reduced.

    Those of an aggregation that DTensor does not know are not there.
    """

    @property
    def weights(self) -> dict[str, Places]:
        """Where inputs lie, by the names that the framework has for them."""
        return {qualified(each.name): self.layouts[each.name][0] for each in self.plan.graph.inputs}


def placed_plan(plan: Plan, on: Coarse | None = None) -> PlacedPlan:
    """The placements of a plan; one that DTensor cannot express is refused with the reason."""
    graph = plan.graph
    on = as_planned(plan) if on is None else on

    def places(name: str, cut: Cut) -> Places:
        return placed(on.mesh, on.cut(cut), graph[name].shape, name)

    layouts = {
        name: tuple(places(name, cut) for cut in cuts) for name, cuts in layouts_of(plan).items()
    }
    operands: dict[str, tuple[Places | None, ...]] = {}
    made: dict[str, Places] = {}
    for name, cuts in vertex_cuts(plan).items():
        pairs = zip(graph[name].inputs, cuts.reads, strict=True)
        operands[name] = tuple(
            None if cut is None else places(source, widened(cut, graph[source].shape))
            for source, cut in pairs
        )
        reduce_op = reduce_op_of(graph[name]) if cuts.summed else ""
        if reduce_op is not None:
            made[name] = as_made(places(name, cuts.made), on.axes(cuts.summed), reduce_op)
    return PlacedPlan(plan, on.mesh, layouts, operands, made)


def as_made(tile: Places, summed: Axes, reduce_op: str) -> Places:
    """The placements of a tile, with partial results along the axes that are summed."""
    return tuple(Pending(reduce_op) if axis in summed else own for axis, own in enumerate(tile))


def reduce_op_of(vertex: Vertex) -> str | None:
    """DTensor's word for the aggregation of a vertex, None where it has none."""
    match vertex.op:
        case EinSum(agg=agg) if agg is not None and agg.finish is None and agg.width == 1:
            return REDUCE_OPS.get(agg.name)
        case ScatterAdd():
            return "sum"
        case _:
            return None


Spec = tuple[tuple[str, ...] | None, ...]


def partition_spec(mesh: Mesh, cut: Cut, shape: Sequence[int], tensor: str) -> Spec:
    """For each dimension of a tensor the axes that cut it, outermost first; None for none.

    >>> from eindecomp.layout.cut import Span
    >>> from eindecomp.layout.mesh import Mesh
    >>> mesh = Mesh.of_axes({"x": 2, "y": 4})
    >>> partition_spec(mesh, (Span((1, 0), 8, 1, 0, 8), Span((), 3, 1, 0, 3)), (8, 3), "X")
    (('y', 'x'), None)
    """
    check_plain(cut, shape, tensor)
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
