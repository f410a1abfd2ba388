"""The placement file of PyTorch AutoParallel: how each node wants its operands and what it makes.

Between a node and its readers AutoParallel moves tensors as the placements demand, so that the file
says nothing of where results are kept: a partial result is reduced by whoever reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.errors import PlanError
from eindecomp.graph.ops import Fill, Input

if TYPE_CHECKING:
    from eindecomp.frontends.placed_plan import PlacedPlan
    from eindecomp.frontends.placements import Places

VERSION = 1


def autoparallel_file(found: PlacedPlan) -> dict[str, Any]:
    """The file as JSON values, for nodes that have the names of the graph's vertices."""
    mesh = found.mesh
    placements: dict[str, Any] = {}
    for name, vertex in found.plan.graph.vertices.items():
        match vertex.op:
            case Input():
                home = _short(found.layouts[name][0])
                placements[name] = {"output": home, "inputs": [home]}
            case Fill():
                whole = "R" * len(mesh.sizes)
                placements[name] = {"output": whole, "inputs": []}
            case _ if name not in found.made:
                raise PlanError(
                    f"{name} leaves partial results of an aggregation that DTensor does not know: "
                    f"{vertex}"
                )
            case _:
                read = [own for own in found.operands[name] if own is not None]
                placements[name] = {
                    "output": _short(found.made[name]),
                    "inputs": [_short(own) for own in read],
                }
    return {
        "version": VERSION,
        "mesh_shape": list(mesh.sizes),
        "mesh_dim_names": list(mesh.names),
        "placements": placements,
    }


def _short(places: Places) -> str:
    return "".join(own.short for own in places)
