"""Operations that PyTorch and JAX have in common, as a trace records them.

Some take the size of a dimension squared, and can be cut along either side: shapes are fixed, so
orders, running aggregates and groups are found by comparing every element with every place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Literal

from eindecomp.frontends.draft import View
from eindecomp.frontends.formulas import neutral
from eindecomp.frontends.join import Indexed
from eindecomp.frontends.trace import Trace
from eindecomp.frontends.windows import Along, around
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


def split_in_two(trace: Trace, x: View, place: int, sizes: tuple[int, int]) -> View:
    """A dimension as two; where one of them is 1, it is no axis of the vertex."""
    if 1 in sizes:
        return trace.unsqueeze(x, place + (sizes[0] != 1))
    return trace.reshape(x, (*x.shape[:place], *sizes, *x.shape[place + 1 :]))


def stacked(trace: Trace, arrays: Sequence[View], place: int) -> View:
    """Arrays side by side along a new dimension."""
    return trace.concat([trace.unsqueeze(array, place) for array in arrays], place)


def cut_apart(trace: Trace, x: View, place: int, sizes: Sequence[int]) -> list[View]:
    """Parts of these sizes, one after another along a dimension."""
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return [trace.slice(x, place, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def reversed_along(trace: Trace, x: View, places: Sequence[int]) -> View:
    """An array backwards along dimensions."""
    sizes = x.shape
    return trace.seen(x, {k: Along((sizes[k],), (-1,), sizes[k] - 1) for k in places})


def moved_around(trace: Trace, x: View, place: int, low: int, size: int) -> View:
    """As many elements as `size` from `low` on along a dimension that starts again at its ends."""
    long = x.shape[place]
    if not long:
        return x
    rounds = range(low // long, (low + size - 1) // long + 1)
    parts = [
        trace.seen(x, {place: Along((size,), (1,), low - n * long, outside=0)}) for n in rounds
    ]
    join = "x or y" if x.dtype == BOOL else "x + y"
    return reduce(lambda a, b: trace.map(join, a, b, dtype=x.dtype), parts)


def padded(trace: Trace, x: View, value: View, ends: Mapping[int, Sequence[int]]) -> View:
    """An array with a value before, after and between its elements along dimensions."""

    def wide(array: View, beside: int | float) -> View:
        by = {k: around(x.shape[k], *map(int, own), outside=beside) for k, own in ends.items()}
        return trace.seen(array, by)

    if isinstance(value.number, int | float) and value.number == value.number:
        return wide(x, value.number)
    within = wide(trace.number(True, BOOL, x.shape), 0)
    return trace.map("where(x, y, z)", within, wide(x, 0), value, dtype=x.dtype)


def replaced(trace: Trace, x: View, part: View, at: Mapping[int, tuple[int, int]]) -> View:
    """An array with a part put in: from where on along dimensions, and in which steps."""
    by = {k: Along((x.shape[k],), (1,), -start, step, outside=0) for k, (start, step) in at.items()}
    within = trace.seen(trace.number(True, BOOL, part.shape), by)
    return trace.map("where(x, y, z)", within, trace.seen(part, by), x, dtype=x.dtype)


# Windows


def windows(trace: Trace, x: View, along: Sequence[Along]) -> tuple[View, list[int]]:
    """The last dimensions, each as two: which window, and where in it; with the places of those."""
    first = len(x.dims) - len(along)
    seen = trace.seen(x, dict(enumerate(along, first)))
    return seen, [first + 2 * k + 1 for k in range(len(along))]


def convolved(trace: Trace, x: View, kernels: View, along: Sequence[Along], dtype: object) -> View:
    """Sums of products over the windows of images, and over the channels of each group.

    Images are batch × channels × places, kernels groups × filters × channels of a group × places in
    the window, and the result is batch × filters of all groups × places.
    """
    groups, filters, each, *window = kernels.shape
    names = "zyx"[3 - len(window) :] if len(window) <= 3 else ""
    if names:
        trace.vote(x, ("b", "c", *names))
        trace.vote(kernels, ("g", "f", "c", *("kji"[3 - len(window) :])), 1)
    images = split_in_two(trace, trace.cast(x, dtype), 1, (groups, each))
    seen, _ = windows(trace, images, along)
    # Symbols: batch, group, filter, channel, then places of windows and places in them.
    b, g, f, c = range(4)
    places = [4 + 2 * k for k in range(len(window))]
    reads = [
        Indexed(seen, (b, g, c, *range(4, 4 + 2 * len(window)))),
        Indexed(trace.cast(kernels, dtype), (g, f, c, *(place + 1 for place in places))),
    ]
    made = trace.einsum(reads, (b, g, f, *places), dtype=dtype)
    made = trace.reshape(made, (x.shape[0], groups * filters, *made.shape[3:]))
    if names:
        trace.vote(made, ("b", ("g", "f") if groups > 1 else "f", *names), 1)
    return made


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
