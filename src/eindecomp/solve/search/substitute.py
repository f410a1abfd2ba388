"""Substitution: the one operation behind most reductions.

Every old variable becomes a function of one new variable, or a constant. This covers dropping
choices, fixing variables and contracting one variable into another. Usages stay few: items are
merged, and time steps that cannot bind or are redundant are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from eindecomp.solve import budgets
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints, Mask, offsets
from eindecomp.solve.problem.core import Core, over_steps


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


def compress_steps(core: Core) -> Core:
    """Drop the steps that cannot bind, and the items that are alive at no other step.

    A step is dropped if all items alive then are also alive at an adjacent step with no more
    capacity, or if even the largest usages fit.
    """
    steps = core.capacity.size
    largest = _segment_max(core.item_usage, core.item_offset)
    starts = np.zeros(steps + 1, dtype=bool)
    ends = np.zeros(steps + 1, dtype=bool)
    starts[core.item_span[:, 0]] = True
    ends[core.item_span[:, 1]] = True
    keep = _binding_steps(core.capacity, starts, ends)
    keep &= over_steps(largest, core.item_span, steps) > core.capacity
    new_index = offsets(keep.astype(np.int64))
    span = new_index[core.item_span]
    return merge_items(
        replace(core, item_span=span, capacity=core.capacity[keep], step=core.step[keep])
    )


def merge_items(core: Core) -> Core:
    """Sort items by variable, add up those with the same span, subtract constant usage."""
    span, var = core.item_span, core.item_var
    alive = np.flatnonzero(span[:, 1] > span[:, 0])
    order = alive[np.lexsort((span[alive, 1], span[alive, 0], var[alive]))]
    key = np.column_stack([var[order], span[order]])
    fresh = np.ones(order.size, dtype=bool)
    fresh[1:] = (key[1:] != key[:-1]).any(axis=1)
    group = np.cumsum(fresh) - 1
    merged_var, merged_span = key[fresh, 0], key[fresh, 1:]
    item_offset = offsets(core.domains[merged_var])
    usage = _add_parts(core.item_offset, core.item_usage, order, group, item_offset)
    least = _segment_min(usage, item_offset)
    capacity = core.capacity - over_steps(least, merged_span, core.capacity.size)
    usage -= np.repeat(least, np.diff(item_offset))
    varies = _segment_max(usage, item_offset) > 0
    return replace(
        core,
        item_var=merged_var[varies],
        item_span=merged_span[varies],
        item_offset=offsets(np.diff(item_offset)[varies]),
        item_usage=usage[np.repeat(varies, np.diff(item_offset))],
        capacity=capacity,
    )


def _segment_max(values: Floats, offset: Ints) -> Floats:
    return np.maximum.reduceat(values, offset[:-1]) if values.size else np.zeros(0)


def _segment_min(values: Floats, offset: Ints) -> Floats:
    return np.minimum.reduceat(values, offset[:-1]) if values.size else np.zeros(0)


@compiled
def _binding_steps(capacity: Floats, starts: Mask, ends: Mask) -> Mask:
    """Steps that no adjacent step makes redundant."""
    steps = capacity.size
    keep = np.zeros(steps, dtype=np.bool_)
    candidate = -1  # the tightest step since the last end
    for t in range(steps):
        # Nothing ended at t: what was alive at the candidate still is, so the tighter one stays.
        if candidate >= 0 and ends[t]:
            keep[candidate] = True
            candidate = -1
        if candidate < 0:
            # Nothing started at t either: all that is alive was so at the step just kept.
            if t > 0 and not starts[t] and keep[t - 1] and capacity[t] >= capacity[t - 1]:
                continue
            candidate = t
        elif capacity[t] <= capacity[candidate]:
            candidate = t
        else:
            keep[candidate] = True
            candidate = t
    if candidate >= 0:
        keep[candidate] = True
    return keep


@compiled
def _add_parts(
    old_offset: Ints, old_usage: Floats, order: Ints, group: Ints, new_offset: Ints
) -> Floats:
    out = np.zeros(new_offset[-1])
    for i in range(order.size):
        a, b = old_offset[order[i]], new_offset[group[i]]
        for k in range(new_offset[group[i] + 1] - b):
            out[b + k] += old_usage[a + k]
    return out


def prune_steps(core: Core) -> Core:
    """Drop every step s that is within capacity whenever some other step t is."""
    steps = core.capacity.size
    if steps < 2 or core.item_var.size == 0:
        return core
    largest = np.maximum.reduceat(core.item_usage, core.item_offset[:-1])
    peak = over_steps(largest, core.item_span, steps) - core.capacity
    keep = _undominated(
        core.offset, core.item_var, core.item_span, core.item_offset, core.item_usage,
        core.capacity, np.argsort(core.item_span[:, 0], kind="stable"),
        np.argsort(core.item_span[:, 1], kind="stable"),
        np.argsort(-peak, kind="stable"), _tolerance(core.item_usage, peak), budgets.PRUNING_WORK,
    )  # fmt: skip
    index = offsets(keep.astype(np.int64))
    return merge_items(
        replace(
            core,
            item_span=index[core.item_span],
            capacity=core.capacity[keep],
            step=core.step[keep],
        )
    )


def _tolerance(usage: Floats, peak: Floats) -> float:
    """What rounding may add to a sum: nothing if usages are integers."""
    exact = bool(np.all(usage == np.rint(usage))) and usage.sum() < 2**53
    return 0.0 if exact else 1e-9 * float(np.abs(peak).max(initial=0.0))


@compiled
def _undominated(
    offset: Ints,
    item_var: Ints,
    span: Ints,
    item_offset: Ints,
    usage: Floats,
    capacity: Floats,
    by_start: Ints,
    by_end: Ints,
    order: Ints,
    tolerance: float,
    work: int,
) -> Mask:
    steps = capacity.size
    keep = np.ones(steps, dtype=np.bool_)
    excess = np.zeros(offset[-1])
    for turn in range(steps):
        t = order[turn]
        if not keep[t]:
            continue
        work -= 2 * usage.size + steps
        if work < 0:
            break
        excess[:] = 0.0
        for item in range(item_var.size):
            if span[item, 0] <= t < span[item, 1]:
                _add(excess, offset, item_var, item_offset, usage, item, -1.0)
        total = 0.0
        for v in range(offset.size - 1):
            total += excess[offset[v] : offset[v + 1]].max()
        i, j = 0, 0
        for s in range(steps):
            while j < by_end.size and span[by_end[j], 1] <= s:
                total += _add(excess, offset, item_var, item_offset, usage, by_end[j], -1.0)
                j += 1
            while i < by_start.size and span[by_start[i], 0] <= s:
                total += _add(excess, offset, item_var, item_offset, usage, by_start[i], 1.0)
                i += 1
            if s != t and total + tolerance <= capacity[s] - capacity[t]:
                keep[s] = False
    return keep


@compiled
def _add(
    excess: Floats,
    offset: Ints,
    item_var: Ints,
    item_offset: Ints,
    usage: Floats,
    item: int,
    sign: float,
) -> float:
    """Add an item's usages to its variable's excess; returns the change of the largest excess."""
    base = offset[item_var[item]]
    before, after = -np.inf, -np.inf
    for k in range(item_offset[item + 1] - item_offset[item]):
        before = max(before, excess[base + k])
        excess[base + k] += sign * usage[item_offset[item] + k]
        after = max(after, excess[base + k])
    return float(after - before)
