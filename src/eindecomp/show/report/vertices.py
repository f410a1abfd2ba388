"""What a report tells of each vertex: what it computes, its cut, what it fetches and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.graph.write import write_vertex
from eindecomp.layout.view import view_of
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.space.choices import decided_choices
from eindecomp.show.alternatives import held_cuts
from eindecomp.show.words import cuts, layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Cut
    from eindecomp.planner.costs.cost import Cost
    from eindecomp.planner.plan import Plan
    from eindecomp.show.report.shared import Shared


def vertex_content(
    plan: Plan, name: str, number: Mapping[str, int], shared: Shared, seconds: Cost | None
) -> dict[str, Any]:
    """One vertex. Bytes are those of `plan.traffic`: together they are its total."""
    vertex, traffic = plan.graph[name], plan.traffic
    fetches = _fetches(plan, vertex, number, shared) if name in plan.decisions else []
    fetched = sum(fetch[1] for fetch in fetches)
    reduced = traffic.aggregate.get(name, 0)
    shown: dict[str, Any] = {
        "name": name,
        "text": write_vertex(vertex),
        "labels": shared.word(",".join(vertex.labels)),
        "shape": vertex.shape,
        "dtype": str(vertex.dtype),
        "cut": cuts(plan.parts[name]) if name in plan.parts else None,
        "grids": shared.grids_of(plan, name),
        "inputs": fetches,
        "reduced": reduced,
        "kept": traffic.of(name) - fetched - reduced - traffic.compute.get(name, 0),
        "cost": _parts(plan.costs, name),
    }
    if seconds is not None and name in plan.decisions:
        shown["seconds"] = seconds.of(name)
    return shown


def _parts(costs: Cost, name: str) -> list[int | float] | None:
    """Join, aggregate, repartition and compute; None for what costs nothing by its nature."""
    if name not in costs.join:
        return None
    parts = (costs.join, costs.aggregate, costs.repartition, costs.compute)
    return [part.get(name, 0) for part in parts]


def _fetches(
    plan: Plan, vertex: Vertex, number: Mapping[str, int], shared: Shared
) -> list[list[int]]:
    """For each input: the tensor, its bytes that move, from which layout and to which, by number.

    A layout that there is not, as that of an input whose elements are never read, is -1.
    """
    view = view_of(plan.graph, vertex)
    reads = decided_choices(view, plan.mesh, plan.decisions[vertex.name]).reads
    found: list[list[int]] = []
    for k, (source, read) in enumerate(zip(vertex.inputs, reads, strict=True)):
        tensor, held = plan.graph[source], held_cuts(plan, source)
        start = end = -1
        if read is not None:
            end = shared.word(_lies(plan, tensor, read.cuts[0]))
        if read is not None and held:
            start = shared.word(_lies(plan, tensor, _nearest(plan, held, read.cuts[0])))
        moved = int(plan.traffic.edges.get((source, vertex.name, k), 0))
        found.append([number[source], moved, start, end])
    return found


def _nearest(plan: Plan, held: tuple[Cut, ...], need: Cut) -> Cut:
    """The layout of a tensor from which least moves to where it is needed."""
    if len(held) == 1:
        return held[0]
    return held[int(PriceInBytes(plan.mesh).fetch(held, [need], 1)[:, 0].argmin())]


def _lies(plan: Plan, tensor: Vertex, cut: Cut) -> str:
    return layout(plan.mesh, tensor.labels, tensor.shape, cut)
