"""Checking the inputs that a graph is computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eindecomp.errors import InputError, suggest
from eindecomp.graph.arrays import to_array, to_scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex


def to_arrays(given: Sequence[Any], vertices: Sequence[Vertex]) -> Sequence[Any]:
    """What was given for inputs, as arrays that fit them."""
    return [to_array(each, vertex) for each, vertex in zip(given, vertices, strict=True)]


def check_inputs(
    graph: Graph,
    inputs: Mapping[str, object],
    read: Callable[[Sequence[Any], Sequence[Vertex]], Sequence[Any]] = to_arrays,
    known: Mapping[str, Vertex] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the arrays and scalars that were given, refusing what does not fit the graph.

    `read` takes what was given for all inputs; engines leave what is stored elsewhere there.
    `known` are the graph's inputs by name, for callers that look them up once for many runs.
    """
    if not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"inputs must be given by name, as a dict; got {type(inputs).__name__}")
    if known is None:
        known = {vertex.name: vertex for vertex in graph.inputs}
    types = graph.scalars
    expected = {**known, **types} if types else known
    if inputs.keys() != expected.keys():
        _refuse_names(inputs, [*expected])
    given = [inputs[name] for name in known]
    arrays = dict(zip(known, read(given, [*known.values()]), strict=True))
    scalars = {name: to_scalar(inputs[name], name, t) for name, t in types.items()} if types else {}
    return arrays, scalars


def _refuse_names(inputs: Mapping[str, object], expected: list[str]) -> None:
    for name in inputs:
        if name not in expected:
            raise InputError(f"{name!r} is not an input of the graph{suggest(str(name), expected)}")
    missing = ", ".join(name for name in expected if name not in inputs)
    raise InputError(f"missing inputs: {missing}")
