"""Windows inside the vertices that read through them, and apart from them.

A graph is written with windows inside: `Z[b,w] <- sum X[b, 2*w + r] * K[r]` is one vertex, which
never stores what lies between. Rewrites and gradients take them apart first, so that everything but
a `Window` reads all of a tensor, and put them back at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Window
from eindecomp.graph.vertex import reading_through

P = ParamSpec("P")


def _leaves_out(window: Window) -> bool:
    """Whether it reads only every so many elements: those alone should move, not all between."""
    return any(len(i.terms) == 1 and abs(i.terms[0][1]) > i.divisor for i in window.index)


def apart(graph: Graph) -> Graph:
    """The same with every window as a vertex of its own.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> print(apart(parse("input X[i: 4]\\nZ[i: 3] <- X[i] + X[i + 1]\\noutput Z")))
    input X[i: 4]
    Z_1[i] <- X[i in 0:3]
    Z_1_1[i] <- X[i in 1:4]
    Z[i] <- Z_1[i] + Z_1_1[i]
    output Z
    """
    if not any(vertex.windows for vertex in graph.vertices.values()):
        return graph
    made = Graph.of((), (), graph.scalars, avoid=graph.vertices)
    for vertex in graph.vertices.values():
        inputs = list(vertex.inputs)
        for k, window in enumerate(vertex.windows):
            if window is not None:
                name = made.fresh(f"{vertex.name}_1")
                inputs[k] = made.add(window, [inputs[k]], name).name
        made.append(replace(vertex, inputs=tuple(inputs), windows=()))
    made.end((vertex.name for vertex in graph.outputs), graph.ties)
    return made


def together(graph: Graph, kept: Collection[str] = ()) -> Graph:
    """The same with windows inside the EinSums that read through them, but for those `kept`."""
    outputs = {vertex.name for vertex in graph.outputs}
    windows = {
        name: vertex
        for name, vertex in graph.vertices.items()
        if isinstance(vertex.op, Window)
        and name not in outputs
        and name not in kept
        and not _leaves_out(vertex.op)
    }
    if not windows:
        return graph
    vertices = {name: reading_through(v, windows) for name, v in graph.vertices.items()}
    read = {source for vertex in vertices.values() for source in vertex.inputs}
    left = (vertex for name, vertex in vertices.items() if name not in windows or name in read)
    scalars = graph.scalars
    return Graph.of(left, [v.name for v in graph.outputs], scalars, ties=graph.ties)


def with_windows_apart(
    run: Callable[Concatenate[Graph, P], Graph],
) -> Callable[Concatenate[Graph, P], Graph]:
    """A pass that takes windows apart before it runs, and puts them back."""

    @wraps(run)
    def wrapped(graph: Graph, /, *args: P.args, **options: P.kwargs) -> Graph:
        split = apart(graph)
        if split is graph:
            return run(graph, *args, **options)
        kept = {name for name, own in graph.vertices.items() if isinstance(own.op, Window)}
        return together(run(split, *args, **options), kept)

    return wrapped
