"""Gradients by reverse mode: the gradient of every vertex is again a graph of vertices.

For Z ← ⊕ ⊗(X, Y, …) with adjoint G of Z, the adjoint of X is an EinSum over G and the inputs: the
derivative of the join by x, times the rule of the aggregation, summed over the labels X has not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from eindecomp.errors import GradientError
from eindecomp.graph.aggregation_rules import joined_adjoints
from eindecomp.graph.checks import expect
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Slice
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.differentiate import pullback
from eindecomp.lang.dtypes import Kind, kind
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, Expr, call, chain, replace_args, used_args, values
from eindecomp.lang.scalar_types import type_of
from eindecomp.lang.simplify import simplify

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eindecomp.lang.dtypes import DType, Type

MAX_ADDENDS = 8
"""How many adjoints one vertex adds up."""


def grad(graph: Graph, output: str | Vertex, wrt: str | Vertex | Iterable[str | Vertex]) -> Graph:
    """A graph that also computes the gradients of a rank-0 output.

    Its outputs are those of `graph`, then one gradient for each tensor of `wrt`, in that order,
    named `grad_X` for X. For complex tensors the gradient of z = a + bi is ∂L/∂a + i·∂L/∂b.

    Args:
        graph: What computes the output, such as `ed.parse(text)`; it stays as it is.
        output: What to differentiate, such as `"loss"`.
        wrt: The tensors to differentiate by, such as `["W1", "W2"]`.

    Raises:
        GradientError: There is no such gradient, as of integers.

    Examples:
        >>> from eindecomp.graph.text.elaborate import parse
        >>> graph = parse("input X[i: 3], W[i]\\nloss[] <- sum X[i] * W[i]\\noutput loss")
        >>> print(grad(graph, "loss", wrt=["W"]))
        input X[i: 3]
        input W[i: 3]
        loss[] <- sum X[i] * W[i]
        grad_loss[] <- fill float32(1)
        grad_W[i] <- grad_loss[] * X[i]
        output loss, grad_W
    """
    loss = graph[_name(output)]
    wanted = [graph[_name(t)] for t in ((wrt,) if isinstance(wrt, str | Vertex) else wrt)]
    if loss.shape != ():
        raise GradientError(
            f"a gradient needs a single number, but {loss} has shape {loss.shape}: sum it first"
        )
    if len({vertex.name for vertex in wanted}) < len(wanted):
        raise GradientError("a tensor appears twice among those to differentiate by")
    for vertex in (loss, *wanted):
        if kind(vertex.dtype) < Kind.FLOAT:
            raise GradientError(
                f"no gradient of or with respect to {vertex}: its dtype is {vertex.dtype}"
            )
    if kind(loss.dtype) is Kind.COMPLEX:
        raise GradientError(f"a gradient needs a real number, but {loss} is {loss.dtype}")
    return _sweep(graph, loss, wanted)


def _name(tensor: object) -> str:
    return (
        tensor if isinstance(tensor, str) else expect(tensor, Vertex, "a tensor or its name").name
    )


def _sweep(graph: Graph, loss: Vertex, wanted: Sequence[Vertex]) -> Graph:
    """One reverse sweep over the vertices, adding adjoints to a copy of the graph."""
    grown = Graph.of(graph.vertices.values(), (), graph.scalars)
    needed = _depending(graph, wanted)
    parts: dict[str, list[str]] = {name: [] for name in graph.vertices}
    parts[loss.name].append(_constant(grown, loss, 1))
    adjoints: dict[str, str] = {}
    for vertex in reversed(list(graph.vertices.values())):
        passed_back = parts.pop(vertex.name)
        if passed_back and vertex.name in needed:
            adjoints[vertex.name] = _total(grown, vertex, passed_back)
            for position, adjoint in _input_adjoints(grown, vertex, adjoints[vertex.name], needed):
                parts[vertex.inputs[position]].append(adjoint)
    gradients = {v.name: adjoints.get(v.name) or _constant(grown, v, 0) for v in wanted}
    outputs = [*(v.name for v in graph.outputs), *gradients.values()]
    grown.end(outputs, graph.ties)
    # A gradient has its plain name even when it is the sum of parts that took that name first.
    swaps = {old: _gradient_name(graph, name) for name, old in gradients.items()}
    return _rename(grown, {new: old for old, new in swaps.items()} | swaps)


def _gradient_name(graph: Graph, name: str) -> str:
    """`grad_X` for X; `grad_grad_X` where the graph has a gradient by X already, and so on."""
    name = f"grad_{name}"
    while name in graph:
        name = f"grad_{name}"
    return name


def _depending(graph: Graph, wanted: Sequence[Vertex]) -> set[str]:
    """The tensors that change when one of `wanted` does."""
    depending = {vertex.name for vertex in wanted}
    for vertex in graph.vertices.values():
        if depending.intersection(vertex.inputs) and kind(vertex.dtype) >= Kind.FLOAT:
            depending.add(vertex.name)
    return depending


def _constant(graph: Graph, like: Vertex, value: int) -> str:
    """A tensor like another one that has the same value everywhere."""
    fill = Fill(like.labels, call(like.dtype.name, value))
    return graph.add(fill, [], graph.fresh(f"grad_{like.name}"), like.sizes).name


def _rename(graph: Graph, names: Mapping[str, str]) -> Graph:
    vertices = (
        replace(v, name=names.get(v.name, v.name), inputs=tuple(names.get(i, i) for i in v.inputs))
        for v in graph.vertices.values()
    )
    outputs = [names.get(v.name, v.name) for v in graph.outputs]
    ties = {names.get(name, name): names.get(of, of) for name, of in graph.ties.items()}
    return Graph.of(vertices, outputs, graph.scalars, ties=ties)


def _total(graph: Graph, vertex: Vertex, parts: list[str]) -> str:
    """Add up what the readers of a vertex pass back to it."""
    while len(parts) > 1:
        batch, parts = parts[:MAX_ADDENDS], parts[MAX_ADDENDS:]
        total = chain("add", [Arg(k) for k in range(len(batch))])
        name = graph.fresh(f"grad_{vertex.name}")
        made = graph.add_einsum(
            vertex.labels, [(part, vertex.labels) for part in batch], total, name=name
        )
        parts.append(made.name)
    return parts[0]


def _input_adjoints(
    graph: Graph, vertex: Vertex, adjoint: str, needed: set[str]
) -> list[tuple[int, str]]:
    """What each input of a vertex gets, as pairs of its position and an added vertex."""
    name = graph.fresh
    match vertex.op:
        case EinSum() as op:
            return _einsum(graph, vertex, op, adjoint, needed)
        case Gather(table, axis, index, output):
            row = _new_label("row", {*output, *table})
            size = {row: graph[vertex.inputs[0]].shape[axis]}
            op = ScatterAdd(output, index, table, axis, row)
            inputs = [adjoint, vertex.inputs[1]]
            return [(0, graph.add(op, inputs, name(f"grad_{vertex.inputs[0]}"), size).name)]
        case ScatterAdd(source, index, table, axis):
            op = Gather(table, axis, index, tuple(dict.fromkeys((*table, *index))))
            rows = graph.add(op, [adjoint, vertex.inputs[1]], name(f"grad_{vertex.name}_rows"))
            return [(0, _reduce_to(graph, rows, source, vertex.inputs[0]))]
        case Concat(output):
            return _concat(graph, vertex, output, vertex.op.axis, adjoint, needed)
        case Slice() as op:
            padded = _pad(graph, op, adjoint, vertex.inputs[0])
            return [(0, _own_copy(graph, padded, adjoint, vertex.inputs[0]))]
        case Reshape(before, after, sizes):
            order = dict(sizes)
            back = Reshape(after, before, tuple((la, order[la]) for group in after for la in group))
            return [(0, graph.add(back, [adjoint], name(f"grad_{vertex.inputs[0]}")).name)]
        case Fill() | Input():
            return []


def _einsum(
    graph: Graph, vertex: Vertex, op: EinSum, adjoint: str, needed: set[str]
) -> list[tuple[int, str]]:
    operands = list(zip(vertex.inputs, op.inputs, strict=True))
    types = [graph[name].dtype for name in vertex.inputs]
    wanted = [k for k in used_args(op.join) if vertex.inputs[k] in needed]
    differentiable = [k for k in wanted if kind(types[k]) >= Kind.FLOAT]
    if not differentiable:
        return []
    back = joined_adjoints(graph, vertex, op, adjoint)
    everything = [*operands, *back.operands]
    types += [graph[name].dtype for name, _ in back.operands]
    sizes = graph.label_sizes(vertex)
    scalars = tuple(graph.scalars.items())
    adjoints: list[tuple[int, str]] = []
    for k in differentiable:
        value = _pulled_back(op.join, k, back.adjoints, tuple(types), scalars)
        if value is not None:
            adjoints.append((k, _sum_to_input(graph, operands[k], everything, value, sizes)))
    return adjoints


@lru_cache(maxsize=2**12)
def _pulled_back(
    join: Expr,
    wrt: int,
    adjoints: tuple[Expr, ...],
    types: tuple[DType, ...],
    scalars: tuple[tuple[str, DType], ...],
) -> Expr | None:
    """What reaches input `wrt` when `adjoints` reach the values of a join; None if nothing does."""
    known = dict(scalars)
    parts = [
        pullback(value, wrt, adjoint, types, known)
        for value, adjoint in zip(values(join), adjoints, strict=True)
    ]
    terms = [part for part in parts if part is not None]
    if not terms:
        return None
    return simplify(chain("add", terms), types, known)


def _sum_to_input(
    graph: Graph,
    operand: tuple[str, Labels],
    operands: Sequence[tuple[str, Labels]],
    value: Expr,
    sizes: dict[str, int],
) -> str:
    """Add the vertex that sums `value` over all labels that the operand does not have."""
    name, labels = operand
    used = used_args(value)
    read = {label for k in used for label in operands[k][1]}
    # Labels that nothing here has, yet that the aggregation ran over, count each term that often.
    repeats = prod(size for label, size in sizes.items() if label not in {*read, *labels})
    if repeats > 1:
        value = call("mul", value, float(repeats))
    chosen = [operands[k] for k in used]
    output, diagonal = _distinct(labels, set(sizes))
    sizes = sizes | {new: sizes[old] for new, old in zip(output, labels, strict=True)}
    value = replace_args(value, {k: Arg(place) for place, k in enumerate(used)})
    for new, old in diagonal:
        eye = graph.add(
            Fill((old, new), call("eq", Arg(0), Arg(1))), [], graph.fresh(f"grad_{name}_eye"), sizes
        )
        value = call("where", Arg(len(chosen)), value, 0)
        chosen.append((eye.name, (old, new)))
    dtype = graph[name].dtype
    types = [graph[tensor].dtype for tensor, _ in chosen]
    own_type = type_of(value, types, graph.scalars)
    if own_type != dtype:
        value = _to_type(value, own_type, dtype)
    return graph.add_einsum(output, chosen, value, SUM, graph.fresh(f"grad_{name}"), sizes).name


def _to_type(value: Expr, own_type: Type, dtype: DType) -> Expr:
    if kind(own_type) is Kind.COMPLEX and kind(dtype) is not Kind.COMPLEX:
        value = call("real", value)
    return call(dtype.name, value)


def _distinct(labels: Labels, taken: set[str]) -> tuple[Labels, list[tuple[str, str]]]:
    """Labels with repeated ones renamed, and the pairs that must be equal (a diagonal)."""
    output: list[str] = []
    diagonal: list[tuple[str, str]] = []
    for label in labels:
        new = label if label not in output else _new_label(label, {*taken, *output})
        if new != label:
            diagonal.append((new, label))
        output.append(new)
    return tuple(output), diagonal


def _new_label(stem: str, taken: set[str]) -> str:
    while stem in taken:
        stem += "_"
    return stem


def _cast(graph: Graph, name: str, labels: Labels, like: Vertex) -> str:
    if graph[name].dtype == like.dtype:
        return name
    value = call(like.dtype.name, Arg(0))
    return graph.add_einsum(
        labels, [(name, labels)], value, name=graph.fresh(f"grad_{like.name}")
    ).name


def _own_copy(graph: Graph, passed: str, adjoint: str, name: str) -> str:
    """A vertex of its own for an adjoint that passed through unchanged: each gradient has one."""
    if passed != adjoint:
        return passed
    labels = graph[name].labels
    return graph.add_einsum(
        labels, [(passed, labels)], Arg(0), name=graph.fresh(f"grad_{name}")
    ).name


def _reduce_to(graph: Graph, made: Vertex, labels: Labels, name: str) -> str:
    """Bring a vertex to the labels of a source: broadcast over new ones, sum over others."""
    sizes = graph[name].sizes_by(labels)
    operands = [(made.name, made.labels)]
    own = graph.fresh(f"grad_{name}")
    return graph.add_einsum(labels, operands, Arg(0), SUM, own, sizes).name


def _concat(
    graph: Graph, vertex: Vertex, labels: Labels, axis: int, adjoint: str, needed: set[str]
) -> list[tuple[int, str]]:
    adjoints: list[tuple[int, str]] = []
    start = 0
    for k, name in enumerate(vertex.inputs):
        stop = start + graph[name].shape[axis]
        if name in needed:
            ranges = tuple((start, stop) if k == axis else None for k in range(len(labels)))
            part = graph.add(Slice(labels, ranges), [adjoint], graph.fresh(f"grad_{name}"))
            adjoints.append((k, _cast(graph, part.name, labels, graph[name])))
        start = stop
    return adjoints


def _pad(graph: Graph, op: Slice, adjoint: str, name: str) -> str:
    """Put zeros around a slice's adjoint, one dimension after another."""
    source = graph[name]
    labels: Labels = ()
    for k, label in enumerate(op.input):
        labels += (label or _new_label(f"at{k}", {*op.output, *labels}),)
    if labels != op.output:
        # Dimensions of which one index was taken come back, of size 1 first.
        ones = dict.fromkeys(labels, 1) | graph[adjoint].sizes_by(op.output)
        operands = [(adjoint, op.output)]
        adjoint = graph.add_einsum(
            labels, operands, Arg(0), name=graph.fresh(f"grad_{name}"), sizes=ones
        ).name
    for axis, (start, stop) in enumerate(op.windows(source.shape)):
        parts = [adjoint]
        for size, at in ((start, 0), (source.shape[axis] - stop, len(parts) + 1)):
            if size:
                sizes = graph[adjoint].sizes_by(labels) | {labels[axis]: size}
                zero = Fill(labels, call(source.dtype.name, 0))
                made = graph.add(zero, [], graph.fresh(f"grad_{name}_zero"), sizes)
                parts.insert(at, made.name)
        if len(parts) > 1:
            whole = Concat(labels, labels[axis])
            adjoint = graph.add(whole, parts, graph.fresh(f"grad_{name}")).name
    return adjoint
