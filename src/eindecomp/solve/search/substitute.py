"""Substitution: the one operation behind most reductions.

Every old variable becomes a function of one new variable, or a constant. This covers dropping
choices, fixing variables and contracting one variable into another. Usages stay few: items are
merged, and time steps that cannot bind or are redundant are dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eindecomp.solve import budgets
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import (
    EXACT,
    Floats,
    Ints,
    Mask,
    largest_places,
    offsets,
    places,
    summed_at,
)
from eindecomp.solve.problem.core import Core, over_steps


class Substitution(NamedTuple):
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
        """For each new variable, the choice that most of its old variables agree with."""
        free = self.owner >= 0
        owner, offset = self.owner[free], offsets(self.sizes)
        sizes = self.sizes[owner]
        agree = self.value[places(self.start[free], sizes)] == np.repeat(choice[free], sizes)
        votes = summed_at(places(offset[owner], sizes), agree, offset[-1])
        return largest_places(votes, offset)


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
    free = sub.owner >= 0
    fixed = core.unary[core.offset[:-1][~free] + sub.value[sub.start[~free]]]
    sizes = sub.sizes[sub.owner[free]]
    chosen = np.repeat(core.offset[:-1][free], sizes) + sub.value[places(sub.start[free], sizes)]
    at = places(offset[sub.owner[free]], sizes)
    ends = sub.owner[core.edges]
    proper = (ends.min(axis=1, initial=0) >= 0) & (ends[:, 0] != ends[:, 1])
    low, high = ends.min(axis=1, initial=np.iinfo(np.int64).max), ends.max(axis=1, initial=-1)
    key = np.where(proper, low * max(sub.sizes.size, 1) + high, -1)
    pairs, group = np.unique(key, return_inverse=True)
    if pairs.size and pairs[0] == -1:
        pairs, group = pairs[1:], group - 1
    edges = np.column_stack([pairs // max(sub.sizes.size, 1), pairs % max(sub.sizes.size, 1)])
    table_offset = offsets(sub.sizes[edges[:, 0]] * sub.sizes[edges[:, 1]])
    new = core._replace(
        offset=offset,
        unary=summed_at(at, core.unary[chosen], offset[-1]),
        edges=edges,
        tables=np.zeros(table_offset[-1]),
        table_offset=table_offset,
    )
    constant = _substitute_tables(core, new, sub, group.ravel()) + float(fixed.sum())
    kept, cells = ~_absorb(new), np.diff(table_offset)
    new = new._replace(edges=edges[kept], table_offset=offsets(cells[kept]))
    new = new._replace(tables=new.tables[np.repeat(kept, cells)], constant=core.constant + constant)
    return _substitute_items(new, sub)


def _substitute_items(core: Core, sub: Substitution) -> Core:
    owner = sub.owner[core.item_var]
    fixed = owner < 0
    at = core.item_offset[:-1][fixed] + sub.value[sub.start[core.item_var[fixed]]]
    used = over_steps(core.item_usage[at], core.item_span[fixed], core.capacity.size)
    owner, old = owner[~fixed], core.item_var[~fixed]
    sizes = sub.sizes[owner]
    chosen = sub.value[places(sub.start[old], sizes)]
    return merge_items(
        core._replace(
            item_var=owner,
            item_span=core.item_span[~fixed],
            item_offset=offsets(sizes),
            item_usage=core.item_usage[np.repeat(core.item_offset[:-1][~fixed], sizes) + chosen],
            capacity=core.capacity - used,
        )
    )


@compiled
def _substitute_tables(core: Core, new: Core, sub: Substitution, group: Ints) -> float:
    """Add the tables to those of their new edges, to unary costs, or to the constant returned."""
    constant, offset, value = 0.0, new.offset, sub.value
    for e in range(core.edges.shape[0]):
        u, v = core.edges[e, 0], core.edges[e, 1]
        width = core.offset[v + 1] - core.offset[v]
        table = core.tables[core.table_offset[e] : core.table_offset[e + 1]]
        cu, cv, su, sv = sub.owner[u], sub.owner[v], sub.start[u], sub.start[v]
        if cu < 0 and cv < 0:
            constant += table[value[su] * width + value[sv]]
        elif cu < 0:
            for k in range(offset[cv + 1] - offset[cv]):
                new.unary[offset[cv] + k] += table[value[su] * width + value[sv + k]]
        elif cv < 0:
            for k in range(offset[cu + 1] - offset[cu]):
                new.unary[offset[cu] + k] += table[value[su + k] * width + value[sv]]
        elif cu == cv:
            for k in range(offset[cu + 1] - offset[cu]):
                new.unary[offset[cu] + k] += table[value[su + k] * width + value[sv + k]]
        else:
            base = new.table_offset[group[e]]
            rows, cols = offset[cu + 1] - offset[cu], offset[cv + 1] - offset[cv]
            flip = new.edges[group[e], 0] != cu
            for i in range(rows):
                row = value[su + i] * width
                for j in range(cols):
                    place = j * rows + i if flip else i * cols + j
                    new.tables[base + place] += table[row + value[sv + j]]
    return float(constant)


@compiled
def _absorb(core: Core) -> Mask:
    """Move every table that is a row term plus a column term into the unary costs."""
    edges, offset = core.edges, core.offset
    absorbed = np.zeros(edges.shape[0], dtype=np.bool_)
    for e in range(edges.shape[0]):
        a, b = offset[edges[e, 0]], offset[edges[e, 1]]
        rows, cols = offset[edges[e, 0] + 1] - a, offset[edges[e, 1] + 1] - b
        table = core.tables[core.table_offset[e] : core.table_offset[e + 1]]
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
            core.unary[a + i] += table[i * cols]
        for j in range(cols):
            core.unary[b + j] += table[j] - table[0]
    return absorbed


def compress_steps(core: Core) -> Core:
    """Drop the steps that cannot bind, and the items that are alive at no other step.

    A step is dropped if all items alive then are also alive at an adjacent step with no more
    capacity, or if even the largest usages fit.
    """
    steps = core.capacity.size
    largest = _of_each(np.maximum, core.item_usage, core.item_offset)
    starts = np.zeros(steps + 1, dtype=bool)
    ends = np.zeros(steps + 1, dtype=bool)
    starts[core.item_span[:, 0]] = True
    ends[core.item_span[:, 1]] = True
    keep = _binding_steps(core.capacity, starts, ends)
    keep &= over_steps(largest, core.item_span, steps) > core.capacity
    return _with_steps(core, keep)


def _with_steps(core: Core, keep: Mask) -> Core:
    """The core with some of its steps only."""
    span = offsets(keep.astype(np.int64))[core.item_span]
    kept = core._replace(item_span=span, capacity=core.capacity[keep], step=core.step[keep])
    return merge_items(kept)


def merge_items(core: Core) -> Core:
    """Sort items by variable, add up those with the same span, subtract constant usage."""
    span, var = core.item_span, core.item_var
    alive = np.flatnonzero(span[:, 1] > span[:, 0])
    order = alive[np.lexsort((span[alive, 1], span[alive, 0], var[alive]))]
    key = np.column_stack([var[order], span[order]])
    fresh = np.ones(order.size, dtype=bool)
    fresh[1:] = (key[1:] != key[:-1]).any(axis=1)
    merged_var, merged_span = key[fresh, 0], key[fresh, 1:]
    item_offset, sizes = offsets(core.domains[merged_var]), core.domains[var[order]]
    at = places(item_offset[np.cumsum(fresh) - 1], sizes)
    own = core.item_usage[places(core.item_offset[order], sizes)]
    usage = summed_at(at, own, item_offset[-1])
    least = _of_each(np.minimum, usage, item_offset)
    capacity = core.capacity - over_steps(least, merged_span, core.capacity.size)
    usage -= np.repeat(least, np.diff(item_offset))
    varies = _of_each(np.maximum, usage, item_offset) > 0
    return core._replace(
        item_var=merged_var[varies],
        item_span=merged_span[varies],
        item_offset=offsets(np.diff(item_offset)[varies]),
        item_usage=usage[np.repeat(varies, np.diff(item_offset))],
        capacity=capacity,
    )


def _of_each(least_or_largest: np.ufunc, values: Floats, offset: Ints) -> Any:
    return least_or_largest.reduceat(values, offset[:-1]) if values.size else np.zeros(0)


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


def prune_steps(core: Core) -> Core:
    """Drop every step s that is within capacity whenever some other step t is."""
    steps = core.capacity.size
    if steps < 2 or core.item_var.size == 0:
        return core
    largest = np.maximum.reduceat(core.item_usage, core.item_offset[:-1])
    peak = over_steps(largest, core.item_span, steps) - core.capacity
    # Rounding may add to a sum, unless usages are integers.
    usage = core.item_usage
    is_exact = bool(np.all(usage == np.rint(usage))) and usage.sum() < EXACT
    tolerance = 0.0 if is_exact else budgets.ROUNDING * float(np.abs(peak).max(initial=0.0))
    by_start, by_end = (np.argsort(core.item_span[:, k], kind="stable") for k in (0, 1))
    order = np.argsort(-peak, kind="stable")
    keep = _undominated(core, by_start, by_end, order, tolerance, budgets.PRUNING_WORK)
    return _with_steps(core, keep)


@compiled
def _undominated(
    core: Core, by_start: Ints, by_end: Ints, order: Ints, tolerance: float, work: int
) -> Mask:
    offset, span, capacity = core.offset, core.item_span, core.capacity
    steps = capacity.size
    keep = np.ones(steps, dtype=np.bool_)
    excess = np.zeros(offset[-1])
    for turn in range(steps):
        t = order[turn]
        if not keep[t]:
            continue
        work -= 2 * core.item_usage.size + steps
        if work < 0:
            break
        excess[:] = 0.0
        for item in range(core.item_var.size):
            if span[item, 0] <= t < span[item, 1]:
                _add(core, excess, item, -1.0)
        total = 0.0
        for v in range(offset.size - 1):
            total += excess[offset[v] : offset[v + 1]].max()
        i, j = 0, 0
        for s in range(steps):
            while j < by_end.size and span[by_end[j], 1] <= s:
                total += _add(core, excess, by_end[j], -1.0)
                j += 1
            while i < by_start.size and span[by_start[i], 0] <= s:
                total += _add(core, excess, by_start[i], 1.0)
                i += 1
            if s != t and total + tolerance <= capacity[s] - capacity[t]:
                keep[s] = False
    return keep


@compiled
def _add(core: Core, excess: Floats, item: int, sign: float) -> float:
    """Add an item's usages to its variable's excess; returns the change of the largest excess."""
    base, usage = core.offset[core.item_var[item]], core.item_offset[item]
    before, after = -np.inf, -np.inf
    for k in range(core.item_offset[item + 1] - usage):
        before = max(before, excess[base + k])
        excess[base + k] += sign * core.item_usage[usage + k]
        after = max(after, excess[base + k])
    return float(after - before)
