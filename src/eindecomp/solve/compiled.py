"""The decorator for hot loops: compiled by numba, cached on disk, typed as what it decorates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])

Mask = NDArray[np.bool_]
State = NDArray[np.uint64]  # of the random numbers: one non-zero word


def compiled(function: Function) -> Function:
    """Compile a function over arrays and numbers; annotations are for the reader only."""
    return cast("Function", njit(cache=True)(function))
