"""The mesh: devices arranged along axes, the prime factors of their number by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAX_DEVICES = 1 << 20


@dataclass(frozen=True)
class Mesh:
    """Named axes with their sizes, outermost first; devices are numbered with the last fastest.

    >>> Mesh.of_devices(12).sizes
    (2, 2, 3)
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def of_devices(devices: int) -> Mesh:
        """One axis for each prime factor, in ascending order."""
        factors = prime_factors(devices)
        return Mesh(tuple(f"axis{i}" for i in range(len(factors))), factors)

    @staticmethod
    def of_axes(axes: Mapping[str, int]) -> Mesh:
        """The user's own axes, outermost first."""
        if not isinstance(axes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"a mesh is {{axis: size}}, not {axes!r}")
        for name, size in axes.items():
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise PlanError(f"mesh axis {name!r} needs a size of 1 or more, not {size!r}")
        kept = {name: size for name, size in axes.items() if size > 1}
        if prod(kept.values()) > MAX_DEVICES:
            raise PlanError(f"a mesh has at most {MAX_DEVICES} devices, not {prod(kept.values())}")
        return Mesh(tuple(kept), tuple(kept.values()))

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return prod(self.sizes)

    @cached_property
    def coordinates(self) -> Ints:
        """The coordinate of every device along every axis, one row per axis."""
        if not self.sizes:
            return np.zeros((0, 1), dtype=np.int64)
        return np.indices(self.sizes).reshape(len(self.sizes), -1)

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The axes grouped by size: those of one group are alike."""
        return tuple(
            tuple(a for a, size in enumerate(self.sizes) if size == kind)
            for kind in sorted(set(self.sizes))
        )


@lru_cache(maxsize=256)
def prime_factors(number: int) -> tuple[int, ...]:
    """The prime factors in ascending order.

    >>> prime_factors(12)
    (2, 2, 3)
    """
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"devices must be an integer, 1 or more, not {number!r}")
    if number > MAX_DEVICES:
        raise PlanError(f"at most {MAX_DEVICES} devices, not {number}")
    found: list[int] = []
    factor = 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor = factor + 1 if factor * factor <= number else max(number, 2)
    return tuple(found)
