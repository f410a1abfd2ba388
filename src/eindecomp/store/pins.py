"""The pins of a plan file, and the check that its layouts agree with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.graph.ops import Input
from eindecomp.planner.space.pin import agrees, pinned_cuts
from eindecomp.store.decisions import axis_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.planner.space.cut import Cut
    from eindecomp.planner.space.decision import Decision
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.pin import Pins
    from eindecomp.store.field import Field


def read_pin(graph: Graph, mesh: Mesh, field: Field) -> Pins:
    """Pieces or axes for labels of tensors."""
    pins: Pins = {}
    for name, wanted in field.members():
        if name not in graph:
            raise wanted.wrong("the graph has no such tensor")
        pins[name] = {}
        for label, own in wanted.members():
            if label not in graph[name].labels:
                raise own.wrong(f"{graph[name]} has no such label")
            pins[name][label] = _pieces_or_axes(mesh, own)
    return pins


def _pieces_or_axes(mesh: Mesh, field: Field) -> int | tuple[str, ...]:
    if not isinstance(field.value, list):
        return field.whole(1)
    axes = [axis_number(mesh, axis) for axis in field.items()]
    if len(set(axes)) < len(axes):
        raise field.wrong("an axis appears twice")
    return tuple(mesh.names[a] for a in axes)


def pin_of_given(graph: Graph, mesh: Mesh, given: Mapping[str, Cut]) -> Pins:
    """The pins of a file that has none: the layouts of inputs."""
    return {
        name: {
            label: tuple(axis for a, axis in enumerate(mesh.names) if span.axes >> a & 1)
            for label, span in zip(graph[name].labels, cut, strict=True)
        }
        for name, cut in given.items()
    }


def check_pin(
    graph: Graph,
    mesh: Mesh,
    pin: Pins,
    objective: str,
    decisions: Mapping[str, Decision],
    given: Mapping[str, Cut],
) -> None:
    """Check that tensors lie where they are pinned, and that only pinned inputs have a layout."""
    if pin and objective == "bound":
        raise PlanError("pin: objective 'bound' has no layouts")
    for name, cuts in pinned_cuts(graph, mesh, pin).items():
        is_input = isinstance(graph[name].op, Input)
        if is_input and name not in given:
            raise PlanError(f"given.{name}: is missing, but the input is pinned")
        cut = given[name] if is_input else decisions[name].home
        if not agrees(mesh, cut, cuts):
            place = "given" if is_input else "vertices"
            raise PlanError(
                f"{place}.{name}: {graph[name]} does not lie where it is pinned, {pin[name]}"
            )
    for name in given:
        if name not in pin:
            raise PlanError(f"given.{name}: has a layout, but pin does not name it")
