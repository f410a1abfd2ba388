"""Keeps the usage items of a core few: drops steps that cannot bind, merges items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

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
