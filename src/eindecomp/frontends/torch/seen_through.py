"""Placements of a vertex as those of an array that is a view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.placements import Pending, Replicated, Sharded

if TYPE_CHECKING:
    from eindecomp.frontends.placements import Placed, Places
    from eindecomp.frontends.views import View


def seen_through(view: View, places: Places) -> Places | None:
    """Where an array lies whose vertex lies so; None where no placement says it.

    An axis inside a dimension of several cannot be cut alone: that is not one chunk.

    >>> from eindecomp.frontends.views import Factor, View
    >>> import numpy as np
    >>> view = View("X", ((Factor(4, 1),), (Factor(2, 0), Factor(3, 2))), np.dtype("float32"))
    >>> seen_through(view, (Sharded(0), Sharded(1)))
    (Sharded(dim=1, split_factor=1), Sharded(dim=0, split_factor=1))
    """
    at: dict[int, int] = {}
    for place, dim in enumerate(view.dims):
        for k, factor in enumerate(dim):
            if factor.axis is not None and k == 0:
                at[factor.axis] = place
    found: list[Placed] = []
    for own in places:
        match own:
            case Sharded(axis, factor):
                if axis not in at:
                    return None
                found.append(Sharded(at[axis], factor))
            case Replicated() | Pending():
                found.append(own)
    return tuple(found)
