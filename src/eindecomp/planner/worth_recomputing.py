"""What `recompute="auto"` tries, one after another, until a plan fits into memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.recompute import LAYERS, Recompute, parts_of, recomputed
from eindecomp.graph.work import operations
from eindecomp.planner import budgets


def worth_recomputing(
    graph: Graph,
    tie: Mapping[str, str],
    work: float,
    memory: int,
    held: Callable[[Recompute], int],
) -> tuple[Recompute, ...]:
    """Nothing or, if that cannot fit, the first parts, as few as may do; and then all of them.

    Args:
        graph: The training step, such as `ed.rewrite(graph)`.
        tie: Its state, such as `{"W": "new_W"}`.
        work: How many times the operations of the step may be carried out, such as `1.34`.
        memory: The bytes that a device may hold.
        held: The bytes that each device holds in every plan that computes something again.
    """
    usual, full = (_operations(own) for own in (graph, recomputed(graph, LAYERS, tie)))
    parts = parts_of(graph, tie)
    most = parts
    if full > work * usual:
        most = int(parts * (work - 1) * usual / (full - usual))
    if not most:
        return (None,)
    last = LAYERS if most == parts else most
    needed = held(None)
    if needed <= memory:
        return None, last
    least = held(last)
    if least >= memory:
        return (last,)
    share = (needed - memory) / (needed - least)  # equal layers hold equally much
    some = (ceil(most * (share + more * (1 - share))) for more in budgets.MORE_RECOMPUTED)
    return *(parts for parts in some if parts < most), last


def _operations(graph: Graph) -> int:
    return sum(operations(graph, vertex) for vertex in graph.vertices.values())
