"""The decorator for hot loops, and the types that they share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eindecomp.kernels.cpu.compiling.stored import compiled

__all__ = ["Mask", "State", "compiled"]

Mask = NDArray[np.bool_]
State = NDArray[np.uint64]  # of the random numbers: one non-zero word
