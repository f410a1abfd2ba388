"""Orders in which the axes of one dimension nest."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eindecomp.planner.space.cut import Axes


def in_mesh_order(kept: Axes, added: Axes) -> Axes:
    """Axes with others added, each outside the first one that comes later in the mesh.

    >>> in_mesh_order((0, 2), (1,)), in_mesh_order((2, 0), (1,))
    ((0, 1, 2), (1, 2, 0))
    """
    nested = list(kept)
    for axis in added:
        later = (k for k, other in enumerate(nested) if other > axis)
        nested.insert(next(later, len(nested)), axis)
    return tuple(nested)


def interleaved(kept: Axes, added: Axes) -> Iterator[Axes]:
    """Every order of all axes in which the kept ones nest as they do.

    >>> list(interleaved((0, 1), (2,)))
    [(0, 1, 2), (0, 2, 1), (2, 0, 1)]
    """
    for order in permutations(added):
        yield from _merged(kept, order)


def _merged(one: Axes, other: Axes) -> Iterator[Axes]:
    """Every merge of two lists that keeps both in order."""
    if not one or not other:
        yield (*one, *other)
        return
    for rest in _merged(one[1:], other):
        yield (one[0], *rest)
    for rest in _merged(one, other[1:]):
        yield (other[0], *rest)
