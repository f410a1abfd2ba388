"""Windows that move along a dimension, as convolutions and pools read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eindecomp.frontends.trace import Trace
    from eindecomp.frontends.views import View


def strided(trace: Trace, x: View, place: int, start: int, stop: int, step: int) -> View:
    """Every so many elements of a range; of all groups of them one each where that is so."""
    size, count = x.shape[place], len(range(start, stop, step))
    if not count:
        return trace.number(0, x.dtype, (*x.shape[:place], 0, *x.shape[place + 1 :]))
    if step == 1 or count == 1:
        return trace.slice(x, place, start, start + count)
    if size % step or start >= step or count != size // step:
        return trace.slice(x, place, start, stop, step)
    shape = x.shape
    groups = trace.reshape(x, (*shape[:place], count, step, *shape[place + 1 :]))
    return trace.index(groups, place + 1, start)


def windowed(trace: Trace, x: View, place: int, size: int, step: int, spread: int) -> View:
    """A dimension as two: which window, of as many as fit, and where in it."""
    shape = x.shape
    count = (shape[place] - spread * (size - 1) - 1) // step + 1
    if size == 1:
        one = strided(trace, x, place, 0, (count - 1) * step + 1, step)
        return trace.unsqueeze(one, place + 1)
    if step == size and spread == 1:
        x = trace.slice(x, place, 0, count * size)
        return trace.reshape(x, (*shape[:place], count, size, *shape[place + 1 :]))
    first = trace.unsqueeze(trace.iota(count, "int64", 0, step), 1)
    return trace.take(x, place, trace.map("x + y", first, trace.iota(size, "int64", 0, spread)))
