"""Stacks of matrix products in one call: loops over the batch, BLAS for each product.

NumPy's `matmul` does the same, but sets up every array anew, cannot add to what is there, and asks
for views that take longer to make than a small product to compute.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.kernels.compiling import compile_source
from eindecomp.kernels.loops import LoopsCall, Pack
from eindecomp.kernels.stacks import over_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.lang.dtypes import DType

_NAMES = {"float32": "sgemm", "float64": "dgemm", "complex64": "cgemm", "complex128": "zgemm"}
_BLAS: Any = import_module("scipy.linalg.cython_blas")  # a compiled module without types
_MOST = 2**31 - 1  # the largest size or step that this BLAS takes

# Slots 0 to 12 are `call_gemm`'s, then come the arrays and the loops over the stack.
_SOURCE = over_stack(["call_gemm(at, first, second, result)"], 13)


@dataclass(frozen=True, slots=True)
class Side:
    """A stack's matrices: byte steps along rows and columns."""

    row: int
    column: int

    @property
    def turned(self) -> Side:
        """The transposed matrices."""
        return Side(self.column, self.row)


def product_call(
    dtype: DType,
    shape: tuple[int, int, int],
    sides: tuple[Side, Side, Side],
    loops: Sequence[tuple[int, int, int, int]],
    packs: tuple[Pack, ...],
    *,
    add: bool,
) -> LoopsCall | None:
    """A call for stacks of products of m × k by k × n matrices; None if BLAS cannot take them.

    `loops` are those over the stack: the size, and the byte step of either input and the result.
    Every matrix has neighbours along its rows or columns. `add` adds to what the result holds.
    """
    (m, n, k), (x, y, z) = shape, sides
    # Fortran's matrices have neighbours along columns: ours with neighbours along rows are
    # transposed for it, and zᵀ = yᵀ·xᵀ.
    by_rows = z.column == dtype.itemsize
    first, second, result = (y.turned, x.turned, z.turned) if by_rows else (x, y, z)
    letters, steps = zip(*(_turn(side, dtype.itemsize) for side in (first, second)), strict=True)
    steps = [step // dtype.itemsize for step in (*steps, result.column)]
    sizes = (n, m, k) if by_rows else (m, n, k)
    if max(*sizes, *steps) > _MOST:
        return None
    one = _slots(np.ones(1, dtype))
    integers = [_address(_NAMES[dtype.name]), *letters, *sizes, *one, *(one if add else (0, 0))]
    integers += [*steps, 0, 0, 0, len(loops)]
    addresses = [14, 13, 15] if by_rows else [13, 14, 15]
    for size, *own in loops:
        integers += [size, *((own[1], own[0], own[2]) if by_rows else own)]
    addresses.append(len(integers))
    integers.append(0)
    function = compile_source(_SOURCE, "stacks of matrix products")
    return LoopsCall(function, np.array(integers, np.int64), addresses, 0, packs)


def _turn(side: Side, itemsize: int) -> tuple[int, int]:
    """Whether Fortran is to transpose a matrix, as its letter, and the step between columns."""
    return (ord("N"), side.column) if side.row == itemsize else (ord("T"), side.row)


def _slots(number: Any) -> tuple[int, int]:
    """A number of up to sixteen bytes as two integers."""
    low, high = np.frombuffer(number.tobytes().ljust(16, b"\0"), np.int64).tolist()
    return low, high


@cache
def _address(name: str) -> int:
    """Where a function of SciPy's BLAS is."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    title = ctypes.pythonapi.PyCapsule_GetName
    title.restype, title.argtypes = ctypes.c_char_p, [ctypes.py_object]
    capsule = _BLAS.__pyx_capi__[name]
    return pointer(capsule, title(capsule))
