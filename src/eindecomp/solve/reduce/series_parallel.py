"""Eliminates variables with one or two neighbours and no usage (series-parallel reduction).

Such a variable's best choice depends on its neighbours alone, so its costs become a unary cost of
one neighbour or a table between two. This is exact; `Elimination.lift` restores the best choices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eindecomp.solve.problem.arrays import Floats, Ints, offsets
from eindecomp.solve.problem.core import Core

_CELLS = 1 << 12  # a new table may be this large even if it is larger than the two it replaces
_JOINED = 1 << 26  # the most cells of a joined table


@dataclass(frozen=True, slots=True, eq=False)
class Elimination:
    """What was eliminated, in order: a variable, its neighbours, its best choice given theirs."""

    kept: Ints
    size: int
    eliminated: tuple[tuple[int, tuple[int, ...], Ints], ...]

    def lift(self, choice: Ints) -> Ints:
        """The old variables' choice, given the kept ones'."""
        full = np.zeros(self.size, dtype=np.int64)
        full[self.kept] = choice
        for variable, around, best in reversed(self.eliminated):
            full[variable] = best[tuple(full[t] for t in around)]
        return full

    def push(self, choice: Ints) -> Ints:
        """The kept variables' choice."""
        return choice[self.kept]


def eliminate_series(core: Core) -> tuple[Core, Elimination]:
    """Eliminate as long as some variable has no usage and at most two neighbours."""
    bound_by_usage = np.zeros(core.size, dtype=bool)
    bound_by_usage[core.item_var] = True
    unary = np.split(core.unary.copy(), core.offset[1:-1])
    around = _tables_around(core)
    waiting = [v for v in range(core.size) if not bound_by_usage[v] and len(around[v]) <= 2]
    eliminated: list[tuple[int, tuple[int, ...], Ints]] = []
    gone = np.zeros(core.size, dtype=bool)
    constant = 0.0
    while waiting:
        v = waiting.pop()
        if gone[v] or len(around[v]) > 2 or not _worthwhile(v, around):
            continue
        near = tuple(around[v])
        joint, best = _project(unary[v], [around[v][t] for t in near])
        eliminated.append((v, near, best))
        gone[v] = True
        for t in near:
            del around[t][v]
        match near:
            case ():
                constant += float(joint)
            case (t,):
                unary[t] = unary[t] + joint
            case (s, t):
                around[s][t] = around[s][t] + joint if t in around[s] else joint
                around[t][s] = around[s][t].T
            case _:
                raise AssertionError("at most two neighbours")
        waiting += [t for t in near if not bound_by_usage[t] and len(around[t]) <= 2]
    kept = np.flatnonzero(~gone)
    return _rebuilt(core, kept, unary, around, constant), Elimination(
        kept, core.size, tuple(eliminated)
    )


def _tables_around(core: Core) -> list[dict[int, Floats]]:
    """For each variable, the table to each neighbour, with its own choices as rows."""
    sizes = core.domains
    around: list[dict[int, Floats]] = [{} for _ in range(core.size)]
    for e, (u, v) in enumerate(core.edges.tolist()):
        table = core.tables[core.table_offset[e] : core.table_offset[e + 1]]
        around[u][v] = table.reshape(sizes[u], sizes[v])
        around[v][u] = around[u][v].T
    return around


def _worthwhile(v: int, around: list[dict[int, Floats]]) -> bool:
    """Whether eliminating `v` does not make the tables much larger."""
    if len(around[v]) < 2:
        return True
    first, second = around[v].values()
    cells = first.shape[1] * second.shape[1]
    joined = cells * first.shape[0]
    return cells <= max(_CELLS, 2 * (first.size + second.size)) and joined <= _JOINED


def _project(costs: Floats, tables: list[Floats]) -> tuple[Floats, Ints]:
    """The minimum over the first axis of all tables together, and where it is reached."""
    match tables:
        case []:
            total = costs
        case [table]:
            total = costs[:, None] + table
        case [first, second]:
            total = costs[:, None, None] + first[:, :, None] + second[:, None, :]
        case _:
            raise AssertionError("at most two neighbours")
    best = np.argmin(total, axis=0)
    return np.min(total, axis=0), np.asarray(best)


def _rebuilt(
    core: Core, kept: Ints, unary: list[Floats], around: list[dict[int, Floats]], constant: float
) -> Core:
    """The core over the kept variables."""
    index = np.full(core.size, -1)
    index[kept] = np.arange(kept.size)
    names = [int(v) for v in kept]
    pairs = [(v, t) for v in names for t in around[v] if v < t]
    tables = [around[v][t].ravel() for v, t in pairs]
    return replace(
        core,
        offset=offsets(core.domains[kept]),
        unary=np.concatenate([unary[v] for v in names]) if names else np.zeros(0),
        edges=index[np.array(pairs, dtype=np.int64).reshape(-1, 2)],
        table_offset=offsets(np.array([t.size for t in tables], dtype=np.int64)),
        tables=np.concatenate(tables) if tables else np.zeros(0),
        item_var=index[core.item_var],
        constant=core.constant + constant,
    )
