"""Boxes: blocks of a tensor's elements."""

from __future__ import annotations

from itertools import pairwise
from math import prod

Range = tuple[int, int]
Box = tuple[Range, ...]
"""From where to where it reaches along each dimension."""


def volume(box: Box) -> int:
    """How many elements a box has.

    >>> volume(((0, 2), (3, 6)))
    6
    """
    return prod(high - low for low, high in box)


def meet(one: Box, other: Box) -> Box | None:
    """What two boxes share, None if that is nothing.

    >>> meet(((0, 4),), ((2, 9),)), meet(((0, 4),), ((4, 9),))
    (((2, 4),), None)
    """
    if len(one) != len(other):  # an empty share of a single number
        return None
    shared = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return shared if all(low < high for low, high in shared) else None


def shares(box: Box, count: int) -> list[Box]:
    """A box in `count` pieces along its longest dimension; they may be empty.

    >>> shares(((0, 2), (0, 5)), 2)
    [((0, 2), (0, 2)), ((0, 2), (2, 5))]
    """
    if count == 1 or not box:
        return [box, *[_EMPTY] * (count - 1)]
    longest = max(range(len(box)), key=lambda d: box[d][1] - box[d][0])
    low, high = box[longest]
    size = high - low
    cuts = [low + k * size // count for k in range(count + 1)]
    return [(*box[:longest], (a, b), *box[longest + 1 :]) for a, b in pairwise(cuts)]


_EMPTY: Box = ((0, 0),)


def inside(box: Box, other: Box) -> bool:
    """Whether a box lies within another; an empty one always does."""
    sides = zip(box, other, strict=True)
    return not volume(box) or all(a >= c and b <= d for (a, b), (c, d) in sides)


def within(box: Box, other: Box) -> tuple[slice, ...]:
    """The slices of an array that holds `other` at which `box` lies; `...` for one number."""
    if not box:
        return (...,)  # pyright: ignore[reportReturnType] - an index of no dimensions takes the number
    return tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(box, other, strict=True))


def shape_of(box: Box) -> tuple[int, ...]:
    """How many elements a box has along each dimension."""
    return tuple(high - low for low, high in box)


def show_box(box: Box) -> str:
    """A box as one writes slices.

    >>> show_box(((0, 2), (3, 6)))
    '[0:2, 3:6]'
    """
    return f"[{', '.join(f'{low}:{high}' for low, high in box)}]"
