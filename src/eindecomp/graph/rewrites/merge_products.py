"""Turning products of products into n-ary ones, whose order can then be chosen anew."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from eindecomp.graph.graph import Graph
from eindecomp.graph.orders import Order, order_of
from eindecomp.graph.rewrites.order_contractions import (
    Chain,
    ChainFactor,
    chain_of,
    join_factors,
    usual_steps,
)
from eindecomp.graph.rewrites.rebuild import rebuilt
from eindecomp.graph.vertex import Vertex, unused_label
from eindecomp.lang.dtypes import LOW_PRECISION
from eindecomp.lang.einsum import MAX_LABELS
from eindecomp.lang.scalar import Arg

MOST_FACTORS = 16
"""The most tensors that are merged into one product."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A product, the vertices that are computed within it, and the order that they make up."""

    chain: Chain
    absorbed: frozenset[str]
    written: Order


def merged_products(graph: Graph, keep: Collection[str] = ()) -> dict[str, Merged]:
    """The products of three tensors or more that make up a graph, by the name of their result.

    A product that only one other product reads, and only once, is a part of it, unless it is an
    output or among `keep`. All its tensors are of one type, and not of low precision: results that
    are stored are rounded, and their range is that of the type.
    """
    reads = graph.reads()
    kept = {*keep, *(vertex.name for vertex in graph.outputs)}
    products: dict[str, Merged] = {}
    for vertex in graph.vertices.values():
        chain = chain_of(vertex, graph)
        if chain is None:
            continue
        count = len(chain.factors)
        steps = usual_steps(chain, graph) if count > 2 else [(0, 1)]
        own = Merged(chain, frozenset(), order_of(steps, count))
        for factor in chain.factors:
            inner = products.get(factor.name)
            if inner is not None and factor.name not in kept and reads[factor.name] == 1:
                larger = _absorb(own, factor, inner, vertex, graph)
                if larger is not None:
                    own = larger
        for name in own.absorbed:
            products.pop(name, None)
        products[vertex.name] = own
    sums = ((name, own) for name, own in products.items() if own.chain.agg is not None)
    return {name: own for name, own in sums if len(own.chain.factors) > 2}


def merge_products(graph: Graph, products: dict[str, Merged]) -> Graph:
    """The graph with some of its products as one vertex each.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "input A[i: 9, j: 9], B[j, k: 9], c[k]\\nY[i,k] <- sum A[i,j] * B[j,k]\\n"
    >>> graph = parse(text + "Z[i] <- sum Y[i,k] * c[k]\\noutput Z")
    >>> print(merge_products(graph, merged_products(graph)))
    input A[i: 9, j: 9]
    input B[j: 9, k: 9]
    input c[k: 9]
    Z[i] <- sum A[i,j] * B[j,k] * c[k]
    output Z
    """
    gone = {name for product in products.values() for name in product.absorbed}

    def put(vertex: Vertex, merged: Graph) -> bool:
        name = vertex.name
        if name in products:
            chain = products[name].chain
            operands = [(factor.name, factor.labels) for factor in chain.factors]
            join = join_factors(chain.factors, chain.join)
            merged.add_einsum(chain.output, operands, join, chain.agg, name, vertex.sizes)
        return name in products or name in gone

    return rebuilt(graph, put)


def _absorb(
    outer: Merged, factor: ChainFactor, inner: Merged, vertex: Vertex, graph: Graph
) -> Merged | None:
    """A product with one of its factors replaced by what makes it; None where that is wrong."""
    chain, part = outer.chain, inner.chain
    agg = part.agg if chain.agg is None else chain.agg
    if factor.map != Arg(0) or part.join != chain.join or part.agg not in (None, agg):
        return None
    types = {vertex.dtype, *(graph[f.name].dtype for f in (*chain.factors, *part.factors))}
    if len(types) > 1 or types & LOW_PRECISION:
        return None
    at = chain.factors.index(factor)
    taken = _renamed(outer, factor, part)
    factors = (*chain.factors[:at], *taken, *chain.factors[at + 1 :])
    labels = {label for each in factors for label in each.labels}
    distinct = {(each.name, each.labels) for each in factors}
    seen = {label for each in taken for label in each.labels}
    if len(factors) > MOST_FACTORS or len(labels) > MAX_LABELS or len(distinct) < len(factors):
        return None
    if not set(factor.labels) <= seen:
        return None  # it broadcasts
    whole = replace(chain, agg=agg, factors=factors)
    absorbed = outer.absorbed | inner.absorbed | {factor.name}
    return Merged(whole, absorbed, _nested(outer.written, inner.written, at, len(taken)))


def _renamed(outer: Merged, factor: ChainFactor, part: Chain) -> tuple[ChainFactor, ...]:
    """The factors of a product with the labels under which another one reads it."""
    names = dict(zip(part.output, factor.labels, strict=True))
    used = {*outer.chain.output, *(label for f in outer.chain.factors for label in f.labels)}
    for each in part.factors:
        for label in each.labels:
            if label not in names:
                names[label] = unused_label(label, used)
                used.add(names[label])
    return tuple(
        replace(each, labels=tuple(names[label] for label in each.labels)) for each in part.factors
    )


def _nested(outer: Order, inner: Order, at: int, count: int) -> Order:
    """The order of a product whose operand `at` is made of `count` operands in an order."""
    below = (1 << at) - 1
    grown = (1 << count) - 1 << at

    def widened(mask: int) -> int:
        above = mask >> (at + 1) << (at + count)
        return mask & below | above | (grown if mask >> at & 1 else 0)

    return frozenset([*(widened(mask) for mask in outer), *(mask << at for mask in inner)])
