"""Substitution: the one operation behind most reductions.

Every old variable becomes a function of one new variable, or a constant. This covers dropping
choices, fixing variables and contracting one variable into another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints, Mask, offsets
from eindecomp.solve.problem.core import Core, over_steps
from eindecomp.solve.reduce.usage_steps import merge_items


@dataclass(frozen=True, slots=True, eq=False)
class Substitution:
    """Old variable `i` takes `value[start[i] + k]` when new variable `owner[i]` takes `k`.

    `owner[i]` is -1 for a constant, which is `value[start[i]]`.
    """

    sizes: Ints
    owner: Ints
    start: Ints
    value: Ints

    def lift(self, choice: Ints) -> Ints:
        """The old variables' choice, given the new ones'."""
        free = self.owner >= 0
        place = self.start.copy()
        place[free] += choice[self.owner[free]]
        return self.value[place]

    def push(self, choice: Ints) -> Ints:
        """The new variables' choice that comes closest to an old choice."""
        return _push(self.sizes, self.owner, self.start, self.value, choice)


def keep_choices(core: Core, keep: Mask) -> Substitution:
    """The substitution that leaves only some choices; variables with one become constants."""
    sizes = np.add.reduceat(keep, core.offset[:-1], dtype=np.int64) if core.size else core.domains
    free = sizes > 1
    owner = np.where(free, np.cumsum(free) - 1, -1)
    value = np.arange(core.unary.size) - np.repeat(core.offset[:-1], core.domains)
    return Substitution(sizes[free], owner, offsets(sizes)[:-1], value[keep])


def substitute(core: Core, sub: Substitution) -> Core:
    """The core over the new variables; parallel edges are merged, separable tables absorbed."""
    offset = offsets(sub.sizes)
    unary, constant = _substitute_unary(
        core.offset, core.unary, sub.owner, sub.start, sub.value, offset
    )
    ends = sub.owner[core.edges]
    proper = (ends.min(axis=1, initial=0) >= 0) & (ends[:, 0] != ends[:, 1])
    low, high = ends.min(axis=1, initial=np.iinfo(np.int64).max), ends.max(axis=1, initial=-1)
    key = np.where(proper, low * max(sub.sizes.size, 1) + high, -1)
    pairs, group = np.unique(key, return_inverse=True)
    if pairs.size and pairs[0] == -1:
        pairs, group = pairs[1:], group - 1
    edges = np.column_stack([pairs // max(sub.sizes.size, 1), pairs % max(sub.sizes.size, 1)])
    table_offset = offsets(sub.sizes[edges[:, 0]] * sub.sizes[edges[:, 1]])
    tables = np.zeros(table_offset[-1])
    constant += _substitute_tables(
        core.edges, core.offset, core.table_offset, core.tables, group.ravel(), sub.owner,
        sub.start, sub.value, offset, unary, edges, table_offset, tables,
    )  # fmt: skip
    absorbed = _absorb(edges, offset, unary, table_offset, tables)
    kept = ~absorbed
    new = replace(
        core,
        offset=offset,
        unary=unary,
        edges=edges[kept],
        tables=tables[np.repeat(kept, np.diff(table_offset))],
        table_offset=offsets(np.diff(table_offset)[kept]),
        constant=core.constant + constant,
    )
    return _substitute_items(new, sub)


def _substitute_items(core: Core, sub: Substitution) -> Core:
    owner = sub.owner[core.item_var]
    fixed = owner < 0
    at = core.item_offset[:-1][fixed] + sub.value[sub.start[core.item_var[fixed]]]
    used = over_steps(core.item_usage[at], core.item_span[fixed], core.capacity.size)
    old = np.flatnonzero(~fixed)
    item_offset = offsets(sub.sizes[owner[old]])
    usage = _gather_usage(
        old,
        core.item_offset,
        core.item_usage,
        sub.start[core.item_var[old]],
        sub.value,
        item_offset,
    )
    return merge_items(
        replace(
            core,
            item_var=owner[old],
            item_span=core.item_span[old],
            item_offset=item_offset,
            item_usage=usage,
            capacity=core.capacity - used,
        )
    )


@compiled
def _gather_usage(
    old: Ints, old_offset: Ints, old_usage: Floats, start: Ints, value: Ints, new_offset: Ints
) -> Floats:
    out = np.zeros(new_offset[-1])
    for i in range(old.size):
        for k in range(new_offset[i + 1] - new_offset[i]):
            out[new_offset[i] + k] = old_usage[old_offset[old[i]] + value[start[i] + k]]
    return out


@compiled
def _substitute_unary(
    old_offset: Ints, old_unary: Floats, owner: Ints, start: Ints, value: Ints, offset: Ints
) -> tuple[Floats, float]:
    unary = np.zeros(offset[-1])
    constant = 0.0
    for i in range(owner.size):
        c = owner[i]
        if c < 0:
            constant += old_unary[old_offset[i] + value[start[i]]]
            continue
        for k in range(offset[c + 1] - offset[c]):
            unary[offset[c] + k] += old_unary[old_offset[i] + value[start[i] + k]]
    return unary, float(constant)


@compiled
def _substitute_tables(
    old_edges: Ints,
    old_offset: Ints,
    old_table_offset: Ints,
    old_tables: Floats,
    group: Ints,
    owner: Ints,
    start: Ints,
    value: Ints,
    offset: Ints,
    unary: Floats,
    edges: Ints,
    table_offset: Ints,
    tables: Floats,
) -> float:
    constant = 0.0
    for e in range(old_edges.shape[0]):
        u, v = old_edges[e, 0], old_edges[e, 1]
        width = old_offset[v + 1] - old_offset[v]
        table = old_tables[old_table_offset[e] : old_table_offset[e + 1]]
        cu, cv, su, sv = owner[u], owner[v], start[u], start[v]
        if cu < 0 and cv < 0:
            constant += table[value[su] * width + value[sv]]
        elif cu < 0:
            for k in range(offset[cv + 1] - offset[cv]):
                unary[offset[cv] + k] += table[value[su] * width + value[sv + k]]
        elif cv < 0:
            for k in range(offset[cu + 1] - offset[cu]):
                unary[offset[cu] + k] += table[value[su + k] * width + value[sv]]
        elif cu == cv:
            for k in range(offset[cu + 1] - offset[cu]):
                unary[offset[cu] + k] += table[value[su + k] * width + value[sv + k]]
        else:
            g = group[e]
            base, rows, cols = (
                table_offset[g],
                offset[cu + 1] - offset[cu],
                offset[cv + 1] - offset[cv],
            )
            flip = edges[g, 0] != cu
            for i in range(rows):
                row = value[su + i] * width
                for j in range(cols):
                    place = j * rows + i if flip else i * cols + j
                    tables[base + place] += table[row + value[sv + j]]
    return float(constant)


@compiled
def _absorb(edges: Ints, offset: Ints, unary: Floats, table_offset: Ints, tables: Floats) -> Mask:
    """Move every table that is a row term plus a column term into the unary costs."""
    absorbed = np.zeros(edges.shape[0], dtype=np.bool_)
    for e in range(edges.shape[0]):
        a, b = offset[edges[e, 0]], offset[edges[e, 1]]
        rows, cols = offset[edges[e, 0] + 1] - a, offset[edges[e, 1] + 1] - b
        table = tables[table_offset[e] : table_offset[e + 1]]
        separable = np.isfinite(table[0])
        for i in range(rows):
            if not separable:
                break
            for j in range(cols):
                cell = table[i * cols + j]
                if not np.isfinite(cell) or cell - table[j] != table[i * cols] - table[0]:
                    separable = False
                    break
        if not separable:
            continue
        absorbed[e] = True
        for i in range(rows):
            unary[a + i] += table[i * cols]
        for j in range(cols):
            unary[b + j] += table[j] - table[0]
    return absorbed


@compiled
def _push(sizes: Ints, owner: Ints, start: Ints, value: Ints, choice: Ints) -> Ints:
    """For each new variable, the choice that most of its old variables agree with."""
    offset = np.zeros(sizes.size + 1, dtype=np.int64)
    for c in range(sizes.size):
        offset[c + 1] = offset[c] + sizes[c]
    votes = np.zeros(offset[-1], dtype=np.int64)
    for i in range(owner.size):
        c = owner[i]
        if c >= 0:
            for k in range(sizes[c]):
                if value[start[i] + k] == choice[i]:
                    votes[offset[c] + k] += 1
    out = np.zeros(sizes.size, dtype=np.int64)
    for c in range(sizes.size):
        out[c] = np.argmax(votes[offset[c] : offset[c + 1]])
    return out
