"""Arc consistency: drops choices that no choice of some neighbour can go with at a finite cost."""

from __future__ import annotations

import numpy as np

from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arc_graph import ArcGraph
from eindecomp.solve.problem.arrays import Mask


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
