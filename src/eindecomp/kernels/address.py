"""Where arrays are in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def address(array: np.ndarray[Any, Any]) -> int:
    """Where an array's first element is."""
    return array.__array_interface__["data"][0]
