"""Makes a core smaller without changing its optimum, and takes a choice back to the problem.

Rounds of: drop choices that no finite table supports (arc consistency), drop choices that another
one beats whatever the neighbours do (Goldstein's dominance; usages must not rise), and contract a
variable into a neighbour that determines it (each choice of the one leaves the other one finite
choice). In compiled programs most variables are contracted: an elementwise op takes its operand's
layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import numpy as np

from eindecomp.errors import InfeasibleError
from eindecomp.solve.compiled import Mask, compiled
from eindecomp.solve.core import Core
from eindecomp.solve.dominate import drop_dominated
from eindecomp.solve.graph import Graph, graph_of
from eindecomp.solve.items import compress_steps
from eindecomp.solve.problem import Floats, Ints, offsets
from eindecomp.solve.series import Elimination, eliminate_series
from eindecomp.solve.steps import prune_steps
from eindecomp.solve.substitute import Substitution, substitute

Step = Substitution | Elimination

_GROWTH = 1 << 21  # table entries that contraction may add


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A smaller core and the substitutions that lead to it."""

    core: Core
    steps: tuple[Step, ...]

    def lift(self, choice: Ints) -> Ints:
        """The choice of the core the reduction started from."""
        for sub in reversed(self.steps):
            choice = sub.lift(choice)
        return choice

    def push(self, choice: Ints) -> Ints:
        """The choice of the reduced core that comes nearest to one of the core before."""
        for step in self.steps:
            choice = step.push(choice)
        return choice


def reduce_core(core: Core, deadline: float = np.inf, rounds: int = 50) -> Reduced:
    """Reduce until nothing changes or time is up: what is done by then is a reduction too.

    Raises `InfeasibleError` if a variable is left no choice.
    """
    core, first = _normalise(compress_steps(core))
    steps: list[Step] = [first]
    for turn in range(rounds):
        # The first round is cheap, and without it the search finds no first choice.
        if turn > 0 and monotonic() > deadline:
            break
        core, pruned = _prune(core, steps)
        core, contracted = _contract(core, steps)
        if pruned or contracted:
            core = compress_steps(core)
            continue
        # Fewer steps leave more variables free of usage, and free ones reduce further.
        before = core.size
        core, eliminated = eliminate_series(prune_steps(core))
        steps.append(eliminated)
        if core.size == before:
            break
    return Reduced(core, tuple(steps))


def _normalise(core: Core) -> tuple[Core, Substitution]:
    """Merge parallel edges and self-loops by substituting every variable for itself."""
    sub = keep_choices(core, np.ones(core.unary.size, dtype=bool))
    return substitute(core, sub), sub


def keep_choices(core: Core, keep: np.ndarray) -> Substitution:
    """The substitution that leaves the kept choices; variables with one become constants."""
    sizes = np.add.reduceat(keep, core.offset[:-1], dtype=np.int64) if core.size else core.domains
    free = sizes > 1
    owner = np.where(free, np.cumsum(free) - 1, -1)
    value = np.arange(core.unary.size) - np.repeat(core.offset[:-1], core.domains)
    return Substitution(sizes[free], owner, offsets(sizes)[:-1], value[keep])


def _prune(core: Core, steps: list[Step]) -> tuple[Core, bool]:
    graph = graph_of(core)
    keep = np.isfinite(core.unary)
    if not _make_arc_consistent(graph, keep):
        raise InfeasibleError("infinite costs leave no choice at all")
    drop_dominated(graph, keep)
    if keep.all() and (core.domains > 1).all():
        return core, False
    sub = keep_choices(core, keep)
    steps.append(sub)
    return substitute(core, sub), True


def _contract(core: Core, steps: list[Step]) -> tuple[Core, bool]:
    parent, via = _determined(
        core.offset, core.edges, core.table_offset, core.tables, core.tables.size + _GROWTH
    )
    if not (parent >= 0).any():
        return core, False
    roots = parent < 0
    index = np.cumsum(roots) - 1
    sizes = core.domains[roots]
    root = _roots(parent)
    start = offsets(core.domains[root])
    value = _compose(parent, via, core.offset, core.edges, core.table_offset, core.tables, start)
    sub = Substitution(sizes, index[root], start[:-1], value)
    steps.append(sub)
    return substitute(core, sub), True


@compiled
def _make_arc_consistent(graph: Graph, keep: Mask) -> bool:
    """Clear `keep` where an edge has no finite cell left; False if a variable has none left."""
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
def _drop_unsupported(graph: Graph, keep: Mask, arc: int) -> bool:
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
def _determined(
    offset: Ints, edges: Ints, table_offset: Ints, tables: Floats, most_entries: int
) -> tuple[Ints, Ints]:
    """A forest of variables determined by a neighbour: the parent, and the edge to it, or -1."""
    n, m = offset.size - 1, edges.shape[0]
    parent, via = np.full(n, -1), np.full(n, -1)
    degree = np.zeros(n, dtype=np.int64)
    entries = np.zeros(n, dtype=np.int64)
    total = tables.size
    for e in range(m):
        for s in range(2):
            degree[edges[e, s]] += 1
            entries[edges[e, s]] += table_offset[e + 1] - table_offset[e]
    for want_bijection in (True, False):
        for e in range(m):
            rows_one, cols_one = _one_each(e, offset, edges, table_offset, tables)
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
def _one_each(
    e: int, offset: Ints, edges: Ints, table_offset: Ints, tables: Floats
) -> tuple[bool, bool]:
    """Whether each row, and whether each column, has exactly one finite cell."""
    rows = offset[edges[e, 0] + 1] - offset[edges[e, 0]]
    cols = offset[edges[e, 1] + 1] - offset[edges[e, 1]]
    in_col = np.zeros(cols, dtype=np.int64)
    rows_one = True
    for i in range(rows):
        count = 0
        for j in range(cols):
            if np.isfinite(tables[table_offset[e] + i * cols + j]):
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
def _compose(
    parent: Ints,
    via: Ints,
    offset: Ints,
    edges: Ints,
    table_offset: Ints,
    tables: Floats,
    start: Ints,
) -> Ints:
    """Each variable's choice as a function of its root's, along the tree."""
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
                    if np.isfinite(tables[table_offset[e] + place]):
                        chosen = j
                        break
                above = child
            value[start[i] + k] = chosen
    return value
