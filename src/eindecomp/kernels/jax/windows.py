"""What windows show of JAX's arrays, and kernels of convolutions and pools by XLA's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from eindecomp.graph.shown import Shown
from eindecomp.kernels.convolutions import Convolution, Pool, Seen, Sweep
from eindecomp.kernels.jax.functions import cast
from eindecomp.kernels.library import Scalars
from eindecomp.lang.dtypes import DType, Types
from eindecomp.lang.einsum import Labels
from eindecomp.lang.index import CLAMP

States = tuple[jax.Array, ...]


def view(tile: jax.Array, shown: Shown) -> jax.Array:
    """What a vertex reads of a tile through a window."""
    if 0 in shown.shape:
        return jnp.zeros(shown.shape, tile.dtype)
    tile = _beside(tile, shown)
    walked = [[k for k, n in enumerate(own) if n] for own in shown.walks]
    if any(len(axes) != 1 for axes in walked):
        return _gathered(tile, shown)
    order: list[int] = []
    for axis, start in reversed([*enumerate(shown.starts)]):
        labels = [label for label, axes in enumerate(walked) if axes == [axis]]
        order = [*labels, *order]
        if len(labels) == 1:
            [label] = labels
            step, size = shown.walks[label][axis], shown.shape[label]
            low = start + min(0, step * (size - 1))
            high = low + abs(step) * (size - 1) + 1 if size else low
            tile = lax.slice_in_dim(tile, low, high, abs(step), axis)
            tile = lax.rev(tile, [axis]) if step < 0 else tile
        else:
            at = np.asarray(start)
            for label in labels:
                at = np.add.outer(at, shown.walks[label][axis] * np.arange(shown.shape[label]))
            tile = jnp.take(tile, at, axis)
    return tile.transpose([order.index(label) for label in range(len(order))])


def _beside(tile: jax.Array, shown: Shown) -> jax.Array:
    for axis, own in reversed([*enumerate(shown.places)]):  # the first that is outside decides
        if own.is_filled:
            continue
        if own.outside == CLAMP:
            at = np.clip(np.arange(own.count) - own.start, 0, own.size - 1)
            tile = jnp.take(tile, at, axis)
            continue
        after = own.count - own.slice.stop
        ends: list[tuple[int, int, int]] = [(0, 0, 0)] * tile.ndim
        ends[axis] = (own.start, after, own.step - 1)
        tile = lax.pad(tile, np.asarray(own.outside, tile.dtype), ends)
    return tile


def _gathered(tile: jax.Array, shown: Shown) -> jax.Array:
    """Where a label walks along several dimensions, or none."""
    index: list[Any] = []
    for axis, start in enumerate(shown.starts):
        at = np.full((1,) * len(shown.shape), start)
        for label, own in enumerate(shown.walks):
            sides = [-1 if k == label else 1 for k in range(len(shown.shape))]
            at = at + own[axis] * np.arange(shown.shape[label]).reshape(sides)
        index.append(at)
    return jnp.broadcast_to(tile[tuple(index)], shown.shape)


class Plain(Protocol):
    """The kernel that computes what XLA has no function for."""

    out: DType
    state: Types

    def result(self, operands: Any, scalars: Scalars, shape: Sequence[int]) -> States:
        """The finished result."""
        ...

    def states(self, operands: Any, scalars: Scalars, shape: Sequence[int]) -> States:
        """The unfinished states of this tile's share of an aggregation."""
        ...

    def combined(self, a: States, b: States) -> States:
        """Two states combined, element by element."""
        ...

    def finished(self, states: States) -> jax.Array:
        """The result that a state stands for."""
        ...


class WindowKernel:
    """A convolution or a pool, of tiles with what windows show of them."""

    window = Seen

    def __init__(self, own: Convolution | Pool, plain: Plain, precision: str) -> None:
        self._own, self._plain, self._precision = own, plain, precision
        self.state, self.sums = plain.state, isinstance(own, Convolution) or _sums(own)

    def result(self, operands: Any, scalars: Scalars, shape: Sequence[int]) -> States:
        """The finished result."""
        made = self._computed(operands)
        if made is None:
            return self._plain.result(_views(operands), scalars, shape)
        return (cast(made, self._plain.out),)

    def states(self, operands: Any, scalars: Scalars, shape: Sequence[int]) -> States:
        """The unfinished states of this tile's share of an aggregation."""
        made = self._computed(operands)
        if made is None:
            return self._plain.states(_views(operands), scalars, shape)
        return (made,)

    def combined(self, a: States, b: States) -> States:
        """Two states combined, element by element."""
        return self._plain.combined(a, b)

    def finished(self, states: States) -> jax.Array:
        """The result that a state stands for."""
        return self._plain.finished(states)

    def index_range(self, operands: Any, shape: Sequence[int]) -> None:
        """Nothing is looked up."""

    def _computed(self, operands: Sequence[Any]) -> jax.Array | None:
        """The sums or maxima, in the type of the state."""
        own, [held] = self._own, self.state
        if isinstance(own, Pool):
            return _pooled(own, operands[0], held)
        seen, other = operands[own.seen], operands[1 - own.seen]
        axes = own.swept(seen.shown)
        if axes is None or 0 in other.shape:
            return None
        sizes = own.sizes(seen.shown, other.shape)
        names, swept = _named(own.axes, own.sweeps)
        taps = [tuple(filter(None, [sweep.tap])) for sweep in own.sweeps]
        labels = own.op.inputs[1 - own.seen]
        tile = seen.tile
        if tile.dtype != other.dtype:
            tile, other = cast(tile, held), cast(other, held)
        x = _arranged(tile, names, [own.batch, own.groups + own.summed, *swept])
        w = _arranged(other, labels, [own.groups + own.made, own.summed, *taps])
        back = [k for k, axis in enumerate(axes, 2) if axis.dilation < 0]
        result = lax.conv_general_dilated(
            x,
            lax.rev(w, back) if back else w,
            [axis.stride for axis in axes],
            [(axis.before, axis.after) for axis in axes],
            [axis.step for axis in axes],
            [abs(axis.dilation) for axis in axes],
            feature_group_count=prod(sizes[label] for label in own.groups),
            precision=self._precision,
            preferred_element_type=held,
        )
        positions = (sweep.position for sweep in own.sweeps if sweep.position)
        return _put(result, (*own.batch, *own.groups, *own.made, *positions), sizes, own.op.output)


def _pooled(own: Pool, seen: Seen, held: DType) -> jax.Array | None:
    start = np.asarray(0 if _sums(own) else -np.inf, held)
    axes = own.swept(seen.shown, float(start))
    if axes is None or any(axis.dilation < 1 for axis in axes):
        return None
    names, swept = _named(own.axes, own.sweeps)
    plain = tuple(label for label in own.op.output if label in own.axes)
    x = _arranged(cast(seen.tile, held), names, [plain, *swept])

    def each(values: Sequence[int]) -> tuple[int, ...]:
        return (1, *values)

    result: jax.Array = lax.reduce_window(
        x,
        start,
        lax.add if _sums(own) else lax.max,
        each([axis.taps for axis in axes]),
        each([axis.stride for axis in axes]),
        [(0, 0), *((axis.before, axis.after) for axis in axes)],
        each([axis.step for axis in axes]),
        each([axis.dilation for axis in axes]),
    )
    sizes = dict(zip(own.op.inputs[0], seen.shown.shape, strict=True))
    labels = (*plain, *(sweep.position for sweep in own.sweeps))
    return _put(result, labels, sizes, own.op.output)


def _sums(own: Pool) -> bool:
    return own.op.agg is not None and own.op.agg.name == "sum"


def _named(axes: Labels, sweeps: Sequence[Sweep]) -> tuple[list[str], list[Labels]]:
    """A name for every dimension, and those of the swept ones."""
    names = [*axes]
    for number, sweep in enumerate(sweeps):
        names[sweep.axis] = f"{number}"
    return names, [(f"{number}",) for number in range(len(sweeps))]


def _arranged(x: jax.Array, labels: Sequence[str], groups: Sequence[Labels]) -> jax.Array:
    """One dimension for each group of labels."""
    order = [labels.index(label) for group in groups for label in group]
    sizes = [prod(x.shape[labels.index(label)] for label in group) for group in groups]
    return x.transpose(order).reshape(sizes)


def _put(x: jax.Array, labels: Labels, sizes: Mapping[str, int], output: Labels) -> jax.Array:
    """A dimension for each label, in another order."""
    whole = x.reshape([sizes[label] for label in labels])
    return whole.transpose([labels.index(label) for label in output])


def _views(operands: Sequence[Any]) -> list[jax.Array | None]:
    return [view(x.tile, x.shown) if isinstance(x, Seen) else x for x in operands]
