"""The mesh: devices arranged along axes, the prime factors of their number by default.

Axes cut dimensions into pieces by a rule of the mesh, one axis after another, outermost first.
Whatever the rule, the pieces of a finer cut lie inside those of the coarser, and the largest of m
pieces of n units has ⌈n/m⌉.

- `balanced`: piece k of n units cut m ways is `k*n//m : (k+1)*n//m`; sizes differ by at most one.
- `even`: only cuts into equal pieces exist, as in JAX.
- `ceil`: each axis of size m cuts what the axes outside it have left, n units, into chunks of
  ⌈n/m⌉, as `torch.chunk` and DTensor do. The last ones are shorter, or empty: 5 over 4 is 2, 2, 1
  and 0.

What a lookup or a scatter moves is a rule of the mesh too. Which rows an index names is known only
when a plan runs.

- `whole`: whole blocks of tables move, whichever rows are named. What moves is exact.
- `rows`: only rows that an index names move, each with its number. What moves is a worst case: that
  every index names another row, and none that the device has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from eindecomp.errors import PlanError

Ints = NDArray[np.int64]


BALANCED, EVEN, CEIL = PIECES = ("balanced", "even", "ceil")
WHOLE, ROWS = LOOKUPS = ("whole", "rows")
MAX_DEVICES = 1 << 20
NAME_LENGTH = 1000  # of an axis's name
SEPARATORS = "+,:="
"""What stands between names of axes, labels and sizes on the command line."""


@dataclass(frozen=True)
class Mesh:
    """Named axes with their sizes, outermost first; the last axis varies fastest in device numbers.

    >>> Mesh.of_devices(12).sizes
    (2, 2, 3)
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    pieces: str = BALANCED
    """The rule by which its axes cut dimensions into pieces: "balanced", "even" or "ceil"."""
    lookups: str = WHOLE
    """What moves where an index names rows of a table: "whole" blocks of it, or those "rows"."""

    def __post_init__(self) -> None:
        for name in self.names:
            check_axis_name(name)

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
            check_axis_name(name)
            if not is_whole(size) or size < 1:
                raise PlanError(f"mesh axis {name!r} needs a size of 1 or more, not {size!r}")
        kept = {name: int(size) for name, size in axes.items() if size > 1}
        if prod(kept.values()) > MAX_DEVICES:
            raise PlanError(f"a mesh has at most {MAX_DEVICES} devices, not {prod(kept.values())}")
        return Mesh(tuple(kept), tuple(kept.values()))

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return prod(self.sizes)

    @property
    def axes(self) -> dict[str, int]:
        """The size of each axis, by its name."""
        return dict(zip(self.names, self.sizes, strict=True))

    @property
    def cuts_evenly(self) -> bool:
        """Whether only equal pieces are allowed."""
        return self.pieces == EVEN

    def along(self, axes: Sequence[int]) -> Mesh:
        """The mesh that has only these axes."""
        names, sizes = (tuple(of[a] for a in axes) for of in (self.names, self.sizes))
        return replace(self, names=names, sizes=sizes)

    @cached_property
    def coordinates(self) -> Ints:
        """The coordinate of every device along every axis, one row per axis."""
        if not self.sizes:
            return np.zeros((0, 1), dtype=np.int64)
        return np.indices(self.sizes).reshape(len(self.sizes), -1)


def is_whole(number: object) -> TypeGuard[int]:
    """Whether something is a whole number, NumPy's included."""
    return isinstance(number, Integral) and not isinstance(number, bool)  # pyright: ignore[reportUnnecessaryIsInstance]


def check_axis_name(name: object) -> None:
    """Refuse a name that could not be shown, read from a plan file or given on the command line."""
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > NAME_LENGTH:
        shown = repr(name)
        shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
        raise PlanError(f"a mesh axis has a short name of printable characters, not {shown}")
    if any(sign in name for sign in SEPARATORS):
        raise PlanError(
            f"a mesh axis has a name without {' '.join(SEPARATORS)}, which separate axes, labels "
            f"and sizes in meshes and pins, not {name!r}"
        )


def prime_factors(number: int) -> tuple[int, ...]:
    """The prime factors in ascending order.

    >>> prime_factors(12)
    (2, 2, 3)
    """
    if not is_whole(number) or number < 1:
        raise PlanError(f"devices must be an integer, 1 or more, not {number!r}")
    if number > MAX_DEVICES:
        raise PlanError(f"at most {MAX_DEVICES} devices, not {number}")
    return _prime_factors(int(number))


@lru_cache(maxsize=256)
def _prime_factors(number: int) -> tuple[int, ...]:
    factors: list[int] = []
    factor = 2
    while number > 1:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor = factor + 1 if factor * factor <= number else max(number, 2)
    return tuple(factors)


def products_of(sizes: Sequence[int]) -> list[int]:
    """Into how many pieces some of these axes can cut."""
    products = {1}
    for size in sizes:
        products |= {size * each for each in products}
    return sorted(products)


def can_cut(rule: str, units: Any, parts: Any) -> Any:
    """Whether units can be cut into so many parts: numbers, or arrays of them.

    >>> can_cut("balanced", 6, 4), can_cut("even", 6, 4), can_cut("even", 6, 3)
    (True, False, True)
    """
    if rule == EVEN:
        return (parts <= units) & (units % parts == 0)
    return parts <= units


def piece_ends(rule: str, units: int, sizes: Sequence[int], index: int) -> tuple[int, int]:
    """Where a piece begins and ends when axes of these sizes cut, outermost first.

    >>> [piece_ends("balanced", 5, (2, 2), k) for k in range(4)]
    [(0, 1), (1, 2), (2, 3), (3, 5)]
    >>> [piece_ends("ceil", 5, (4,), k) for k in range(4)]
    [(0, 2), (2, 4), (4, 5), (5, 5)]
    >>> [piece_ends("ceil", 5, (2, 2), k) for k in range(4)]
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    if rule == CEIL:
        low, high = chunk_ends(units, sizes, np.unravel_index(index, tuple(sizes)))
        return int(low), int(high)
    inside = prod(sizes)
    return index * units // inside, (index + 1) * units // inside


def chunk_ends(units: int, sizes: Sequence[int], digits: Sequence[Any]) -> tuple[Ints, Ints]:
    """Where chunks begin and end at given coordinates along each axis, outermost first."""
    low, length = np.int64(0), np.int64(units)
    for size, digit in zip(sizes, digits, strict=True):
        chunk = -(-length // size)
        first = np.minimum(digit * chunk, length)
        low, length = low + first, np.minimum(chunk, length - first)
    return np.asarray(low), np.asarray(low + length)
