"""Drops choices that cannot be, or need not be, part of the best one.

*Arc consistency* drops choices that no choice of some neighbour goes with at a finite cost.
*Domination* (Goldstein's criterion) drops `a` if replacing it by another choice `b` of the same
variable does not cost more, even with each neighbour at its worst, and does not use more.
"""

from __future__ import annotations

import numpy as np

from eindecomp.solve.budgets import COMPARED_CELLS
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arc_graph import ArcGraph
from eindecomp.solve.problem.arrays import Ints, Mask


@compiled
def make_arc_consistent(graph: ArcGraph, keep: Mask) -> bool:
    """Clear `keep` for choices without a finite cell; False if a variable has no choice left."""
    n = graph.offset.size - 1
    for v in range(n):
        if not keep[graph.offset[v] : graph.offset[v + 1]].any():
            return False
    queued = np.ones(n, dtype=np.bool_)
    stack = np.arange(n)[::-1].copy()
    top = n
    while top > 0:
        top -= 1
        u = stack[top]
        queued[u] = False
        for arc in range(graph.start[u], graph.start[u + 1]):
            v = graph.to[arc]
            dropped = _drop_unsupported(graph, keep, graph.back[arc])
            if dropped and not keep[graph.offset[v] : graph.offset[v + 1]].any():
                return False
            if dropped and not queued[v]:
                queued[v] = True
                stack[top] = v
                top += 1
    return True


@compiled
def _drop_unsupported(graph: ArcGraph, keep: Mask, arc: int) -> bool:
    """Clear `keep` for choices at an arc's start without a finite cell; whether there were any."""
    v, u = graph.to[graph.back[arc]], graph.to[arc]
    width = graph.offset[u + 1] - graph.offset[u]
    dropped = False
    for j in range(graph.offset[v + 1] - graph.offset[v]):
        if not keep[graph.offset[v] + j]:
            continue
        row = graph.table[arc] + j * width
        supported = False
        for i in range(width):
            if keep[graph.offset[u] + i] and np.isfinite(graph.cells[row + i]):
                supported = True
                break
        if not supported:
            keep[graph.offset[v] + j] = False
            dropped = True
    return dropped


@compiled
def drop_dominated(graph: ArcGraph, keep: Mask) -> None:
    """Clear `keep` for choices that another kept choice of the same variable beats."""
    for u in range(graph.offset.size - 1):
        base, size = graph.offset[u], graph.offset[u + 1] - graph.offset[u]
        around = graph.message[graph.start[u + 1]] - graph.message[graph.start[u]]
        if size * size * around > COMPARED_CELLS:
            continue
        favourite = np.zeros(graph.start[u + 1] - graph.start[u], dtype=np.int64)
        for a in range(size):
            if not keep[base + a]:
                continue
            _favourites(graph, keep, u, a, favourite)
            for b in range(size):
                if a == b or not keep[base + b] or graph.unary[base + b] > graph.unary[base + a]:
                    continue
                if _may_beat(graph, u, a, b, favourite) and _beats(graph, keep, u, a, b):
                    keep[base + a] = False
                    break


@compiled
def _favourites(graph: ArcGraph, keep: Mask, u: int, a: int, favourite: Ints) -> None:
    """For each arc from `u`, the choice at its end that costs least together with `a`."""
    for arc in range(graph.start[u], graph.start[u + 1]):
        width = graph.message[arc + 1] - graph.message[arc]
        row, kept = graph.table[arc] + a * width, graph.offset[graph.to[arc]]
        least = np.inf
        for j in range(width):
            if keep[kept + j] and graph.cells[row + j] < least:
                least = graph.cells[row + j]
                favourite[arc - graph.start[u]] = j


@compiled
def _may_beat(graph: ArcGraph, u: int, a: int, b: int, favourite: Ints) -> bool:
    """Whether `b` is no worse if the neighbours suit `a` best: quick, and rules out nearly all."""
    spare = graph.unary[graph.offset[u] + a] - graph.unary[graph.offset[u] + b]
    for arc in range(graph.start[u], graph.start[u + 1]):
        width = graph.message[arc + 1] - graph.message[arc]
        cell = graph.table[arc] + favourite[arc - graph.start[u]]
        spare -= graph.cells[cell + b * width] - graph.cells[cell + a * width]
    return bool(spare >= 0.0)


@compiled
def _beats(graph: ArcGraph, keep: Mask, u: int, a: int, b: int) -> bool:
    """Whether replacing choice `a` of `u` by `b` never costs or uses more."""
    for item in range(graph.item_start[u], graph.item_start[u + 1]):
        usage = graph.item_offset[item]
        if graph.item_usage[usage + b] > graph.item_usage[usage + a]:
            return False
    spare = graph.unary[graph.offset[u] + a] - graph.unary[graph.offset[u] + b]
    for arc in range(graph.start[u], graph.start[u + 1]):
        width = graph.message[arc + 1] - graph.message[arc]
        row_a, row_b = graph.table[arc] + a * width, graph.table[arc] + b * width
        kept = graph.offset[graph.to[arc]]
        worst = -np.inf
        for j in range(width):
            # Where a and j exclude each other, b need not beat a.
            if keep[kept + j] and not np.isinf(graph.cells[row_a + j]):
                worst = max(worst, graph.cells[row_b + j] - graph.cells[row_a + j])
        spare -= worst
        # Later edges may make up for this one: only an infinite loss is final.
        if spare == -np.inf:
            return False
    return bool(spare >= 0)
