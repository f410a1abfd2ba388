"""Stacks of matrix products in one call: loops over the batch, BLAS for each product.

NumPy's `matmul` does the same, but sets up every array anew, cannot add to what is there, and asks
for views that take longer to make than a small product to compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eindecomp.kernels.cpu.products.product import call_over_stack

if TYPE_CHECKING:
    from eindecomp.kernels.cpu.loops.launch import LoopsCall
    from eindecomp.kernels.cpu.products.blas_libraries import BlasLibrary
    from eindecomp.kernels.cpu.products.product import MatrixSteps, Product


def blas_call(product: Product, library: BlasLibrary) -> LoopsCall | None:
    """A call for a product of one type; None if its sides are too long for the library.

    Every matrix has neighbours along its rows or columns.
    """
    (m, n, k), (x, y, z) = product.shape, product.sides
    dtype = product.types[2]
    if min(m, n) == 1:
        return _vector_call(product, library)
    # Fortran's matrices have neighbours along columns: ours with neighbours along rows are
    # transposed for it, and zᵀ = yᵀ·xᵀ.
    turned = z.column == dtype.itemsize
    if turned:
        m, n, x, y, z = n, m, y.turned, x.turned, z.turned
    letters, far = zip(*(_turn(side, dtype.itemsize) for side in (x, y)), strict=True)
    steps = [step // dtype.itemsize for step in (*far, z.column)]
    if max(m, n, k, *steps) > library.largest:
        return None
    head = [library.matrices[dtype.name], *letters, m, n, k, *_factors(product), *steps]
    body = ["call_gemm(at, first, second, result)"]
    return call_over_stack(product, head, body, turned=turned, uses_blas=True)


def _vector_call(product: Product, library: BlasLibrary) -> LoopsCall | None:
    """The same for a product of one row or column: `first` is the vector."""
    (m, n, k), (x, y, z) = product.shape, product.sides
    dtype, turned = product.types[2], m > 1
    if turned:
        n, x, y, z = m, y.turned, x.turned, z.turned
    # The letter as if the matrix were the first, whose neighbours are along its rows or columns.
    letter, far = _turn(y.turned, dtype.itemsize)
    sizes = (n, k) if letter == ord("N") else (k, n)
    steps = [step // dtype.itemsize for step in (far, x.column, z.column)]
    if max(*sizes, *steps) > library.largest:
        return None
    head = [library.vectors[dtype.name], letter, *sizes, *_factors(product), *steps]
    body = ["call_gemv(at, first, second, result)"]
    return call_over_stack(product, head, body, turned=turned, uses_blas=True)


def _factors(product: Product) -> tuple[int, ...]:
    """Alpha and beta, in two slots each: by what the product and what was there are multiplied."""
    low, high = np.frombuffer(np.ones(1, product.types[2]).tobytes().ljust(16, b"\0"), np.int64)
    one = int(low), int(high)
    return (*one, *(one if product.add else (0, 0)))


def _turn(side: MatrixSteps, itemsize: int) -> tuple[int, int]:
    """Whether Fortran is to transpose a matrix, as its letter, and the step between columns."""
    return (ord("N"), side.column) if side.row == itemsize else (ord("T"), side.row)
