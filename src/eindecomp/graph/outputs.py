"""Checking that a graph has outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import GraphError
from eindecomp.graph.ops import Input

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph

_NAMED = 5  # tensors that one message names


def check_outputs(graph: Graph) -> None:
    """Raise `GraphError` for a graph that declares no output: nothing would be computed."""
    if graph.outputs:
        return
    read = {name for vertex in graph.vertices.values() for name in vertex.inputs}
    made = [v.name for v in graph.vertices.values() if not isinstance(v.op, Input)]
    last = [name for name in made if name not in read] or list(graph.vertices)
    if not last:
        raise GraphError("the graph is empty: it has no output")
    names = ", ".join(last[:_NAMED]) + (", …" if len(last) > _NAMED else "")
    raise GraphError(
        f"the graph declares no output, so there is nothing to compute: write `output {last[-1]}` "
        f"in its text or call graph.output({last[-1]!r}); nothing reads {names}"
    )
