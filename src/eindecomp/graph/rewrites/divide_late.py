"""Dividing a softmax by its sum after the product that reads it, if that takes fewer divisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.graph.rewrites.rebuild import copy_vertex, empty_like, end_like, remove_dead
from eindecomp.lang.dtypes import LOW_PRECISION, Kind, kind
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, call

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

_QUOTIENT = call("div", Arg(0), Arg(1))
Operand = tuple[str, Labels]


def divide_late(graph: Graph) -> Graph:
    """Turn Σ (E / ΣE) · V into (Σ E · V) / ΣE: the same weighted mean, divided once a result.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "S[i] <- sum E[i,t]\\nP[i,t] <- E[i,t] / S[i]\\nO[i,d] <- sum P[i,t] * V[t,d]"
    >>> print(divide_late(parse(f"input E[i: 4, t: 9], V[t, d: 2]\\n{text}\\noutput O")))
    input E[i: 4, t: 9]
    input V[t: 9, d: 2]
    S[i] <- sum E[i,t]
    O_1[i,d] <- sum E[i,t] * V[t,d]
    O[i,d] <- O_1[i,d] / S[i]
    output O
    """
    reads = graph.reads()
    outputs = {vertex.name for vertex in graph.outputs}
    late = empty_like(graph)
    for vertex in graph.vertices.values():
        op = vertex.op
        for k, name in enumerate(vertex.inputs):
            if reads[name] == 1 and name not in outputs and isinstance(op, EinSum):
                quotient = _weights(graph, vertex, op, k)
                if quotient is not None:
                    _divide(vertex, op, k, quotient, late)
                    break
        else:
            copy_vertex(vertex, late)
    end_like(graph, late)
    return remove_dead(late)


def _weights(graph: Graph, vertex: Vertex, op: EinSum, k: int) -> tuple[Operand, Operand] | None:
    """What an input of a product divides by its sum, and that sum, in the product's labels."""
    share = graph[vertex.inputs[k]]
    inner = share.op
    if not (op.is_contraction and len(op.inputs) == 2 and isinstance(inner, EinSum)):
        return None
    if inner.join != _QUOTIENT or inner.agg is not None or share.elements <= vertex.elements:
        return None
    types = {graph[name].dtype for name in (*share.inputs, share.name, vertex.name)}
    # Before it is divided the sum is larger: half-width floats may not hold it.
    if len(types) > 1 or types & LOW_PRECISION or kind(share.dtype) is not Kind.FLOAT:
        return None
    whole, total = (graph[name] for name in share.inputs)
    rename = dict(zip(inner.output, op.inputs[k], strict=True))
    if not {*inner.inputs[0], *inner.inputs[1]} <= set(rename):
        return None
    read, divisor = (tuple(rename[label] for label in own) for own in inner.inputs)
    if not _is_sum(total, whole, inner) or not set(divisor) <= set(op.output):
        return None
    return (whole.name, read), (total.name, divisor)


def _is_sum(total: Vertex, whole: Vertex, quotient: EinSum) -> bool:
    """Whether one tensor is another's sum over what the quotient repeats it for."""
    op = total.op
    if not isinstance(op, EinSum) or op.agg != SUM or op.join != Arg(0):
        return False
    rename = dict(zip(op.inputs[0], quotient.inputs[0], strict=True))
    return total.inputs == (whole.name,) and quotient.inputs[1] == tuple(
        rename[label] for label in op.output
    )


def _divide(
    vertex: Vertex, op: EinSum, k: int, quotient: tuple[Operand, Operand], into: Graph
) -> None:
    whole, total = quotient
    operands = list(zip(vertex.inputs, op.inputs, strict=True))
    operands[k] = whole
    name = into.fresh(f"{vertex.name}_1")
    into.add_einsum(op.output, operands, op.join, op.agg, name, vertex.sizes)
    into.add_einsum(op.output, [(name, op.output), total], _QUOTIENT, name=vertex.name)
