"""Drops time steps that can never be over capacity unless another step is too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eindecomp.solve.compiled import compiled
from eindecomp.solve.problem.arrays import Floats, Ints, Mask, offsets
from eindecomp.solve.problem.core import Core, over_steps
from eindecomp.solve.reduce.usage_items import merge_items

_WORK = 100_000_000  # the most item entries to look at


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
        np.argsort(-peak, kind="stable"), _tolerance(core.item_usage, peak), _WORK,
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
