"""Blocks on all devices at once, as arrays in the shape of the mesh."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.layout.boxes import volume
from eindecomp.layout.cut import interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling

    Ints = NDArray[np.int64]


@lru_cache(maxsize=1 << 12)
def volumes(mesh: Mesh, tiling: Tiling) -> Ints:
    """How many elements every device has."""
    if tiling.split:
        found = [volume(tiling.box(mesh, device)) for device in range(mesh.devices)]
        return np.array(found, dtype=np.int64).reshape(mesh.sizes)
    return shared_volumes(mesh, tiling.cut, tiling.cut)


def shared_volumes(mesh: Mesh, one: Cut, other: Cut) -> Ints:
    """How many elements every device has under both of two cuts."""
    total = np.ones(mesh.devices, dtype=np.int64)
    for ours, theirs in zip(one, other, strict=True):
        (a, b), (c, d) = interval(mesh, ours), interval(mesh, theirs)
        total = total * np.maximum(np.minimum(b, d) - np.maximum(a, c), 0)
    return total.reshape(mesh.sizes)


def sides(mesh: Mesh, cut: Cut) -> list[Ints]:
    """How far every device's block reaches along each dimension."""
    ends = (interval(mesh, span) for span in cut)
    return [(high - low).reshape(mesh.sizes) for low, high in ends]


def group_size(mesh: Mesh, axes: tuple[int, ...]) -> int:
    """How many devices differ along these axes only."""
    return prod(mesh.sizes[a] for a in axes)


def axes_in(mesh: Mesh, bits: int) -> tuple[int, ...]:
    """The axes of a set that is given as bits."""
    return tuple(a for a in range(len(mesh.sizes)) if bits >> a & 1)
