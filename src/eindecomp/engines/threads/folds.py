"""Sums of a tensor and a matrix product: the product is added to the tensor where that lies.

Neither the product nor the sum takes memory of its own then, or a pass over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Fill, Input
from eindecomp.kernels.library import library_of
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Arg, call

if TYPE_CHECKING:
    from collections.abc import Collection

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

_SUM = call("add", Arg(0), Arg(1))


@dataclass(frozen=True, slots=True)
class Fold:
    """The sum that a product goes into, and its other term."""

    total: str
    term: str


def find_folds(graph: Graph, reduced: Collection[str]) -> dict[str, Fold]:
    """Products to add in place; `reduced` are the vertices that are summed over several devices.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "Y[i,k] <- exp(B[i,k])\\nP[i,k] <- sum A[i,j] * C[j,k]\\nZ[i,k] <- Y[i,k] + P[i,k]"
    >>> head = "input A[i: 9, j: 9], B[i, k: 9], C[j, k]"
    >>> find_folds(parse(f"{head}\\n{text}\\noutput Z"), ())
    {'P': Fold(total='Z', term='Y')}
    """
    users = graph.users()
    kept = {vertex.name for vertex in graph.outputs}
    order = {name: k for k, name in enumerate(graph.vertices)}
    found: dict[str, Fold] = {}

    def folds(product: Vertex, term: Vertex, total: Vertex) -> bool:
        if {product.name, term.name} & kept or product.name in reduced:
            return False
        if users[product.name] != [total.name] or isinstance(term.op, Input | Fill):
            return False
        # Whoever else reads the term must be done with it before the product is added.
        others = [name for name in users[term.name] if name != total.name]
        return (
            all(order[name] < order[product.name] for name in others)
            and order[term.name] < order[product.name]
        )

    for total in graph.vertices.values():
        op = total.op
        if not isinstance(op, EinSum) or op.agg is not None or op.join != _SUM:
            continue
        one, other = (graph[name] for name in total.inputs)
        if {*op.inputs} != {op.output} or one.name == other.name:
            continue
        for product, term in ((one, other), (other, one)):
            if _is_product(graph, product, total, term) and folds(product, term, total):
                found[product.name] = Fold(total.name, term.name)
                break
    return found


def _is_product(graph: Graph, product: Vertex, total: Vertex, term: Vertex) -> bool:
    if not isinstance(product.op, EinSum) or not total.dtype == term.dtype == product.dtype:
        return False
    return library_of("numpy").kernel(graph, product).adds
