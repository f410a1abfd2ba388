"""The same elements in another shape, order or number, and arrays made from nothing."""

from __future__ import annotations

from functools import partial, reduce

from eindecomp.frontends.draft import View
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.operations import (
    cut_apart,
    padded_around,
    placed,
    replaced,
    reversed_along,
    stacked,
    strided,
)


@primitive("broadcast_in_dim")
def _broadcast_in_dim(op: Equation, x: View, *_: View) -> View:
    return placed(
        op.trace, x, [int(place) for place in op.params["broadcast_dimensions"]], op.shape
    )


@primitive("reshape")
def _reshape(op: Equation, x: View, *_: View) -> View:
    order = op.params.get("dimensions")
    x = x if order is None else op.trace.transpose(x, [int(k) for k in order])
    return op.trace.reshape(x, op.shape)


@primitive("transpose")
def _transpose(op: Equation, x: View) -> View:
    return op.trace.transpose(x, [int(k) for k in op.params["permutation"]])


@primitive("squeeze")
def _squeeze(op: Equation, x: View) -> View:
    return op.trace.squeeze(x, [int(k) % len(x.dims) for k in op.params["dimensions"]])


@primitive("iota")
def _iota(op: Equation, *_: View) -> View:
    place = int(op.params["dimension"])
    return placed(op.trace, op.trace.iota(op.shape[place], op.dtype), [place], op.shape)


@primitive("empty", "empty2")
def _empty(op: Equation, *_: View) -> View:
    return op.trace.number(0, op.dtype, op.shape)


@primitive("slice")
def _slice(op: Equation, x: View) -> View:
    starts, stops = op.params["start_indices"], op.params["limit_indices"]
    steps = op.params["strides"] or (1,) * len(starts)
    for place, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        x = strided(op.trace, x, place, int(start), int(stop), int(step))
    return x


@primitive("rev")
def _rev(op: Equation, x: View) -> View:
    return reversed_along(op.trace, x, [int(place) for place in op.params["dimensions"]])


@primitive("concatenate")
def _concatenate(op: Equation, *arrays: View) -> View:
    place = int(op.params["dimension"])
    filled = [array for array in arrays if array.shape[place]]
    made = op.trace.concat(filled or arrays[:1], place)
    op.pieces[made] = (place, tuple(filled))
    return made


@primitive("split")
def _split(op: Equation, x: View) -> list[View]:
    return cut_apart(op.trace, x, int(op.params["axis"]), [int(n) for n in op.params["sizes"]])


@primitive("stack")
def _stack(op: Equation, *arrays: View) -> View:
    return stacked(op.trace, arrays, int(op.params.get("axis", 0)))


@primitive("tile")
def _tile(op: Equation, x: View) -> View:
    shape = [n for pair in zip(op.params["reps"], x.shape, strict=True) for n in pair]
    wide = [n if k % 2 else 1 for k, n in enumerate(shape)]
    return op.trace.reshape(op.trace.expand(op.trace.reshape(x, wide), shape), op.shape)


@primitive("pad")
def _pad(op: Equation, x: View, value: View) -> View:
    return padded_around(op.trace, x, value, op.params["padding_config"])


@primitive("dynamic_slice")
def _dynamic_slice(op: Equation, x: View, *starts: View) -> View:
    for place, (start, size) in enumerate(zip(starts, op.params["slice_sizes"], strict=True)):
        if last := x.shape[place] - int(size):
            rows = op.trace.iota(int(size), "int64")
            rows = op.trace.map("x + y", rows, clamped(op, start, last))
            x = op.trace.take(x, place, rows)
    return x


def clamped(op: Equation, index: View, last: int) -> View:
    """An index that is 0 at least and `last` at most."""
    low, high = op.trace.number(0, "int64"), op.trace.number(last, "int64")
    return op.trace.map("min(max(x, y), z)", op.trace.cast(index, "int64"), low, high)


@primitive("dynamic_update_slice")
def _dynamic_update_slice(op: Equation, x: View, update: View, *starts: View) -> View:
    places = [k for k, size in enumerate(update.shape) if size != x.shape[k]]
    return put(op, x, update, {place: starts[place] for place in places})


def put(
    op: Equation, x: View, update: View, starts: dict[int, View], *, clamp: bool = True
) -> View:
    """An array with the window that starts at given indices replaced.

    Starts are clamped so that the window fits, or else windows that do not fit are dropped.
    """
    if not starts:
        return update
    lasts = {place: x.shape[place] - update.shape[place] for place in starts}
    [(place, start), *more] = starts.items()
    if start.number is not None and not more:
        at = int(start.number.real)
        if not clamp and not 0 <= at <= lasts[place]:
            return x
        return replaced(op.trace, x, place, min(max(at, 0), lasts[place]), update)
    masks: list[View] = []
    for place, start in starts.items():
        at = clamped(op, start, lasts[place]) if clamp else op.trace.cast(start, "int64")
        offset = op.trace.map("x - y", op.trace.iota(x.shape[place], "int64"), at)
        size = op.trace.number(update.shape[place], "int64")
        within = op.trace.map("x >= 0 and x < y", offset, size)
        if not clamp and update.shape[place] > 1:
            fits = op.trace.map("x >= 0 and x <= y", at, op.trace.number(lasts[place], "int64"))
            within = op.trace.map("x and y", within, fits)
        for _ in range(len(x.dims) - place - 1):
            within = op.trace.unsqueeze(within, len(within.dims))
        masks.append(within)
        if update.shape[place] == 1:
            continue
        rows = op.trace.map("min(max(x, 0), y - 1)", offset, size)
        update = op.trace.take(update, place, rows)
    inside = reduce(partial(op.trace.map, "x and y"), masks)
    return op.map("where(x, y, z)", inside, update, x)
