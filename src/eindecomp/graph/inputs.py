"""Taking what a graph is to be computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eindecomp.errors import InputError, suggest
from eindecomp.graph.arrays import to_array, to_scalar

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex


def check_inputs(
    graph: Graph, inputs: Mapping[str, object], read: Callable[[Any, Vertex], Any] = to_array
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the arrays and scalars that were given, refusing what does not fit the graph.

    `read` takes what was given for an input; engines leave what is stored elsewhere there.
    """
    if not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"inputs go by name, as a dict; got {type(inputs).__name__}")
    known = {vertex.name: vertex for vertex in graph.inputs}
    for name in inputs:
        if name not in known and name not in graph.scalars:
            expected = [*known, *graph.scalars]
            raise InputError(f"{name!r} is no input of the graph{suggest(str(name), expected)}")
    missing = [name for name in (*known, *graph.scalars) if name not in inputs]
    if missing:
        raise InputError(f"missing inputs: {', '.join(missing)}")
    arrays = {name: read(inputs[name], vertex) for name, vertex in known.items()}
    scalars = {name: to_scalar(inputs[name], name, t) for name, t in graph.scalars.items()}
    return arrays, scalars
