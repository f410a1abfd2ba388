"""Choices that another choice of the same variable beats, whatever the neighbours do.

Goldstein's criterion: swapping `a` for `b` never costs more, edge by edge at its worst, and never
uses more.
"""

from __future__ import annotations

import numpy as np

from eindecomp.solve.compiled import Mask, compiled
from eindecomp.solve.problem import Floats, Ints

_COMPARISONS = 1 << 22  # cells compared for one variable's dominated choices


@compiled
def drop_dominated(
    offset: Ints,
    unary: Floats,
    edges: Ints,
    table_offset: Ints,
    tables: Floats,
    start: Ints,
    edge: Ints,
    item_start: Ints,
    item_offset: Ints,
    item_usage: Floats,
    keep: Mask,
) -> None:
    """Clear `keep` for choices that another kept choice of the same variable beats."""
    for u in range(offset.size - 1):
        size = offset[u + 1] - offset[u]
        base = offset[u]
        around = 0
        for p in range(start[u], start[u + 1]):
            around += (table_offset[edge[p] + 1] - table_offset[edge[p]]) // size
        if size * size * around > _COMPARISONS:
            continue
        favourite = np.zeros(start[u + 1] - start[u], dtype=np.int64)
        for a in range(size):
            if not keep[base + a]:
                continue
            _favourites(u, a, offset, edges, table_offset, tables, start, edge, keep, favourite)
            for b in range(size):
                if a == b or not keep[base + b] or unary[base + b] > unary[base + a]:
                    continue
                if _may_beat(
                    u, a, b, offset, unary, edges, table_offset, tables, start, edge, favourite
                ) and _beats(
                    u, a, b, offset, unary, edges, table_offset, tables, start, edge, item_start,
                    item_offset, item_usage, keep,
                ):  # fmt: skip
                    keep[base + a] = False
                    break


@compiled
def _favourites(
    u: int,
    a: int,
    offset: Ints,
    edges: Ints,
    table_offset: Ints,
    tables: Floats,
    start: Ints,
    edge: Ints,
    keep: Mask,
    favourite: Ints,
) -> None:
    """For each neighbour of `u` the choice that suits choice `a` best."""
    for p in range(start[u], start[u + 1]):
        e = edge[p]
        first = edges[e, 0] == u
        v = edges[e, 1] if first else edges[e, 0]
        size_u, size_v = offset[u + 1] - offset[u], offset[v + 1] - offset[v]
        least = np.inf
        for j in range(size_v):
            cell = tables[table_offset[e] + (a * size_v + j if first else j * size_u + a)]
            if keep[offset[v] + j] and cell < least:
                least = cell
                favourite[p - start[u]] = j


@compiled
def _may_beat(
    u: int,
    a: int,
    b: int,
    offset: Ints,
    unary: Floats,
    edges: Ints,
    table_offset: Ints,
    tables: Floats,
    start: Ints,
    edge: Ints,
    favourite: Ints,
) -> bool:
    """Whether `b` is no worse where the neighbours suit `a` best: quick, and refuses nearly all."""
    spare = unary[offset[u] + a] - unary[offset[u] + b]
    for p in range(start[u], start[u + 1]):
        e = edge[p]
        j = favourite[p - start[u]]
        first = edges[e, 0] == u
        if first:
            width = offset[edges[e, 1] + 1] - offset[edges[e, 1]]
            base, stride = table_offset[e] + j, width
        else:
            base, stride = table_offset[e] + j * (offset[u + 1] - offset[u]), 1
        spare -= tables[base + b * stride] - tables[base + a * stride]
    return bool(spare >= 0.0)


@compiled
def _beats(
    u: int,
    a: int,
    b: int,
    offset: Ints,
    unary: Floats,
    edges: Ints,
    table_offset: Ints,
    tables: Floats,
    start: Ints,
    edge: Ints,
    item_start: Ints,
    item_offset: Ints,
    item_usage: Floats,
    keep: Mask,
) -> bool:
    """Whether swapping choice `a` of `u` for `b` never costs or uses more."""
    for item in range(item_start[u], item_start[u + 1]):
        if item_usage[item_offset[item] + b] > item_usage[item_offset[item] + a]:
            return False
    spare = unary[offset[u] + a] - unary[offset[u] + b]
    for p in range(start[u], start[u + 1]):
        e = edge[p]
        first = edges[e, 0] == u
        v = edges[e, 1] if first else edges[e, 0]
        size_u, size_v = offset[u + 1] - offset[u], offset[v + 1] - offset[v]
        worst = -np.inf
        for j in range(size_v):
            if not keep[offset[v] + j]:
                continue
            cell_a = tables[table_offset[e] + (a * size_v + j if first else j * size_u + a)]
            cell_b = tables[table_offset[e] + (b * size_v + j if first else j * size_u + b)]
            if np.isinf(cell_a):
                continue  # a and j never meet, so b need not beat a there
            worst = max(worst, cell_b - cell_a)
        spare -= worst
        # Later edges may give back: only an infinite loss is final.
        if spare == -np.inf:
            return False
    return bool(spare >= 0)
