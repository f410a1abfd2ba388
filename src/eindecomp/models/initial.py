"""Initial values for the parameters of any graph, chosen by how they are used.

A parameter's role is read from the vertices that make the loss: a weight is summed over against
another tensor, a table is looked up, a gain is multiplied with, a bias is added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np

from eindecomp.errors import InputError, check_whole
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Gather, Reshape, Window
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import Array
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Call, Expr, used_args, values

GRADIENT = "grad_"
_Use = tuple["Vertex", int]
"""A vertex, and which of its inputs is meant."""


def initial(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """The state to begin with: an array for each input X that is tied or has an output `grad_X`.

    Weights are drawn as torch draws those of a linear layer, uniform within ±1/√fan-in, where the
    fan-in is the product of the sizes of the summed labels; biases of such a layer are drawn from
    the same range. Rows of a table have length 1 on average. Gains are 1; other biases and the
    optimiser's own state are 0.

    Args:
        graph: One step of training, such as `ed.models.ffnn(4, 100, 6, 7)`.
        seed: That of the random numbers, such as `0`.

    Examples:
        >>> from eindecomp.models.paper_graphs import ffnn
        >>> state = initial(ffnn(4, 100, 6, 7, optimizer="momentum"))
        >>> bool(0.09 < abs(state["W1"]).max() <= 0.1), state["W1_sum"].max().item()
        (True, 0.0)
    """
    if not isinstance(graph, Graph):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"parameters are those of a Graph, not of {type(graph).__name__}")
    check_whole(0, seed=seed)
    rng = np.random.default_rng(seed)
    outputs = {vertex.name for vertex in graph.outputs}
    names = [v.name for v in graph.inputs if v.name in graph.ties or GRADIENT + v.name in outputs]
    if not names:
        raise InputError("no input X of the graph is tied or has an output `grad_X`")
    uses = _uses(graph, names)
    return {name: _draw(graph[name], _reach(graph, uses, name), rng) for name in names}


def _draw(vertex: Vertex, reach: float | None, rng: np.random.Generator) -> Array:
    """Numbers within ±reach; ones where it is None."""
    if reach is None:
        return np.ones(vertex.shape, vertex.dtype)
    if not reach or vertex.dtype.kind in "biu":
        return np.zeros(vertex.shape, vertex.dtype)
    drawn = rng.random(vertex.shape, np.float32)
    drawn *= np.float32(2 * reach)
    drawn -= np.float32(reach)
    if vertex.dtype.kind == "c":
        return np.asarray(drawn * np.exp(2j * np.pi * rng.random(vertex.shape)), vertex.dtype)
    return drawn.astype(vertex.dtype, copy=False)


def _uses(graph: Graph, parameters: Collection[str]) -> dict[str, list[_Use]]:
    """For each parameter the vertices on the way to the loss that read it, or a map of it."""
    made = {*graph.ties.values(), *(GRADIENT + name for name in parameters)}
    # Gradients and updates read parameters too, but in other ways.
    forward = {vertex.name for vertex in graph.outputs} - made
    for vertex in reversed(list(graph.vertices.values())):
        if vertex.name in forward:
            forward.update(vertex.inputs)
    uses: dict[str, list[_Use]] = {name: [] for name in parameters}
    maps = {name: name for name in parameters}
    for name, vertex in graph.vertices.items():
        if name not in forward:
            continue
        if _is_map(vertex) and vertex.inputs[0] in maps:
            maps[name] = maps[vertex.inputs[0]]
            continue
        for at, read in enumerate(vertex.inputs):
            if read in maps:
                uses[maps[read]].append((vertex, at))
    return uses


def _reach(graph: Graph, uses: Mapping[str, Sequence[_Use]], name: str) -> float | None:
    """The largest absolute value of a parameter; None for one that is all ones."""
    for vertex, at in uses[name]:
        if fan := _fan_in(graph, vertex, at):
            return fan**-0.5
    for vertex, at in uses[name]:
        if isinstance(vertex.op, Gather) and at == 0:
            sizes = vertex.sizes
            # Uniform numbers within ±√3 have standard deviation 1.
            return (3 / prod(sizes[label] for label in vertex.op.table)) ** 0.5
    for vertex, at in uses[name]:
        if isinstance(vertex.op, EinSum) and _combined(vertex.op.join, at) in ("mul", "div"):
            return None
    # A bias is drawn as the weights of the layer that it is added to.
    for vertex, at in uses[name]:
        for made in (graph[other] for k, other in enumerate(vertex.inputs) if k != at):
            for q, operand in enumerate(made.inputs):
                fan = _fan_in(graph, made, q) if operand in uses else 0
                if fan:
                    return fan**-0.5
    return 0.0


def _fan_in(graph: Graph, vertex: Vertex, at: int) -> int:
    """The number of products that a sum over an input and others adds; 0 for no such sum."""
    if not isinstance(vertex.op, EinSum):
        return 0
    others = {x for k, labels in enumerate(vertex.op.inputs) if k != at for x in labels}
    own = set(vertex.op.inputs[at]) & others - set(vertex.op.output)
    sizes = graph.label_sizes(vertex)
    return prod(sizes[label] for label in own) if own else 0


def _is_map(vertex: Vertex) -> bool:
    """Whether it only maps, slices or reshapes its one input."""
    op = vertex.op
    if isinstance(op, EinSum):
        return len(vertex.inputs) == 1 and not op.aggregated
    return isinstance(op, Window | Reshape)


def _combined(join: Expr, at: int) -> str | None:
    """The innermost function that combines an input with another, or adds a number to it."""
    for value in values(join):
        if isinstance(value, Call):
            for k, operand in enumerate(value.args):
                if at not in used_args(operand):
                    continue
                if (inner := _combined(operand, at)) is not None:
                    return inner
                rest = [other for j, other in enumerate(value.args) if j != k]
                if any(used_args(other) for other in rest) or (rest and value.op in ("add", "sub")):
                    return value.op
    return None
