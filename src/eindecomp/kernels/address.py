"""Where arrays are in memory."""

from __future__ import annotations

import sys
from ctypes import c_int64
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _told_address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def _read_address(array: Array) -> int:
    # As NumPy's own macro for C finds it, five times as fast as asking for it.
    return c_int64.from_address(id(array) + object.__basicsize__).value


def _is_told() -> bool:
    sample = np.zeros(3)[1:]
    return sys.implementation.name != "cpython" or _read_address(sample) != _told_address(sample)


address = _told_address if _is_told() else _read_address
"""A function of an array: where its first element is."""
