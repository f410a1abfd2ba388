"""Keeps usages few: merges items, drops time steps that cannot bind or are redundant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eindecomp.solve import budgets
from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints, Mask, offsets
from eindecomp.solve.problem.core import Core, over_steps


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
