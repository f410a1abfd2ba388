"""Sums of a tensor and a matrix product: the product is added to the tensor where that lies.

Neither the product nor the sum takes memory of its own then, or a pass over it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.engines.threads.tiled import SumInPlace
from eindecomp.graph.ops import Fill, Input
from eindecomp.kernels.library import library_of
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Arg, call

if TYPE_CHECKING:
    from collections.abc import Collection

    from eindecomp.engines.threads.tiled import TiledProgram
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

_SUM = call("add", Arg(0), Arg(1))


def add_products_in_place(program: TiledProgram) -> TiledProgram:
    """The same program without the sums into whose other term a product can be added."""
    reduced = {tiled.name for tiled in program.vertices if tiled.is_partial}
    sums = find_sums(program.graph, reduced)
    totals = {each.total for each in sums.values()}
    vertices = (
        replace(tiled, added=sums.get(tiled.name))
        for tiled in program.vertices
        if tiled.name not in totals
    )
    return replace(program, vertices=tuple(vertices))


def find_sums(graph: Graph, reduced: Collection[str]) -> dict[str, SumInPlace]:
    """Products to add in place; `reduced` are the vertices that are summed over several devices.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "Y[i,k] <- exp(B[i,k])\\nP[i,k] <- sum A[i,j] * C[j,k]\\nZ[i,k] <- Y[i,k] + P[i,k]"
    >>> head = "input A[i: 9, j: 9], B[i, k: 9], C[j, k]"
    >>> find_sums(parse(f"{head}\\n{text}\\noutput Z"), ())
    {'P': SumInPlace(total='Z', term='Y')}
    """
    users = graph.users()
    kept = {vertex.name for vertex in graph.outputs}
    order = {name: k for k, name in enumerate(graph.vertices)}
    sums: dict[str, SumInPlace] = {}

    def is_free(product: Vertex, term: Vertex, total: Vertex) -> bool:
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
            if _is_product(graph, product, total, term) and is_free(product, term, total):
                sums[product.name] = SumInPlace(total.name, term.name)
                break
    return sums


def _is_product(graph: Graph, product: Vertex, total: Vertex, term: Vertex) -> bool:
    if not isinstance(product.op, EinSum) or not total.dtype == term.dtype == product.dtype:
        return False
    return library_of(np.ndarray).kernel(graph, product).adds
