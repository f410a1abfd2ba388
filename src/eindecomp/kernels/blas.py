"""Adding a matrix product to what is there already: the call of BLAS that NumPy does not offer."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

_NAMES = {"float32": "sgemm", "float64": "dgemm", "complex64": "cgemm", "complex128": "zgemm"}
_BLAS: Any = import_module("scipy.linalg.cython_blas")  # a compiled module without types
_MOST = 2**31 - 1  # the largest size or step that this BLAS takes


def add_product(x: Array, y: Array, out: Array) -> None:
    """`out += x @ y` for matrices of one type, each with neighbours along its rows or columns.

    >>> out = np.ones((2, 2))
    >>> add_product(np.arange(4.0).reshape(2, 2), np.eye(2), out)
    >>> out
    array([[1., 2.],
           [3., 4.]])
    """
    if out.strides[1] != out.itemsize:  # BLAS wants columns of neighbours, as this has
        x, y, out = y.T, x.T, out.T
    (turn_x, step_x), (turn_y, step_y), (_, step) = map(_side, (x, y, out))
    (rows, columns), depth = out.shape, x.shape[1]
    sizes = (columns, rows, depth, step_y, step_x, step)
    if max(sizes) > _MOST:
        out += x @ y
        return
    one = np.ones(1, out.dtype).ctypes
    n, m, k, ldy, ldx, ldz = (ctypes.byref(ctypes.c_int(size)) for size in sizes)
    # Fortran sees every matrix transposed: zᵀ = yᵀ·xᵀ.
    _function(_NAMES[out.dtype.name])(
        turn_y, turn_x, n, m, k, one.data, y.ctypes.data, ldy, x.ctypes.data, ldx,
        one.data, out.ctypes.data, ldz,
    )  # fmt: skip


def _side(matrix: Array) -> tuple[bytes, int]:
    """Whether Fortran is to transpose a matrix, and the step between its rows or columns."""
    at = 1 if matrix.strides[1] == matrix.itemsize else 0
    # A single row has no step; BLAS wants one that could be.
    return b"TN"[at : at + 1], max(matrix.strides[1 - at] // matrix.itemsize, matrix.shape[at], 1)


@cache
def _function(name: str) -> Callable[..., None]:
    """A function of SciPy's BLAS; calling it lets other threads run."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    title = ctypes.pythonapi.PyCapsule_GetName
    title.restype, title.argtypes = ctypes.c_char_p, [ctypes.py_object]
    capsule = _BLAS.__pyx_capi__[name]
    kinds = [*[ctypes.c_char_p] * 2, *[ctypes.c_void_p] * 11]
    return ctypes.CFUNCTYPE(None, *kinds)(pointer(capsule, title(capsule)))
