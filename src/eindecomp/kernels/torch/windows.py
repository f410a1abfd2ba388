"""What windows show of a tensor, and torch's own convolutions and pools of it.

All of these can be traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from eindecomp.graph.shown import Shown
from eindecomp.kernels.convolutions import Convolution, Pool, Seen, Swept, filled
from eindecomp.lang.einsum import Labels
from eindecomp.lang.index import CLAMP


def view(tile: Tensor, shown: Shown) -> Tensor:
    """A view of the tile, or of a copy with what lies outside beside it."""
    if 0 in shown.shape:
        return tile.new_empty(shown.shape)
    tile = beside(tile, shown)
    axes = range(tile.ndim)
    walking = [[k for k, own in enumerate(shown.walks) if own[axis]] for axis in axes]
    order = [k for labels in walking for k in labels]
    if sorted(order) != [*range(len(shown.shape))] or any(len(labels) > 2 for labels in walking):
        return _strided(tile, shown)
    for axis in reversed(axes):
        tile = _walked(tile, axis, shown, walking[axis])
    return tile.permute([order.index(label) for label in range(len(order))])


def _walked(tile: Tensor, axis: int, shown: Shown, labels: Sequence[int]) -> Tensor:
    """A dimension as the labels that walk along it, one or two, or none."""
    if not labels:
        return tile.select(axis, shown.starts[axis])
    steps = [shown.walks[label][axis] for label in labels]
    reach = [(shown.shape[k] - 1) * step for k, step in zip(labels, steps, strict=True)]
    low = shown.starts[axis] + sum(min(each, 0) for each in reach)
    tile = tile.narrow(axis, low, sum(map(abs, reach)) + 1)
    if len(labels) == 2:
        tile = tile.unfold(axis, abs(reach[1]) + 1, abs(steps[0])).movedim(-1, axis + 1)
    else:
        tile = tile[(*[slice(None)] * axis, slice(None, None, abs(steps[0])))]
    if len(labels) == 2:
        tile = tile[(*[slice(None)] * (axis + 1), slice(None, None, abs(steps[1])))]
    back = [axis + k for k, step in enumerate(steps) if step < 0]
    return tile.flip(back) if back else tile


def _strided(tile: Tensor, shown: Shown) -> Tensor:
    """Where a label walks along several dimensions, or none, or many along one."""
    steps = tile.stride()
    strides, start = shown.strides(steps), shown.start(steps)
    back = [k for k, stride in enumerate(strides) if stride < 0]
    start += sum((shown.shape[k] - 1) * strides[k] for k in back)
    seen = tile.as_strided(shown.shape, tuple(map(abs, strides)), tile.storage_offset() + start)
    return seen.flip(back) if back else seen


def beside(tile: Tensor, shown: Shown) -> Tensor:
    """All places that are needed of a tile, with its elements where they stand."""
    for axis, own in enumerate(shown.places):
        if own.is_filled:
            continue
        if own.outside == CLAMP:
            at = torch.arange(own.count, device=tile.device) - own.start
            tile = tile.index_select(axis, at.clamp(0, own.size - 1))
    for axis, own in reversed([*enumerate(shown.places)]):
        if not (own.is_filled or own.outside == CLAMP):
            counts = [own.count if k == axis else n for k, n in enumerate(tile.shape)]
            made = tile.new_full(counts, own.outside)  # pyright: ignore[reportArgumentType]
            made[(*[slice(None)] * axis, own.slice)] = tile
            tile = made
    return tile


def arranged(x: Tensor, labels: Sequence[str], groups: Sequence[Labels]) -> Tensor:
    """One dimension for each group of labels."""
    order = [labels.index(label) for group in groups for label in group]
    sizes = [prod(x.shape[labels.index(label)] for label in group) for group in groups]
    return x.permute(order).reshape(sizes)


def put(x: Tensor, labels: Labels, sizes: Mapping[str, int], output: Labels) -> Tensor:
    """A dimension for each label, in another order."""
    whole = x.reshape([sizes[label] for label in labels])
    return whole.permute([labels.index(label) for label in output])


def convolved(own: Convolution, seen: Seen, other: Tensor) -> Tensor | None:
    """The result of a convolution; None if torch has none for these sizes."""
    tile, shown = seen.tile, seen.shown
    sizes = own.sizes(shown, other.shape)
    if 0 in sizes.values():
        return None
    axes = own.swept(shown)
    if axes is None or (any(axis.step > 1 for axis in axes) and not _can_turn(axes)):
        tile, shown = beside(tile, shown), filled(shown)
        axes = own.swept(shown)
        if axes is None:
            return None
    tile, axes = _thinned(tile, axes, [sweep.axis for sweep in own.sweeps])
    swept = tuple((f"{k}",) for k in range(len(axes)))
    names = [*own.axes]
    for (name,), sweep in zip(swept, own.sweeps, strict=True):
        names[sweep.axis] = name
    taps = [tuple(filter(None, [sweep.tap])) for sweep in own.sweeps]
    positions = tuple(sweep.position for sweep in own.sweeps if sweep.position)
    labels, groups = own.op.inputs[1 - own.seen], prod(sizes[label] for label in own.groups)
    if prod(axis.taps for axis in axes) > prod(axis.positions for axis in axes):
        if any(axis.dilation < 0 or axis.step > 1 for axis in axes):
            return None
        x = arranged(tile, names, [own.summed, own.groups + own.batch, *swept])
        y = arranged(other, labels, [own.summed, own.groups + own.made, *taps])
        shape = [y.shape[1], x.shape[1] // groups, *(axis.positions for axis in axes)]
        made = (*own.groups, *own.made, *own.batch, *positions)
        return put(_by_weights(x, y, shape, axes, groups), made, sizes, own.op.output)
    x = arranged(tile, names, [own.batch, own.groups + own.summed, *swept])
    if _can_turn(axes):
        w = arranged(other, labels, [own.groups + own.summed, own.made, *taps])
        result = _turned(x, w, axes, groups)
    else:
        w = arranged(other, labels, [own.groups + own.made, own.summed, *taps])
        result = _forward(x, w, axes, groups)
    return put(result, (*own.batch, *own.groups, *own.made, *positions), sizes, own.op.output)


def _thinned(
    tile: Tensor, axes: Sequence[Swept], dims: Sequence[int]
) -> tuple[Tensor, Sequence[Swept]]:
    """Only the elements that are read: of one tap or one position others stand between them."""
    made: list[Swept] = []
    for axis, dim in zip(axes, dims, strict=True):
        step = axis.stride if axis.taps == 1 else axis.dilation if axis.positions == 1 else 1
        if step > 1 and axis.step == 1 and not (axis.before or axis.after):
            tile = tile[(*[slice(None)] * dim, slice(None, None, step))]
            axis = replace(axis, size=tile.shape[dim], stride=1, dilation=1)
        made.append(axis)
    return tile, made


def _can_turn(axes: Sequence[Swept]) -> bool:
    """Whether a convolution's transpose does it: taps walk back, or elements stand apart."""
    if any(axis.stride > 1 and axis.positions > 1 for axis in axes):
        return False
    return any(axis.step > 1 for axis in axes) or (
        any(axis.dilation < 0 < axis.reach for axis in axes)
        and all(axis.dilation < 0 or not axis.reach for axis in axes)
    )


def _padded(x: Tensor, ends: Sequence[tuple[int, int]]) -> Tensor:
    """Zeros beside the last dimensions, or fewer elements of them."""
    flat = [n for pair in reversed(ends) for n in pair]
    return torch.constant_pad_nd(x, flat) if any(flat) else x


def _forward(x: Tensor, w: Tensor, axes: Sequence[Swept], groups: int) -> Tensor:
    back = [k for k, axis in enumerate(axes, 2) if axis.dilation < 0]
    w = w.flip(back) if back else w
    # Libraries pad both ends alike: what is too much is computed and left out.
    most = [max(axis.before, axis.after) for axis in axes]
    if any((p - axis.before) % axis.stride for p, axis in zip(most, axes, strict=True)):
        x, most = _padded(x, [(axis.before, axis.after) for axis in axes]), [0] * len(axes)
        drops = most
    else:
        drops = [(p - a.before) // a.stride for p, a in zip(most, axes, strict=True)]
    steps = [axis.stride for axis in axes], most, [abs(axis.dilation) for axis in axes]
    result = torch.convolution(x, w, None, *steps, False, [0] * len(axes), groups)
    return _cut(result, drops, axes)


def _cut(result: Tensor, drops: Sequence[int], axes: Sequence[Swept]) -> Tensor:
    for k, (drop, axis) in enumerate(zip(drops, axes, strict=True), 2):
        if result.shape[k] != axis.positions:
            result = result.narrow(k, drop, axis.positions)
    return result


def _turned(x: Tensor, w: Tensor, axes: Sequence[Swept], groups: int) -> Tensor:
    ahead = [k for k, axis in enumerate(axes, 2) if axis.dilation > 0 and axis.reach]
    w = w.flip(ahead) if ahead else w
    pads, more, ends = list[int](), list[int](), list[tuple[int, int]]()
    for axis in axes:
        pad, full = axis.reach - axis.before, (axis.size - 1) * axis.step + axis.reach + 1
        most = max(axis.step, abs(axis.dilation)) - 1
        # Both ends are cut alike, and so many more computed at the last.
        padding = max(0, min(pad, full - pad - axis.positions + most, (full - 1) // 2))
        drop = pad - padding
        lacks = drop + axis.positions - full + 2 * padding
        extra = min(max(lacks, 0), most)
        pads, more = [*pads, padding], [*more, extra]
        ends.append((-drop, lacks - extra))
    steps = [axis.step for axis in axes], pads, [abs(axis.dilation) for axis in axes]
    return _padded(torch.convolution(x, w, None, *steps, True, more, groups), ends)


def _by_weights(
    x: Tensor, y: Tensor, shape: Sequence[int], axes: Sequence[Swept], groups: int
) -> Tensor:
    pads = [axis.before for axis in axes]
    for pad, axis in zip(pads, axes, strict=True):
        reach = axis.stride * (axis.positions - 1)
        if (axis.size + 2 * pad - reach - 1) // abs(axis.dilation) + 1 != axis.taps:
            x, pads = _padded(x, [(axis.before, axis.after) for axis in axes]), [0] * len(axes)
            break
    steps = [abs(axis.dilation) for axis in axes], pads, [axis.stride for axis in axes]
    unread = x.new_empty(1).expand(shape)
    backward: Any = torch.ops.aten.convolution_backward.default
    mask = [False, True, False]
    return backward(y, x, unread, None, *steps, False, [0] * len(axes), groups, mask)[1]


def pooled(own: Pool, seen: Seen) -> Tensor | None:
    """The result of a pool; None if torch has none for these sizes."""
    agg, tile, shown = own.op.agg, seen.tile, seen.shown
    assert agg is not None  # noqa: S101
    is_max = agg.name == "max"
    axes = own.swept(shown, float("-inf") if is_max else 0)
    if axes is None or any(
        axis.step > 1 or axis.before < axis.after or 2 * axis.before >= axis.taps for axis in axes
    ):
        tile, shown = beside(tile, shown), filled(shown)
        axes = own.swept(shown, 0)
    if axes is None or any(axis.dilation < 1 for axis in axes):
        return None
    if not is_max and any(axis.dilation > 1 for axis in axes):
        return None
    names, swept = [*own.axes], tuple((f"{k}",) for k in range(len(axes)))
    for (name,), sweep in zip(swept, own.sweeps, strict=True):
        names[sweep.axis] = name
    plain = tuple(label for label in own.op.output if label in own.axes)
    x = arranged(tile, names, [(), plain, *swept])
    sizes = dict(zip(own.op.inputs[0], shown.shape, strict=True))
    result = _cut(_pool(x, axes, is_max=is_max), [0] * len(axes), axes)
    positions = tuple(sweep.position for sweep in own.sweeps)
    return put(result, (*plain, *positions), sizes, own.op.output)


def _pool(x: Tensor, axes: Sequence[Swept], *, is_max: bool) -> Tensor:
    taps, strides = [axis.taps for axis in axes], [axis.stride for axis in axes]
    pads, dimensions = [axis.before for axis in axes], len(axes)
    functions: Any = torch.nn.functional
    if is_max:
        function = getattr(functions, f"max_pool{dimensions}d")
        return function(x, taps, strides, pads, [axis.dilation for axis in axes])
    if dimensions == 1:
        return functions.avg_pool1d(x, taps, strides, pads) * taps[0]
    function = getattr(functions, f"avg_pool{dimensions}d")
    return function(x, taps, strides, pads, divisor_override=1)
