"""`PlacedPlan`: DTensor's placements of every tensor that a plan names, without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.frontends.coarse import as_planned
from eindecomp.frontends.layouts import layouts_of, vertex_cuts, widened
from eindecomp.frontends.names import qualified
from eindecomp.frontends.placements import REDUCE_OPS, Pending, placed
from eindecomp.graph.ops import ScatterAdd
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.frontends.coarse import Coarse
    from eindecomp.frontends.placements import Places
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Axes, Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.plan import Plan


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
