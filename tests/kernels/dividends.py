"""Numbers whose quotients and remainders have edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import eindecomp as ed

FLOATS = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, 0.1, 1e-40, 3e38, math.inf, -math.inf,
          math.nan, 1.0000001, 16777217.0]  # fmt: skip


def numbers(of: str) -> Any:
    if of.startswith(("float", "bfloat")):
        with np.errstate(over="ignore"):
            return np.array(FLOATS).astype(ed.parse(f"input X[] {of}\noutput X")["X"].dtype)
    ends = np.iinfo(of)
    few = [0, 1, -1, 2, -2, 3, -3, 7, -7, 100, -100, ends.min, ends.min + 1, ends.max, ends.max - 1]
    return np.array([n for n in few if ends.min <= n <= ends.max], of)
