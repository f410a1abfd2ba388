"""Which collective a movement along one mesh axis is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.layout.cut import Cut

Collective = Literal["all_gather", "all_to_all", "reduce_scatter", "point_to_point"]
FETCHES: tuple[Collective, ...] = ("all_gather", "all_to_all", "point_to_point")
"""The collectives that a fetch can be."""


def fetched_by(
    held: Sequence[Cut], needed: Sequence[Cut], axis: int
) -> dict[Collective, NDArray[np.bool_]]:
    """For each held and each needed cut, what fetching along an axis is.

    An axis that cuts what is held and not what is needed gathers. One that cuts another dimension
    than before exchanges. Anything else goes from device to device.
    """
    before = np.array([_cut_by(cut, axis) for cut in held], dtype=np.int64)[:, None]
    after = np.array([_cut_by(cut, axis) for cut in needed], dtype=np.int64)[None]
    gathers = (before >= 0) & (after < 0)
    exchanges = (before >= 0) & (after >= 0) & (before != after)
    return {
        "all_gather": gathers,
        "all_to_all": exchanges,
        "point_to_point": ~(gathers | exchanges),
    }


def _cut_by(cut: Cut, axis: int) -> int:
    """The dimension that an axis cuts, or -1."""
    return next((d for d, span in enumerate(cut) if axis in span.axes), -1)
