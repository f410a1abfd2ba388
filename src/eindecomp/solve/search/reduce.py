"""Makes a core smaller without changing its optimum, and lifts its choices back.

Each round drops choices and contracts variables. *Arc consistency* drops choices that no choice of
some neighbour goes with at a finite cost. *Domination* (Goldstein's criterion) drops `a` if
replacing it by another choice `b` of the same variable does not cost more, even with each neighbour
at its worst, and does not use more. A variable is contracted into a neighbour that determines it,
each of whose choices leaves it one finite choice: in compiled programs those are most, because an
element-wise operation takes its operand's layout. When that no longer helps, redundant time steps
are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eindecomp.errors import InfeasibleError
from eindecomp.solve import budgets
from eindecomp.solve.clock import has_passed
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Ints, Mask, offsets
from eindecomp.solve.problem.core import ArcGraph, Core, arc_graph_of
from eindecomp.solve.search.substitute import (
    Substitution,
    compress_steps,
    keep_choices,
    prune_steps,
    substitute,
)


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A smaller core, and the steps that led to it."""

    core: Core
    steps: tuple[Substitution, ...]

    def lift(self, choice: Ints) -> Ints:
        """The choice of the original core, given one of the reduced core."""
        for sub in reversed(self.steps):
            choice = sub.lift(choice)
        return choice

    def push(self, choice: Ints) -> Ints:
        """The choice of the reduced core that comes closest to one of the original core."""
        for step in self.steps:
            choice = step.push(choice)
        return choice


def reduce_core(core: Core, deadline: float = np.inf, rounds: int = 50) -> Reduced:
    """Reduce until nothing changes or time is up; a reduction cut short is valid too.

    Raises `InfeasibleError` if a variable has no choice left.
    """
    core = compress_steps(core)
    # Every variable for itself: parallel edges and loops are merged.
    first = keep_choices(core, np.ones(core.unary.size, dtype=bool))
    core, steps = substitute(core, first), [first]
    for turn in range(rounds):
        # The first round is cheap, and without it the search does not get to a first choice.
        if turn > 0 and has_passed(deadline):
            break
        core, pruned = _prune(core, steps)
        contracted = determined_variables(core)
        if contracted is not None:
            core = substitute(core, contracted)
            steps.append(contracted)
        if pruned or contracted is not None:
            core = compress_steps(core)
            continue
        # With fewer steps, more choices are dominated.
        steps_before = core.capacity.size
        core = prune_steps(core)
        if core.capacity.size == steps_before:
            break
    return Reduced(core, tuple(steps))


def _prune(core: Core, steps: list[Substitution]) -> tuple[Core, bool]:
    """Drop impossible and dominated choices; whether there were any."""
    graph = arc_graph_of(core)
    keep = np.isfinite(core.unary)
    if not make_arc_consistent(graph, keep):
        raise InfeasibleError("infinite costs rule out every choice")
    drop_dominated(graph, keep)
    if keep.all() and (core.domains > 1).all():
        return core, False
    sub = keep_choices(core, keep)
    steps.append(sub)
    return substitute(core, sub), True


@compiled
def make_arc_consistent(graph: ArcGraph, keep: Mask) -> bool:
    """Clear `keep` for choices without a finite cell; False if a variable has no choice left."""
    dropped = True
    while dropped:
        dropped = False
        for v in range(graph.offset.size - 1):
            for arc in range(graph.start[v], graph.start[v + 1]):
                if _drop_unsupported(graph, keep, arc):
                    dropped = True
            if not keep[graph.offset[v] : graph.offset[v + 1]].any():
                return False
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
        if size * size * around > budgets.COMPARED_CELLS:
            continue
        for a in range(size):
            if not keep[base + a]:
                continue
            for b in range(size):
                if a == b or not keep[base + b] or graph.unary[base + b] > graph.unary[base + a]:
                    continue
                if _beats(graph, keep, u, a, b):
                    keep[base + a] = False
                    break


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


def determined_variables(core: Core) -> Substitution | None:
    """The substitution that contracts all determined variables; None if there are none."""
    parent, via = _determined(core, core.tables.size + budgets.CONTRACTED_GROWTH)
    if not (parent >= 0).any():
        return None
    roots = parent < 0
    index = np.cumsum(roots) - 1
    root = _roots(parent)
    start = offsets(core.domains[root])
    value = _compose(core, parent, via, start)
    return Substitution(core.domains[roots], index[root], start[:-1], value)


@compiled
def _determined(core: Core, most_entries: int) -> tuple[Ints, Ints]:
    """A forest of determined variables: each one's parent and the edge to it, or -1."""
    offset, edges = core.offset, core.edges
    n, m = offset.size - 1, edges.shape[0]
    parent, via = np.full(n, -1), np.full(n, -1)
    degree = np.zeros(n, dtype=np.int64)
    entries = np.zeros(n, dtype=np.int64)
    total = core.tables.size
    for e in range(m):
        for s in range(2):
            degree[edges[e, s]] += 1
            entries[edges[e, s]] += core.table_offset[e + 1] - core.table_offset[e]
    for want_bijection in (True, False):
        for e in range(m):
            rows_one, cols_one = _one_each(core, e)
            if want_bijection and not (rows_one and cols_one):
                continue
            for s in range(2):
                # All rows have one finite cell: the row's choice determines the column's.
                child, up = edges[e, 1 - s], edges[e, s]
                if not (rows_one if s == 0 else cols_one) or parent[child] >= 0:
                    continue
                root = up
                while parent[root] >= 0:
                    root = parent[root]
                if root == child:
                    continue
                small, large = offset[child + 1] - offset[child], offset[root + 1] - offset[root]
                growth = entries[child] * (large - small) // small
                if degree[child] > 1 and total + growth > most_entries:
                    continue
                total += growth
                parent[child], via[child] = up, e
                break
    return parent, via


@compiled
def _one_each(core: Core, e: int) -> tuple[bool, bool]:
    """Whether each row, and whether each column, has exactly one finite cell."""
    u, v = core.edges[e]
    rows, cols = core.offset[u + 1] - core.offset[u], core.offset[v + 1] - core.offset[v]
    in_col = np.zeros(cols, dtype=np.int64)
    rows_one = True
    for i in range(rows):
        count = 0
        for j in range(cols):
            if np.isfinite(core.tables[core.table_offset[e] + i * cols + j]):
                count += 1
                in_col[j] += 1
        rows_one = rows_one and count == 1
    return rows_one, (in_col == 1).all()


@compiled
def _roots(parent: Ints) -> Ints:
    root = np.arange(parent.size)
    for i in range(parent.size):
        r = i
        while parent[r] >= 0:
            r = parent[r]
        root[i] = r
    return root


@compiled
def _compose(core: Core, parent: Ints, via: Ints, start: Ints) -> Ints:
    """Each variable's choice as a function of its root's, along the tree."""
    offset, edges = core.offset, core.edges
    value = np.zeros(start[-1], dtype=np.int64)
    path = np.zeros(parent.size, dtype=np.int64)
    for i in range(parent.size):
        depth, r = 0, i
        while parent[r] >= 0:
            path[depth] = r
            depth += 1
            r = parent[r]
        for k in range(offset[r + 1] - offset[r]):
            chosen, above = k, r
            for d in range(depth - 1, -1, -1):
                child = path[d]
                e = via[child]
                cols = offset[edges[e, 1] + 1] - offset[edges[e, 1]]
                size = offset[child + 1] - offset[child]
                for j in range(size):
                    place = chosen * cols + j if edges[e, 0] == above else j * cols + chosen
                    if np.isfinite(core.tables[core.table_offset[e] + place]):
                        chosen = j
                        break
                above = child
            value[start[i] + k] = chosen
    return value
