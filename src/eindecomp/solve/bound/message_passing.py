"""Lower bounds by sequential tree-reweighted message passing (TRW-S), with decoding.

Messages only shift costs between tables, so whatever they are, the sum of the minima of all
variables and edges bounds the optimum from below. `sweep` improves the messages, `bound` evaluates
them, `decode` derives a choice.
"""

from __future__ import annotations

import numpy as np

from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arc_graph import ArcGraph
from eindecomp.solve.problem.arrays import Floats, Ints


@compiled
def sweep(graph: ArcGraph, unary: Floats, messages: Floats, forward: bool) -> None:
    """One pass over the variables, forward or backward, that updates messages in place."""
    n = graph.offset.size - 1
    belief = np.zeros(largest_domain(graph))
    for position in range(n):
        s = position if forward else n - 1 - position
        ahead = gather(graph, unary, messages, belief, s, forward)
        scatter(graph, messages, belief, s, forward, ahead)


@compiled
def gather(
    graph: ArcGraph, unary: Floats, messages: Floats, belief: Floats, s: int, forward: bool
) -> int:
    """Add up the belief of `s`, its unary costs and incoming messages; how many arcs lead ahead."""
    size = graph.offset[s + 1] - graph.offset[s]
    ahead = 0
    for k in range(size):
        belief[k] = unary[graph.offset[s] + k]
    for a in range(graph.start[s], graph.start[s + 1]):
        incoming = graph.message[graph.back[a]]
        for k in range(size):
            belief[k] += messages[incoming + k]
        if (graph.to[a] > s) == forward:
            ahead += 1
    return ahead


@compiled
def scatter(
    graph: ArcGraph, messages: Floats, belief: Floats, s: int, forward: bool, ahead: int
) -> None:
    """Send the belief of `s`, divided among its arcs, along those that lead ahead."""
    share = 1.0 / max(ahead, graph.start[s + 1] - graph.start[s] - ahead, 1)
    for a in range(graph.start[s], graph.start[s + 1]):
        if (graph.to[a] > s) == forward:
            _send(graph, messages, belief, share, a, graph.offset[s + 1] - graph.offset[s])


@compiled
def _send(
    graph: ArcGraph, messages: Floats, belief: Floats, share: float, a: int, size: int
) -> None:
    incoming = graph.message[graph.back[a]]
    out = messages[graph.message[a] : graph.message[a + 1]]
    width = out.size
    for k in range(size):
        free = share * belief[k] - messages[incoming + k]
        row = graph.cells[graph.table[a] + k * width : graph.table[a] + (k + 1) * width]
        if k == 0:
            for j in range(width):
                out[j] = row[j] + free
        else:
            for j in range(width):
                out[j] = min(out[j], row[j] + free)
    least = out[0]
    for j in range(width):
        least = min(least, out[j])
    for j in range(width):
        out[j] -= least


@compiled
def bound(graph: ArcGraph, unary: Floats, messages: Floats) -> tuple[float, float]:
    """The bound that the messages prove, and a sum of magnitudes that limits its rounding error.

    A variable's belief is divided among its edges to earlier variables, as in a backward sweep.
    """
    total, magnitude = 0.0, 0.0
    belief = np.zeros(largest_domain(graph))
    for s in range(graph.offset.size - 1):
        size = graph.offset[s + 1] - graph.offset[s]
        behind, degree = 0, graph.start[s + 1] - graph.start[s]
        largest = 0.0
        for k in range(size):
            belief[k] = unary[graph.offset[s] + k]
            if belief[k] < np.inf:
                largest = max(largest, abs(belief[k]))
        for a in range(graph.start[s], graph.start[s + 1]):
            incoming = graph.message[graph.back[a]]
            reach = 0.0
            for k in range(size):
                belief[k] += messages[incoming + k]
                reach = max(reach, abs(messages[incoming + k]))
            largest += reach
            if graph.to[a] < s:
                behind += 1
        share = 1.0 / max(behind, degree - behind, 1)
        for a in range(graph.start[s], graph.start[s + 1]):
            if graph.to[a] < s:
                total += _edge_least(graph, messages, belief, share, a, size)
        total += max(1.0 - behind * share, 0.0) * belief[:size].min()
        magnitude += abs(total) + largest * (degree + 4)
    return total, magnitude


@compiled
def _edge_least(
    graph: ArcGraph, messages: Floats, belief: Floats, share: float, a: int, size: int
) -> float:
    """The minimum of an edge's reparametrised costs plus its share of the source's belief."""
    incoming, outgoing = graph.message[graph.back[a]], graph.message[a]
    width = graph.message[a + 1] - outgoing
    least = np.inf
    for k in range(size):
        free = share * belief[k] - messages[incoming + k]
        row = graph.table[a] + k * width
        for j in range(width):
            least = min(least, graph.cells[row + j] + free - messages[outgoing + j])
    return least


@compiled
def decode(graph: ArcGraph, unary: Floats, messages: Floats, choice: Ints) -> None:
    """Fix variables in order, each to its best given those fixed and the messages of the rest."""
    belief = np.zeros(largest_domain(graph))
    for s in range(graph.offset.size - 1):
        size = graph.offset[s + 1] - graph.offset[s]
        for k in range(size):
            belief[k] = unary[graph.offset[s] + k]
        for a in range(graph.start[s], graph.start[s + 1]):
            back, t = graph.back[a], graph.to[a]
            base = graph.message[back]
            if t > s:
                for k in range(size):
                    belief[k] += messages[base + k]
            else:
                row = graph.table[back] + choice[t] * size
                for k in range(size):
                    belief[k] += graph.cells[row + k]
        choice[s] = np.argmin(belief[:size])


@compiled
def largest_domain(graph: ArcGraph) -> int:
    """The largest number of choices of any variable."""
    largest = 1
    for v in range(graph.offset.size - 1):
        largest = max(largest, graph.offset[v + 1] - graph.offset[v])
    return largest
