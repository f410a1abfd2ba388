"""Plans as JSON for other frameworks, none of which has to be installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from eindecomp.frontends.input_names import qualified
from eindecomp.frontends.placements import partition_spec, placed_plan
from eindecomp.frontends.plan_cuts import as_planned, coarsest, layouts_of
from eindecomp.frontends.tensor_parallel import tp_plan

if TYPE_CHECKING:
    from eindecomp.frontends.placements import PlacedPlan, Places
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.plan import Plan

Target = Literal["dtensor", "jax", "tp-plan"]


def exported(plan: Plan, to: Target, *, fewest: bool = False) -> dict[str, Any]:
    """A plan as JSON values for a framework.

    With `fewest`, DTensor's placements are those on the mesh of the fewest dimensions.
    """
    match to:
        case "dtensor":
            return _dtensor(placed_plan(plan, coarsest(plan) if fewest else as_planned(plan)))
        case "jax":
            return _jax(plan)
        case "tp-plan":
            return tp_plan(plan)


def _dims(mesh: Mesh) -> dict[str, int]:
    return dict(zip(mesh.names, mesh.sizes, strict=True))


def _dtensor(found: PlacedPlan) -> dict[str, Any]:
    weights = {each.name: qualified(each.name) for each in found.plan.graph.inputs}
    layouts = {weights.get(name, name): lies for name, lies in found.layouts.items()}
    return {
        "mesh": _dims(found.mesh),
        "placements": {name: _words(lies[0]) for name, lies in layouts.items()},
        "copies": {
            name: [_words(own) for own in lies[1:]]
            for name, lies in layouts.items()
            if len(lies) > 1
        },
    }


def _words(places: Places) -> list[str]:
    return [str(own) for own in places]


def _jax(plan: Plan) -> dict[str, Any]:
    specs = {
        name: [partition_spec(plan.mesh, cut, plan.graph[name].shape, name) for cut in cuts]
        for name, cuts in layouts_of(plan).items()
    }
    return {
        "mesh": _dims(plan.mesh),
        "shardings": {name: found[0] for name, found in specs.items()},
        "copies": {name: found[1:] for name, found in specs.items() if len(found) > 1},
    }
