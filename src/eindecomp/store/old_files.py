"""Plan files of the first version, rewritten as those of the second.

Their axes nest in mesh order, but for what a reduce-scatter cuts further; their proofs are of such
plans only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.store.field import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.layout.mesh import Mesh


def upgraded(root: Field, graph: Graph, mesh: Mesh) -> Field:
    """A file of the first version as one of the second, without homes of sharded inputs."""
    axes = mesh.names
    given = {
        name: {"home": _cut(axes, own), "further": None} for name, own in root["given"].members()
    }
    pin = _in_mesh_order(axes, root["pin"]) if "pin" in root else _pins(graph, given)
    vertices = {name: _vertex(axes, own) for name, own in root["vertices"].members()}
    changed = {"vertices": vertices, "given": given, "pin": pin}
    added: dict[str, Any] = {
        "pieces": "balanced", "tie": {}, "nesting": "mesh", "work": None, "orders": None,
    }  # fmt: skip
    return Field({**root.value, **changed, **added})


def _pins(graph: Graph, given: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """The pins of a file that has none: the layouts of inputs."""
    return {
        name: {
            label: span["axes"]
            for label, span in zip(graph[name].labels, own["home"], strict=False)
        }
        for name, own in given.items()
        if name in graph
    }


def _in_mesh_order(axes: Sequence[str], field: Field) -> dict[str, Any]:
    """Pins in which the order of axes meant nothing."""
    return {
        name: {
            label: _in_order(axes, own) if isinstance(own.value, list) else own.value
            for label, own in wanted.members()
        }
        for name, wanted in field.members()
    }


def _in_order(axes: Sequence[str], field: Field) -> list[str]:
    """Axes in mesh order; those that the mesh does not have come last."""
    names = [axis.text() for axis in field.items()]
    return sorted(names, key=lambda name: axes.index(name) if name in axes else len(axes))


def _vertex(axes: Sequence[str], field: Field) -> dict[str, Any]:
    field.check_names(("assignment", "summed", "further"))
    scattered: dict[str, list[str]] = {}
    summed = field["summed"]
    for axis, label in summed.members():
        if label.value is not None:
            scattered.setdefault(label.text(), []).append(axis)
    fields = {label: Field(own, summed.place) for label, own in scattered.items()}
    assignment = field["assignment"].members()
    further = field["further"]
    return {
        "assignment": {label: _in_order(axes, own) for label, own in assignment},
        "scattered": {label: _in_order(axes, own) for label, own in fields.items()},
        "further": None if further.value is None else _cut(axes, further),
    }


def _cut(axes: Sequence[str], field: Field) -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = []
    for span in field.items():
        span.check_names(("axes", "inner", "start", "stop", "scale"))
        nested = _in_order(axes, span["axes"]) + _in_order(axes, span["inner"])
        kept = {name: span[name].value for name in ("start", "stop", "scale")}
        spans.append({"axes": nested, **kept})
    return spans
