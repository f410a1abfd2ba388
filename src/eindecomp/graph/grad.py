"""Gradients by reverse mode: the gradient of every vertex is again a graph of vertices.

For Z ← ⊕ ⊗(X, Y, …) with adjoint G of Z, the adjoint of X is an EinSum over G and the inputs: the
derivative of the join by x, times the rule of the aggregation, summed over the labels X has not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from eindecomp.errors import GradientError
from eindecomp.graph.attention_grad import adjoints_of, taken_whole
from eindecomp.graph.checks import expect
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Window, sliced
from eindecomp.graph.vertex import Vertex, unused_label
from eindecomp.graph.window_grad import SeenThrough
from eindecomp.graph.windows import apart, together
from eindecomp.lang.differentiate import pullback
from eindecomp.lang.dtypes import LOW_PRECISION, Kind, ScalarItems, Types, kind
from eindecomp.lang.einsum import EinSum, Labels, Operand, Operands
from eindecomp.lang.monoid import PROD, SUM, Monoid
from eindecomp.lang.scalar import Arg, Expr, call, chain, replace_args, used_args, values
from eindecomp.lang.scalar_types import type_of
from eindecomp.lang.simplify import simplify

Adjoints = list[tuple[str, str]]
"""Tensors, each with a vertex that adds to its adjoint."""
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
    is_vertex = isinstance(tensor, Vertex)
    return tensor.name if is_vertex else expect(tensor, str, "a tensor or its name")


def _sweep(graph: Graph, loss: Vertex, wanted: Sequence[Vertex]) -> Graph:
    """One reverse sweep over the vertices, adding adjoints to a copy of the graph."""
    written = {name for name, own in graph.vertices.items() if isinstance(own.op, Window)}
    graph = apart(graph)
    windows = {name for name, own in graph.vertices.items() if isinstance(own.op, Window)} - written
    grown = Graph.of(graph.vertices.values(), (), graph.scalars)
    needed = {vertex.name for vertex in wanted}  # the tensors that change when one of those does
    for vertex in graph.vertices.values():
        if needed.intersection(vertex.inputs) and kind(vertex.dtype) >= Kind.FLOAT:
            needed.add(vertex.name)
    parts: dict[str, list[str]] = {name: [] for name in graph.vertices}
    parts[loss.name].append(_constant(grown, loss, 1))
    adjoints: dict[str, str] = {}
    attentions = taken_whole(graph, {vertex.name for vertex in (loss, *wanted)})
    for vertex in reversed(list(graph.vertices.values())):
        passed_back = parts.pop(vertex.name)
        if passed_back and vertex.name in needed:
            adjoint = adjoints[vertex.name] = _total(grown, vertex, passed_back)
            if vertex.name in attentions:
                for own in adjoints_of(grown, attentions[vertex.name], adjoint):
                    if own.read.name in needed:
                        sizes = _sizes_of(grown, own.operands)
                        to = (own.read.name, own.read.labels)
                        added = _sum_to_input(grown, to, own.operands, own.value, sizes)
                        parts[own.read.name].append(added)
                continue
            for name, part in _input_adjoints(grown, vertex, adjoint, needed, windows):
                parts[name].append(part)
    gradients = {v.name: adjoints.get(v.name) or _constant(grown, v, 0) for v in wanted}
    outputs = [*(v.name for v in graph.outputs), *gradients.values()]
    # A gradient has its plain name even when it is the sum of parts that took that name first.
    swaps: dict[str, str] = {}
    for name, old in gradients.items():
        swaps[old] = f"grad_{name}"
        while swaps[old] in graph:  # it has a gradient by that tensor already
            swaps[old] = f"grad_{swaps[old]}"
    names = {new: old for old, new in swaps.items()} | swaps
    vertices = (
        replace(v, name=names.get(v.name, v.name), inputs=tuple(names.get(i, i) for i in v.inputs))
        for v in grown.vertices.values()
    )
    ties = {names.get(name, name): names.get(of, of) for name, of in graph.ties.items()}
    outputs = [names.get(name, name) for name in outputs]
    return together(Graph.of(vertices, outputs, graph.scalars, ties=ties), written)


def _constant(graph: Graph, like: Vertex, value: int) -> str:
    """A tensor like another one that has the same value everywhere."""
    fill = Fill(like.labels, call(like.dtype.name, value))
    return graph.add(fill, [], graph.fresh(f"grad_{like.name}"), like.sizes).name


def _total(graph: Graph, vertex: Vertex, parts: list[str]) -> str:
    """Add up what the readers of a vertex pass back to it."""
    while len(parts) > 1:
        batch, parts = parts[:MAX_ADDENDS], parts[MAX_ADDENDS:]
        total = chain("add", [Arg(k) for k in range(len(batch))])
        name = graph.fresh(f"grad_{vertex.name}")
        operands = [(part, vertex.labels) for part in batch]
        made = graph.add_einsum(vertex.labels, operands, total, name=name)
        parts.append(made.name)
    return parts[0]


def _input_adjoints(
    graph: Graph, vertex: Vertex, adjoint: str, needed: set[str], windows: Collection[str]
) -> Adjoints:
    """What the inputs of a vertex get, or what is read through those that are `windows`."""
    name = graph.fresh
    match vertex.op:
        case EinSum() as op:
            return _einsum(graph, vertex, op, adjoint, needed, windows)
        case Gather(table, axis, index, output):
            row = unused_label("row", {*output, *table})
            size = {row: graph[vertex.inputs[0]].shape[axis]}
            op = ScatterAdd(output, index, table, axis, row)
            inputs = [adjoint, vertex.inputs[1]]
            added = graph.add(op, inputs, name(f"grad_{vertex.inputs[0]}"), size)
            return [(vertex.inputs[0], added.name)]
        case ScatterAdd(source, index, table, axis):
            op = Gather(table, axis, index, tuple(dict.fromkeys((*table, *index))))
            rows = graph.add(op, [adjoint, vertex.inputs[1]], name(f"grad_{vertex.name}_rows"))
            own, sizes = name(f"grad_{vertex.inputs[0]}"), graph[vertex.inputs[0]].sizes_by(source)
            operands = [(rows.name, rows.labels)]
            added = graph.add_einsum(source, operands, Arg(0), SUM, own, sizes)
            return [(vertex.inputs[0], added.name)]
        case Concat(output):
            return _concat(graph, vertex, output, vertex.op.axis, adjoint, needed)
        case Window(output):
            through = SeenThrough.of(graph, (vertex.name, output), vertex.sizes)
            read, value = through.read([(adjoint, output)], Arg(0))
            to = (vertex.inputs[0], tuple(through.output))
            return [(to[0], _sum_to_input(graph, to, read, value, through.sizes))]
        case Reshape(before, after, sizes):
            order = dict(sizes)
            back = Reshape(after, before, tuple((la, order[la]) for group in after for la in group))
            added = graph.add(back, [adjoint], name(f"grad_{vertex.inputs[0]}"))
            return [(vertex.inputs[0], added.name)]
        case Fill() | Input():
            return []


def _einsum(
    graph: Graph,
    vertex: Vertex,
    op: EinSum,
    adjoint: str,
    needed: set[str],
    windows: Collection[str],
) -> Adjoints:
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
    adjoints: Adjoints = []
    for k in differentiable:
        value = _pulled_back(op.join, k, back.adjoints, tuple(types), scalars)
        if value is None:
            continue
        to, read, own = operands[k], everything, sizes
        if to[0] in windows and len({*to[1]}) == len(to[1]):
            # Straight to what the window reads: its own adjoint would be as large as all it shows.
            through = SeenThrough.of(graph, to, sizes)
            read, value = through.read(everything, value)
            to, own = (through.source.name, tuple(through.output)), through.sizes
        adjoints.append((to[0], _sum_to_input(graph, to, read, value, own)))
    return adjoints


@lru_cache(maxsize=2**12)
def _pulled_back(
    join: Expr, wrt: int, adjoints: tuple[Expr, ...], types: Types, scalars: ScalarItems
) -> Expr | None:
    """What reaches input `wrt` when `adjoints` reach the values of a join; None if nothing does."""
    known = dict(scalars)
    pairs = zip(values(join), adjoints, strict=True)
    parts = [pullback(value, wrt, adjoint, types, known) for value, adjoint in pairs]
    terms = [part for part in parts if part is not None]
    return simplify(chain("add", terms), types, known) if terms else None


def _sizes_of(graph: Graph, operands: Operands) -> dict[str, int]:
    """The sizes of the labels of operands."""
    return {la: size for name, own in operands for la, size in graph[name].sizes_by(own).items()}


def _sum_to_input(
    graph: Graph, operand: Operand, operands: Sequence[Operand], value: Expr, sizes: dict[str, int]
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
        same = Fill((old, new), call("eq", Arg(0), Arg(1)))
        eye = graph.add(same, [], graph.fresh(f"grad_{name}_eye"), sizes)
        value = call("where", Arg(len(chosen)), value, 0)
        chosen.append((eye.name, (old, new)))
    dtype = graph[name].dtype
    types = [graph[tensor].dtype for tensor, _ in chosen]
    own_type = type_of(value, types, graph.scalars)
    if own_type != dtype:
        is_narrowed = kind(own_type) is Kind.COMPLEX and kind(dtype) is not Kind.COMPLEX
        value = call(dtype.name, call("real", value) if is_narrowed else value)
    return graph.add_einsum(output, chosen, value, SUM, graph.fresh(f"grad_{name}"), sizes).name


def _distinct(labels: Labels, taken: set[str]) -> tuple[Labels, list[tuple[str, str]]]:
    """Labels with repeated ones renamed, and the pairs that must be equal (a diagonal)."""
    output: list[str] = []
    diagonal: list[tuple[str, str]] = []
    for label in labels:
        new = label if label not in output else unused_label(label, {*taken, *output})
        if new != label:
            diagonal.append((new, label))
        output.append(new)
    return tuple(output), diagonal


def _map(graph: Graph, tensor: str, labels: Labels, value: Expr, of: str) -> str:
    """Add a vertex that applies a function to a tensor, a part of the adjoint of another one."""
    name = graph.fresh(f"grad_{of}")
    return graph.add_einsum(labels, [(tensor, labels)], value, name=name).name


def _concat(
    graph: Graph, vertex: Vertex, labels: Labels, axis: int, adjoint: str, needed: set[str]
) -> Adjoints:
    adjoints: Adjoints = []
    start = 0
    for name in vertex.inputs:
        stop = start + graph[name].shape[axis]
        if name in needed:
            ranges = tuple((start, stop) if k == axis else None for k in range(len(labels)))
            op = sliced(labels, ranges, vertex.shape)
            part = graph.add(op, [adjoint], graph.fresh(f"grad_{name}")).name
            if graph[part].dtype != graph[name].dtype:
                part = _map(graph, part, labels, call(graph[name].dtype.name, Arg(0)), name)
            adjoints.append((name, part))
        start = stop
    return adjoints


# How an adjoint passes through an aggregation, back to the joined values


@dataclass(frozen=True, slots=True)
class Back:
    """What reaches each joined value, over the vertex's inputs followed by `operands`."""

    operands: tuple[Operand, ...]
    adjoints: tuple[Expr, ...]


def joined_adjoints(graph: Graph, vertex: Vertex, op: EinSum, adjoint: str) -> Back:
    """Apply the rule of a vertex's aggregation, adding the vertices it needs to the graph."""
    g = Arg(len(op.inputs))
    of_z = (adjoint, vertex.labels)
    name = None if op.agg is None else op.agg.name
    match name:
        case None | "sum":
            return Back((of_z,), (g,))
        case "max" | "min":
            return _extreme(graph, vertex, op, of_z)
        case "prod":
            return _product(graph, vertex, op, of_z)
        case _ if op.agg is not None and op.agg.rule is not None:
            return _given_rule(graph, vertex, op, op.agg, op.agg.rule, of_z)
        case _:
            raise GradientError(f"{vertex}: aggregation {name!r} has no gradient rule")


def _aside(graph: Graph, vertex: Vertex, op: EinSum, what: str, join: Expr, agg: Monoid) -> str:
    """Add a vertex like `vertex` with another join and aggregation."""
    operands = list(zip(vertex.inputs, op.inputs, strict=True))
    name = graph.fresh(f"grad_{vertex.name}_{what}")
    return graph.add_einsum(op.output, operands, join, agg, name, vertex.sizes).name


def _extreme(graph: Graph, vertex: Vertex, op: EinSum, of_z: Operand) -> Back:
    """max, min: the adjoint goes to the values equal to the result, in equal shares.

    Equal means equal: whatever runs this must compute the join here as it did for the result.
    """
    n = len(op.inputs)
    g, z, count = Arg(n), Arg(n + 1), Arg(n + 2)
    # The result was rounded to its type, so what is compared with it must be as well.
    rounded = call(vertex.dtype.name, op.join) if vertex.dtype in LOW_PRECISION else op.join
    hit = call("eq", rounded, z)
    # Ties are counted over the joined values, which need the result beside the vertex's inputs.
    operands = [*zip(vertex.inputs, op.inputs, strict=True), (vertex.name, op.output)]
    ties = replace_args(hit, [*map(Arg, range(n)), g, Arg(n)])
    ties = call(vertex.dtype.name, ties)
    name = graph.fresh(f"grad_{vertex.name}_ties")
    made = graph.add_einsum(op.output, operands, ties, SUM, name, vertex.sizes)
    tensors = (of_z, (vertex.name, op.output), (made.name, op.output))
    return Back(tensors, (call("where", hit, call("div", g, count), 0),))


def _product(graph: Graph, vertex: Vertex, op: EinSum, of_z: Operand) -> Back:
    """prod: the product of all other values, told apart by how many values are zero."""
    n = len(op.inputs)
    g, zeros, rest = Arg(n), Arg(n + 1), Arg(n + 2)
    is_zero = call("eq", op.join, 0)
    count = _aside(graph, vertex, op, "zeros", call("int32", is_zero), SUM)
    others = _aside(graph, vertex, op, "nonzero", call("where", is_zero, 1, op.join), PROD)
    alone = call("where", call("eq", zeros, 1), rest, 0)
    share = call("where", call("eq", zeros, 0), call("div", rest, op.join), 0)
    slope = call("where", is_zero, alone, share)
    return Back((of_z, (count, op.output), (others, op.output)), (_times(g, slope, graph, vertex),))


def _given_rule(
    graph: Graph, vertex: Vertex, op: EinSum, agg: Monoid, rule: Expr, of_z: Operand
) -> Back:
    """A user's own rule, over the joined values, the final state and the result."""
    n, k = len(op.inputs), agg.width
    g = Arg(n)
    # A state of one number without a finish is the result itself.
    is_result = agg.finish is None
    states = [vertex.name]
    if not is_result:
        states = [_aside(graph, vertex, op, f"state{i}", op.join, agg.select(i)) for i in range(k)]
    state_args = [Arg(n + 1 + i) for i in range(k)]
    result = state_args[0] if is_result else Arg(n + 1 + k)
    slopes = values(replace_args(rule, [*values(op.join), *state_args, result]))
    tensors = [of_z, *((state, op.output) for state in states)]
    if not is_result:
        tensors.append((vertex.name, op.output))
    return Back(tuple(tensors), tuple(_times(g, slope, graph, vertex) for slope in slopes))


def _times(adjoint: Expr, slope: Expr, graph: Graph, vertex: Vertex) -> Expr:
    is_complex = any(kind(graph[name].dtype) is Kind.COMPLEX for name in vertex.inputs)
    return call("mul", adjoint, call("conj", slope) if is_complex else slope)
