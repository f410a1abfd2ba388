"""Stacks of matrix products in one call: loops over the batch, BLAS for each product.

NumPy's `matmul` does the same, but sets up every array anew, cannot add to what is there, and asks
for views that take longer to make than a small product to compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.kernels.cpu.compiling.compile import compile_source
from eindecomp.kernels.cpu.loops.launch import LoopsCall
from eindecomp.kernels.cpu.products.stacks import over_stack

if TYPE_CHECKING:
    from eindecomp.kernels.cpu.products.blas_libraries import BlasLibrary
    from eindecomp.kernels.cpu.products.product import MatrixSteps, Product

# Slots 0 to 12 are `call_gemm`'s, then come the arrays and the loops over the stack.
_SOURCE = over_stack(["call_gemm(at, first, second, result)"], 13)


def blas_call(product: Product, library: BlasLibrary) -> LoopsCall | None:
    """A call for a product of one type; None if the library cannot take it.

    Every matrix has neighbours along its rows or columns.
    """
    (m, n, k), (x, y, z) = product.shape, product.sides
    dtype = product.types[2]
    # Fortran's matrices have neighbours along columns: ours with neighbours along rows are
    # transposed for it, and zᵀ = yᵀ·xᵀ.
    by_rows = z.column == dtype.itemsize
    first, second, result = (y.turned, x.turned, z.turned) if by_rows else (x, y, z)
    letters, steps = zip(*(_turn(side, dtype.itemsize) for side in (first, second)), strict=True)
    steps = [step // dtype.itemsize for step in (*steps, result.column)]
    sizes = (n, m, k) if by_rows else (m, n, k)
    if max(*sizes, *steps) > library.largest:
        return None
    one = _slots(np.ones(1, dtype))
    integers = [library.products[dtype.name], *letters, *sizes, *one]
    integers += [*(one if product.add else (0, 0)), *steps, 0, 0, 0, len(product.loops)]
    addresses = [14, 13, 15] if by_rows else [13, 14, 15]
    for size, *own in product.loops:
        integers += [size, *((own[1], own[0], own[2]) if by_rows else own)]
    addresses.append(len(integers))
    integers.append(0)
    function = compile_source(_SOURCE, "stacks of matrix products")
    filled = np.array(integers, np.int64)
    return LoopsCall(function, filled, addresses, 0, product.packs, uses_blas=True)


def _turn(side: MatrixSteps, itemsize: int) -> tuple[int, int]:
    """Whether Fortran is to transpose a matrix, as its letter, and the step between columns."""
    return (ord("N"), side.column) if side.row == itemsize else (ord("T"), side.row)


def _slots(number: Any) -> tuple[int, int]:
    """A number of up to sixteen bytes as two integers."""
    low, high = np.frombuffer(number.tobytes().ljust(16, b"\0"), np.int64).tolist()
    return low, high
