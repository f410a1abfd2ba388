"""Operations that PyTorch and JAX have in common, as a trace records them.

Some take the size of a dimension squared, and can be cut along either side: shapes are fixed, so
orders, running aggregates and groups are found by comparing every element with every place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from eindecomp.frontends.draft import View
from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.join import Indexed
from eindecomp.frontends.trace import Trace
from eindecomp.graph.text.macros import prelude_monoids
from eindecomp.lang.dtypes import BOOL
from eindecomp.lang.scalar import Arg, Tuple

# Functions of elements that lose no digits near 0, as joins


def log1p(x: str) -> str:
    """log(1 + x): what is lost in rounding 1 + x is made up for by a quotient."""
    one_more = f"(1 + ({x}))"
    return (
        f"where({one_more} == 1, {x}, where(abs({x}) > 0.5, log{one_more}, "
        f"log{one_more} * (({x}) / ({one_more} - 1))))"
    )


def expm1(x: str) -> str:
    """exp(x) - 1 of a real number, which is tanh(x / 2) (exp(x) + 1)."""
    return f"where(({x}) > 1, exp({x}) - 1, tanh(({x}) / 2) * (exp(min({x}, 1)) + 1))"


UNARY = {
    **{f: f"{f}(x)" for f in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf")},
    "exp2": "2.0**x",
    "tan": "sin(x) / cos(x)",
    "sinh": "tanh(x) * ((exp(x) + exp(-x)) / 2)",
    "cosh": "(exp(x) + exp(-x)) / 2",
    "erfc": "1 - erf(x)",
    "expm1": expm1("x"),
    "log1p": log1p("x"),
}
"""Functions of one number that both frameworks call alike; they yield fractions."""
_WHOLE = 4503599627370496.0
"""Beyond 2**52 every float is whole, and at infinity `//` is not a number."""
EXACT = {
    "neg": "-x",
    "abs": "abs(x)",
    "square": "x * x",
    "floor": f"where(abs(x) < {_WHOLE}, x // 1, x)",
    "ceil": f"where(abs(x) < {_WHOLE}, -(-x // 1), x)",
    "real": "real(x)",
    "imag": "imag(x)",
    "conj": "conj(x)",
    "eq": "x == y",
    "ne": "x != y",
    "lt": "x < y",
    "le": "x <= y",
    "gt": "x > y",
    "ge": "x >= y",
}
"""Functions that both frameworks call alike and that whole numbers have as well."""
_UP = "(x - x // 1 > 0.5 or (x - x // 1 == 0.5 and (x // 1) % 2 == 1))"
ROUND_EVEN = f"where(abs(x) < {_WHOLE}, where({_UP}, x // 1 + 1, x // 1), x)"
"""To the nearest whole number, and to the even one of two as near."""
REST = "where(x < 0, -(abs(x) % abs(y)), abs(x) % abs(y))"
"""The remainder of fractions with the sign of the dividend."""
COMPLEX = "x + y * complex(0.0, 1.0)"
"""A complex number, from its real and its imaginary part."""


# Shapes


def placed(trace: Trace, x: View, places: Sequence[int], shape: Sequence[int]) -> View:
    """An array whose dimensions are at these places of a shape, repeated along all others."""
    for place in range(len(shape)):
        if place not in places:
            x = trace.unsqueeze(x, place)
    return trace.expand(x, shape)


def stacked(trace: Trace, arrays: Sequence[View], place: int) -> View:
    """Arrays side by side along a new dimension."""
    return trace.concat([trace.unsqueeze(array, place) for array in arrays], place)


def cut_apart(trace: Trace, x: View, place: int, sizes: Sequence[int]) -> list[View]:
    """Parts of these sizes, one after another along a dimension."""
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return [trace.slice(x, place, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def reversed_along(trace: Trace, x: View, places: Sequence[int]) -> View:
    """An array backwards along dimensions."""
    for place in places:
        if (size := x.shape[place]) > 1:
            x = trace.slice(x, place, size - 1, -1, -1)
    return x


def padded(
    trace: Trace, x: View, value: View, place: int, low: int, high: int, between: int = 0
) -> View:
    """An array with a value before, after and between its elements; negative cuts off."""
    if between and x.shape[place] > 1:
        shape = x.shape
        wide = trace.unsqueeze(x, place + 1)
        gaps = trace.expand(value, (*shape[: place + 1], between, *shape[place + 1 :]))
        wide = trace.concat([wide, gaps], place + 1)
        long = shape[place] * (between + 1)
        x = trace.reshape(wide, (*shape[:place], long, *shape[place + 1 :]))
        x = trace.slice(x, place, 0, long - between)
    x = trace.slice(x, place, max(0, -low), x.shape[place] + min(0, high))

    def fill(count: int) -> View:
        return trace.expand(value, (*x.shape[:place], count, *x.shape[place + 1 :]))

    before, after = [fill(low)] if low > 0 else [], [fill(high)] if high > 0 else []
    return trace.concat([*before, x, *after], place)


def padded_around(trace: Trace, x: View, value: View, ends: Sequence[tuple[int, int, int]]) -> View:
    """The last dimensions padded, each by how much before, after and between its elements."""
    for place, (low, high, between) in enumerate(ends, len(x.dims) - len(ends)):
        x = padded(trace, x, value, place, int(low), int(high), int(between))
    return x


def replaced(trace: Trace, x: View, place: int, start: int, part: View) -> View:
    """An array with a range of a dimension replaced."""
    end = start + part.shape[place]
    parts = [trace.slice(x, place, 0, start), part, trace.slice(x, place, end, x.shape[place])]
    return trace.concat([each for each in parts if each.shape[place]], place)


# Windows


def strided(trace: Trace, x: View, place: int, start: int, stop: int, step: int) -> View:
    """Every `step`-th element of a range; a reshape where that is one of each group."""
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
    """The array with a dimension as two: which window, of as many as fit, and where in it."""
    shape = x.shape
    count = (shape[place] - spread * (size - 1) - 1) // step + 1
    if size == 1:
        return trace.unsqueeze(strided(trace, x, place, 0, (count - 1) * step + 1, step), place + 1)
    if step == size and spread == 1:
        x = trace.slice(x, place, 0, count * size)
        return trace.reshape(x, (*shape[:place], count, size, *shape[place + 1 :]))
    first = trace.unsqueeze(trace.iota(count, "int64", 0, step), 1)
    return trace.take(x, place, trace.map("x + y", first, trace.iota(size, "int64", 0, spread)))


def windows(
    trace: Trace, x: View, sizes: Sequence[int], steps: Sequence[int], spreads: Sequence[int]
) -> tuple[View, list[int]]:
    """The last dimensions, each as two: which window, and where in it; with the places of those."""
    first = len(x.dims) - len(sizes)
    for k, (size, step, spread) in enumerate(zip(sizes, steps, spreads, strict=True)):
        x = windowed(trace, x, first + 2 * k, size, step, spread)
    return x, [first + 2 * k + 1 for k in range(len(sizes))]


def convolved(
    trace: Trace,
    x: View,
    weight: View,
    steps: Sequence[int],
    spreads: Sequence[int],
    groups: int,
    dtype: object,
) -> View:
    """Sums of products over the windows of padded images, and over the channels of each group.

    Images are batch × channels × places, weights filters × channels of a group × places in the
    window, and the result is batch × filters × places.
    """
    if (rank := len(weight.dims) - 2) <= 3:
        trace.vote(x, ("b", "c", *"zyx"[3 - rank :]))
        trace.vote(weight, ("f", None, *"kji"[3 - rank :]), 1)
    seen, _ = windows(trace, x, weight.shape[2:], steps, spreads)
    batch, channels, *rest = seen.shape
    filters, each, *window = weight.shape
    images = trace.reshape(seen, (batch, groups, channels // groups, *rest))
    kernels = trace.reshape(weight, (groups, filters // groups, each, *window))
    # Symbols: batch, group, filter, channel, then places of windows and places in them.
    b, g, f, c = range(4)
    places = [4 + 2 * k for k in range(len(window))]
    reads = [
        Indexed(trace.cast(images, dtype), (b, g, c, *range(4, 4 + 2 * len(window)))),
        Indexed(trace.cast(kernels, dtype), (g, f, c, *(place + 1 for place in places))),
    ]
    made = trace.einsum(reads, (b, g, f, *places), dtype=dtype)
    return trace.reshape(made, (batch, filters, *made.shape[3:]))


# Orders along a dimension


def running(
    trace: Trace,
    x: View,
    axis: int,
    agg: str,
    *,
    backwards: bool = False,
    join: str = "x",
    here: Sequence[View] = (),
) -> View:
    """The aggregate of the elements up to each one; `join` may read arrays at the place of each.

    The running sums of one number are its multiples.
    """
    rank = len(x.dims)
    if x.number is not None and (agg, join, backwards) == ("sum", "x", False):
        counts = placed(trace, trace.iota(x.shape[axis], "int64", 1), [axis], x.shape)
        return trace.map("x * y", x, counts, dtype=x.dtype)
    output = tuple(rank if k == axis else k for k in range(rank))
    places = trace.iota(x.shape[axis], "int64")
    reads = [
        Indexed(x, tuple(range(rank))),
        Indexed(trace.number(neutral(agg, x.dtype), x.dtype), ()),
        Indexed(places, (axis,)),
        Indexed(places, (rank,)),
        *(Indexed(other, output) for other in here),
    ]
    counts = "z >= x3" if backwards else "z <= x3"
    return trace.einsum(reads, output, f"where({counts}, {join}, y)", agg)


def ranks(trace: Trace, keys: Sequence[View], axis: int, *, largest: bool) -> View:
    """How many elements come before each one along a dimension, ordered by keys.

    Of equal ones the first comes first, and NaN is the largest.
    """
    rank = len(keys[0].dims)
    there = tuple(rank if k == axis else k for k in range(rank))
    places = trace.iota(keys[0].shape[axis], "int64")
    # Reads: each key at another place and here, then both places.
    reads = [Indexed(key, symbols) for key in keys for symbols in (there, tuple(range(rank)))]
    reads += [Indexed(places, (rank,)), Indexed(places, (axis,))]
    names = [*"xyz", *(f"x{k}" for k in range(3, len(reads)))]
    comes = f"{names[-2]} < {names[-1]}"
    for k in reversed(range(len(keys))):
        other, own = names[2 * k], names[2 * k + 1]
        high, low = (other, own) if largest else (own, other)
        is_before = f"({high} > {low} or ({high} != {high} and {low} == {low}))"
        same = f"({other} == {own} or ({other} != {other} and {own} != {own}))"
        comes = f"({is_before} or ({same} and {comes}))"
    return trace.einsum(reads, range(rank), f"int64({comes})", "sum")


def at_rank(trace: Trace, x: View, rank: View, axis: int, count: int) -> View:
    """The elements with the first `count` ranks, in order."""
    dims = len(rank.dims)
    own = tuple(range(dims)) if x.dims and len(x.dims) == dims else (axis,)
    reads = [
        Indexed(x, own),
        Indexed(rank, tuple(range(dims))),
        Indexed(trace.iota(count, "int64"), (dims,)),
    ]
    output = [dims if k == axis else k for k in range(dims)]
    if x.dtype == BOOL:
        return trace.einsum(reads, output, "x and y == z", "any")
    return trace.einsum(reads, output, "where(y == z, x, 0)", "sum", x.dtype)


def first_in_order(trace: Trace, x: View, axis: int, count: int, *, largest: bool) -> list[View]:
    """The first elements along a dimension in order, and where they were."""
    rank = ranks(trace, [x], axis, largest=largest)
    places = trace.iota(x.shape[axis], "int64")
    return [at_rank(trace, source, rank, axis, count) for source in (x, places)]


def first_largest(trace: Trace, x: View, axis: int, agg: Literal["first_max", "first_min"]) -> View:
    """The place of the largest or smallest element along a dimension, the first of equal ones."""
    rank = len(x.dims)
    values = trace.cast(x, "int8") if x.dtype == BOOL else x
    places = trace.iota(x.shape[axis], "int64")
    output = [k for k in range(rank) if k != axis]
    reads = [Indexed(values, tuple(range(rank))), Indexed(places, (axis,))]
    return trace.einsum(reads, output, Tuple((Arg(0), Arg(1))), prelude_monoids()[agg], "int64")
