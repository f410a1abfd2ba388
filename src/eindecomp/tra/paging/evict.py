"""Evicts: finds the window that is cheapest to have free when nothing large enough is."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Part(NamedTuple):
    """A piece of the arena: a hole, or a tensor's window."""

    start: int
    end: int
    since: int
    """The last task that uses it."""
    price: float
    """What it costs to have it free: nothing for a hole, infinity where a tensor must stay."""
    tensor: int | None = None


def cheapest(parts: Sequence[Part], size: int) -> Sequence[Part]:
    """The neighbours of least price that have so many bytes together; none if none have.

    `parts` are all of the arena, in order. Of equal ones those are chosen that are free earliest,
    then those that fit best.
    """
    best, chosen = (inf, 0, 0), slice(0)
    first, price = 0, 0.0
    for last, part in enumerate(parts):
        if part.price == inf:
            first, price = last + 1, 0.0
            continue
        price += part.price
        while part.end - parts[first].end >= size:
            price -= parts[first].price
            first += 1
        room = part.end - parts[first].start
        if room >= size and price <= best[0]:
            since = max(each.since for each in parts[first : last + 1])
            if (price, since, room) < best:
                best, chosen = (price, since, room), slice(first, last + 1)
    return parts[chosen]
