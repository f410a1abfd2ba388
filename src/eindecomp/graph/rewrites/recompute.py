"""Tensors that are computed again where the backward pass reads them, instead of being kept.

The forward pass of a training step is what its outputs need but for the tied ones, the next state.
Whatever else reads a result that is not kept reads a second one, which is made just before it, of
what is kept and of other second ones.

Results through which all that follows depends on the data divide the forward pass into parts, such
as the attention of a layer. The first so many of them may be computed again, or all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

from eindecomp.errors import PlanError, quote, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.rewrites.rebuild import rebuilt
from eindecomp.graph.vertex import Vertex

LAYERS = "layers"
AUTO = "auto"
Recompute = str | int | tuple[str, ...] | None
NAMES: dict[str, Recompute] = {LAYERS: LAYERS, AUTO: AUTO, "full": LAYERS, "selective": None}
"""What can be asked for by name, also by Megatron's: scores of attention are kept in no case."""


def recompute_form(given: Any) -> Recompute:
    """What was given: one of the kinds, names of tensors, or that the kind is a choice."""
    if isinstance(given, str) and given in NAMES:
        return NAMES[given]
    if given is None:
        return None
    if isinstance(given, Integral) and given is not True and int(given) > 0:
        return int(given)
    names: tuple[Any, ...] = (None,)
    if type(given) in (list, tuple):
        names = tuple(given)  # pyright: ignore[reportArgumentType]
    if not all(isinstance(name, str) for name in names):
        known = ", ".join(map(repr, NAMES))
        forms = "a number of parts, a list of tensors or None"
        raise PlanError(f"recompute is {known}, {forms}, not {quote(str(given))}")
    return tuple(dict.fromkeys(names)) or None


def parts_of(graph: Graph, tie: Mapping[str, str]) -> int:
    """How many parts the forward pass has."""
    return len(_passages(graph, _forward(graph, tie), tie)) + 1


def recomputed(graph: Graph, which: Recompute, tie: Mapping[str, str]) -> Graph:
    """The graph in which the backward pass computes some results of the forward pass again.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "input W[i: 3]\\nE[i] <- exp(W[i])\\nL[] <- sum E[i]\\nV[i] <- W[i] - E[i]"
    >>> print(recomputed(parse(text + "\\noutput L, V\\ntie W <- V"), ("E",), {"W": "V"}))
    input W[i: 3]
    E[i] <- exp(W[i])
    L[] <- sum E[i]
    E.again[i] <- exp(W[i])
    V[i] <- W[i] - E.again[i]
    output L, V
    tie W <- V
    """
    if which is None:
        return graph
    forward = _forward(graph, tie)
    names = _named(graph, forward, which, tie)
    again: dict[str, str] = {}

    def second(name: str, made: Graph) -> str:
        """The result that the backward pass reads."""
        if name not in names:
            return name
        if name not in again:
            vertex = graph[name]
            inputs = tuple(second(source, made) for source in vertex.inputs)
            again[name] = made.fresh(f"{name}.again")
            made.append(replace(vertex, name=again[name], inputs=inputs, reduce_dtype=None))
        return again[name]

    def put(vertex: Vertex, made: Graph) -> bool:
        if vertex.name in forward or names.isdisjoint(vertex.inputs):
            return False
        inputs = tuple(second(source, made) for source in vertex.inputs)
        made.append(replace(vertex, inputs=inputs, reduce_dtype=None))
        return True

    made = rebuilt(graph, put)
    if isinstance(which, tuple) and (unread := [name for name in which if name not in again]):
        raise PlanError(f"recompute: the backward pass does not read {quote(unread[0])}")
    return made


def _forward(graph: Graph, tie: Mapping[str, str]) -> set[str]:
    """What the outputs need that are not the next state."""
    state = {*tie.values()}
    forward = {vertex.name for vertex in graph.outputs if vertex.name not in state}
    if not tie or not forward:
        raise PlanError(
            "recompute: nothing tells the forward pass from the backward pass; a training step has "
            "an output, such as the loss, and tied state, as ed.models.training_step makes it"
        )
    for vertex in reversed([*graph.vertices.values()]):
        if vertex.name in forward:
            forward.update(vertex.inputs)
    return forward


def _named(
    graph: Graph,
    forward: Collection[str],
    which: str | int | tuple[str, ...],
    tie: Mapping[str, str],
) -> set[str]:
    """The results that are not kept."""
    if isinstance(which, str | int):
        made = [n for n in graph if n in forward and not isinstance(graph[n].op, Input | Fill)]
        passages = _passages(graph, forward, tie)
        if isinstance(which, int):
            ends = [*(k for k, name in enumerate(made) if name in passages), len(made)]
            if which > len(ends):
                raise PlanError(f"recompute: the forward pass has {len(ends)} parts, not {which}")
            made = made[: ends[which - 1]]
        return {*made} - {vertex.name for vertex in graph.outputs} - passages
    for name in which:
        if name not in forward or isinstance(graph[name].op, Input | Fill):
            known = [v for v in forward if not isinstance(graph[v].op, Input | Fill)]
            raise PlanError(
                f"recompute: the forward pass computes no {quote(name)}{suggest(name, known)}; "
                "rewriting may have fused it into what reads it"
            )
    return {*which}


def _passages(graph: Graph, forward: Collection[str], tie: Mapping[str, str]) -> set[str]:
    """The results of the forward pass through which all that follows depends on the data."""
    last: dict[str, int] = {}
    order = [vertex for vertex in graph.vertices.values() if vertex.name in forward]
    for place, vertex in enumerate(order):
        last |= dict.fromkeys(vertex.inputs, place)
    follows: set[str] = {v.name for v in order if isinstance(v.op, Input) and v.name not in tie}
    given, found, waiting = {*follows}, set[str](), set[str]()
    for place, vertex in enumerate(order):
        if follows.isdisjoint(vertex.inputs):
            continue
        follows.add(vertex.name)
        waiting.add(vertex.name)
        waiting = {name for name in waiting if last.get(name, -1) > place}
        if waiting == {vertex.name} and vertex.name not in given:
            found.add(vertex.name)
    return found
