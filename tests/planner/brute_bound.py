"""The paper's objective by brute force: every viable vector of every vertex.

Written from the definitions alone, with nothing of the planner in it, for graphs of EinSums.
"""

from __future__ import annotations

from itertools import product
from math import ceil, gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from eindecomp import EinSum, Graph, Vertex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.planner.plan import Plan

Parts = dict[str, int]
"""Label to number of pieces."""


def made(graph: Graph) -> list[Vertex]:
    """The vertices that are computed."""
    found = [v for v in graph.vertices.values() if v.inputs]
    assert all(isinstance(v.op, EinSum) for v in found)
    return found


def viable(sizes: Mapping[str, int], devices: int) -> list[Parts]:
    """Every vector with `devices` pieces; if there is none, those with the most of its divisors."""
    divisors = [d for d in range(1, devices + 1) if devices % d == 0]
    for pieces in reversed(divisors):
        found = product(*([d for d in divisors if d <= size] for size in sizes.values()))
        vectors = [dict(zip(sizes, row, strict=True)) for row in found if prod(row) == pieces]
        if vectors:
            return vectors
    raise AssertionError("one piece always fits")


def tile(labels: Sequence[str], sizes: Mapping[str, int], parts: Parts) -> int:
    """The elements of the largest tile of a tensor with these labels."""
    return prod(ceil(sizes[label] / parts[label]) for label in labels)


def join_cost(inputs: Sequence[Sequence[str]], sizes: Mapping[str, int], parts: Parts) -> int:
    """What the kernel calls read."""
    return prod(parts.values()) * sum(tile(labels, sizes, parts) for labels in inputs)


def aggregate_cost(output: Sequence[str], sizes: Mapping[str, int], parts: Parts) -> int:
    """What reducing the partial results moves."""
    n_agg = prod(pieces for label, pieces in parts.items() if label not in output)
    return prod(parts.values()) // n_agg * (n_agg - 1) * tile(output, sizes, parts)


def repartition_cost(shape: Sequence[int], held: Sequence[int], need: Sequence[int]) -> int:
    """What taking a tensor from one number of pieces per dimension to another moves."""
    if tuple(held) == tuple(need):
        return 0
    sides_p = [ceil(n / a) for n, a in zip(shape, held, strict=True)]
    sides_c = [ceil(n / c) for n, c in zip(shape, need, strict=True)]
    n_p, n_c, n_int = prod(sides_p), prod(sides_c), prod(map(min, sides_p, sides_c))
    pairs = prod(a + c - gcd(a, c) for a, c in zip(held, need, strict=True))
    tiles = prod(need)
    return (pairs - tiles) * (n_c + n_p) + (n_p * tiles if n_p != n_int else 0)


def own_cost(graph: Graph, vertex: Vertex, parts: Parts) -> int:
    """Join and aggregation of one vertex."""
    sizes = graph.label_sizes(vertex)
    return join_cost(vertex.op.inputs, sizes, parts) + aggregate_cost(vertex.labels, sizes, parts)


def edge_cost(graph: Graph, reader: Vertex, k: int, held: Parts, need: Parts) -> int:
    """Handing over what input k of a vertex reads; given inputs come as they are wanted."""
    maker = graph[reader.inputs[k]]
    if not maker.inputs:
        return 0
    have = [held[label] for label in maker.labels]
    want = [need[label] for label in reader.op.inputs[k]]
    return repartition_cost(maker.shape, have, want)


def bound_of(graph: Graph, parts: Mapping[str, Parts]) -> int:
    """What a decomposition costs."""
    total = 0
    for vertex in made(graph):
        total += own_cost(graph, vertex, parts[vertex.name])
        for k, name in enumerate(vertex.inputs):
            total += edge_cost(graph, vertex, k, parts.get(name, {}), parts[vertex.name])
    return total


def brute_bound(graph: Graph, devices: int) -> int:
    """The least cost of all decompositions, summed in one array with an axis per vertex."""
    vertices = made(graph)
    choices = {v.name: viable(graph.label_sizes(v), devices) for v in vertices}
    axis = {name: i for i, name in enumerate(choices)}
    total = np.zeros([len(rows) for rows in choices.values()], np.int64)

    def add(table: list[int], *names: str) -> None:
        on = [len(choices[name]) if name in names else 1 for name in choices]
        order = sorted(names, key=lambda name: axis[name])
        raw = np.array(table).reshape([len(choices[name]) for name in names])
        total[...] += raw.transpose([names.index(name) for name in order]).reshape(on)

    for vertex in vertices:
        own = choices[vertex.name]
        add([own_cost(graph, vertex, parts) for parts in own], vertex.name)
        for k, name in enumerate(vertex.inputs):
            if name in choices:
                costs = [
                    edge_cost(graph, vertex, k, held, need)
                    for held in choices[name]
                    for need in own
                ]
                add(costs, name, vertex.name)
    return int(total.min())


def decompositions(graph: Graph, devices: int) -> int:
    """How many decompositions there are."""
    return prod(len(viable(graph.label_sizes(v), devices)) for v in made(graph))


def check_bound_plan(plan: Plan) -> None:
    """The parts of a plan are viable, and they cost what the plan says."""
    for vertex in made(plan.graph):
        sizes = plan.graph.label_sizes(vertex)
        parts = {label: plan.parts[vertex.name][label] for label in sizes}
        assert parts in viable(sizes, plan.devices)
    assert plan.cost == bound_of(plan.graph, plan.parts)
