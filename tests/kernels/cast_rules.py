"""What every cast gives, number by number, and the numbers where machines disagree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eindecomp.lang.dtypes import Kind, dtype, kind, widen

SPECIAL = [
    0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 5e-324, -5e-324, 1e-45, 1e-40, 6e-8,
    1e30, -1e30, 1e300, -1e300, math.inf, -math.inf, math.nan, 65504.0, 65520.0,
    *(sign * (2.0**bits + step) for bits in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64)
      for sign in (1, -1) for step in (-1.0, -0.5, 0.0, 0.5, 1.0)),
]  # fmt: skip


def values(name: str) -> np.ndarray[Any, Any]:
    """The special values that a type has, its limits among them."""
    of = dtype(name)
    if kind(of) is Kind.BOOL:
        return np.array([False, True])
    if kind(of) is Kind.INT:
        ends = np.iinfo(name)
        steps = {0, 1, 2, 100, ends.max - 1, ends.max, ends.min, ends.min + 1}
        steps |= {sign * (2**bits + step) for bits in (7, 8, 15, 16, 24, 31, 32, 53)
                  for sign in (1, -1) for step in (-1, 0, 1)}  # fmt: skip
        return np.array([n for n in sorted(steps) if ends.min <= n <= ends.max], of)
    with np.errstate(all="ignore"):
        real = np.array(SPECIAL).astype(of)
        if kind(of) is Kind.COMPLEX:
            parts = np.array([complex(x, y) for x in SPECIAL for y in (0.0, -1.0, math.nan)])
            return np.concatenate([real, parts.astype(of)])
    return real


def expected(number: Any, to: str) -> Any:
    """The rule, one number at a time."""
    of = dtype(to)
    if kind(of) is Kind.BOOL:
        return bool(number != 0)
    if isinstance(number, complex) and kind(of) is not Kind.COMPLEX:
        number = number.real
    if kind(of) is not Kind.INT:
        with np.errstate(all="ignore"):
            return np.asarray(number).astype(of).item()
    ends = np.iinfo(to)
    if isinstance(number, float):
        if math.isnan(number):
            return 0
        if math.isinf(number):
            return int(ends.max if number > 0 else ends.min)
        return max(int(ends.min), min(int(ends.max), int(number)))
    return (int(number) - int(ends.min)) % 2 ** (8 * of.itemsize) + int(ends.min)


def same(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    wide = widen(found.dtype)
    np.testing.assert_array_equal(found.astype(wide), wanted.astype(wide))
