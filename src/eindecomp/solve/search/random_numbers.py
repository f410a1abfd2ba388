"""Pseudo-random integers for compiled loops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eindecomp.solve.compiled import compiled

RandomState = NDArray[np.uint64]
"""One non-zero word."""


@compiled
def random_below(state: RandomState, n: int) -> int:
    """A pseudo-random integer in [0, n), by xorshift64*; changes the state in place."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    high = (x * np.uint64(2685821657736338717)) >> np.uint64(33)
    return int(np.int64(high) % n)
