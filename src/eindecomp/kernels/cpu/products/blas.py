"""Stacks of matrix products in one call: loops over the batch, BLAS for each product.

NumPy's `matmul` does the same, but sets up every array anew, cannot add to what is there, and asks
for views that take longer to make than a small product to compute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.kernels.cpu.compiling.compile import compile_source
from eindecomp.kernels.cpu.loops.launch import LoopsCall
from eindecomp.kernels.cpu.products.blocks import orient
from eindecomp.kernels.cpu.products.product import WORTH, MatrixSteps
from eindecomp.kernels.cpu.products.stacks import over_stack

if TYPE_CHECKING:
    from eindecomp.kernels.cpu.products.blas_libraries import BlasLibrary
    from eindecomp.kernels.cpu.products.product import Product

# Slots of `call_gemm` and `call_gemv`; then come the arrays and the loops over the stack.
_MATRICES, _VECTORS = 13, 11
_THIN, _DEEP = 64, 64
"""The longest side of a thin product, and the fewest terms for which turning it is worth it."""
_SOURCE = over_stack(["call_gemm(at, first, second, result)"], _MATRICES)
_VECTOR_SOURCE = over_stack(["call_gemv(at, first, second, result)"], _VECTORS)


def blas_call(product: Product, library: BlasLibrary) -> LoopsCall | None:
    """A call for a product of one type; None if the library cannot take it.

    Every matrix has neighbours along its rows or columns.
    """
    head = _head(product, library)
    if head is None:
        return None
    return _call(product, head, _SOURCE, turned=_is_by_rows(product))


def turned_blas_call(product: Product, library: BlasLibrary) -> LoopsCall | None:
    """Another call for a thin product, None where it does not suit.

    Libraries block what lies beside each other in the result: where that is the short side, they
    waste vectors. Here the long side lies so, in scratch memory, and the result is turned.
    """
    m, n, k = product.shape
    dtype, by_rows = product.types[2], _is_by_rows(product)
    beside, lines = (n, m) if by_rows else (m, n)
    if beside > min(_THIN, lines) or k < _DEEP or product.work < WORTH or dtype.kind == "c":
        return None
    item = dtype.itemsize
    side = MatrixSteps(item, lines * item) if by_rows else MatrixSteps(lines * item, item)
    inner = replace(product, sides=(*product.sides[:2], side), add=False)
    head = _head(inner, library)
    if head is None:
        return None
    z = product.sides[2]
    head += [lines, beside, z.row if by_rows else z.column]
    value = f"reload_{dtype.name}(scratch, place * lines + line)"
    if product.add:
        value += f" + reload_{dtype.name}(result + line * far, place)"
    source = over_stack(
        [
            f"lines, beside = load_int64(at, {_MATRICES}), load_int64(at, {_MATRICES + 1})",
            f"far = load_int64(at, {_MATRICES + 2})",
            f"scratch = load_int64(at, {_MATRICES + 7} + 4 * loops)",
            "call_gemm(at, first, second, scratch)",
            "for line in range(lines):",
            "    for place in range(beside):",
            f"        store_{dtype.name}(result + line * far, place, {value})",
        ],
        _MATRICES + 3,
    )
    return _call(product, head, source, turned=_is_by_rows(inner), scratch=m * n * item)


def _is_by_rows(product: Product) -> bool:
    return product.sides[2].column == product.types[2].itemsize


def _head(product: Product, library: BlasLibrary) -> list[int] | None:
    """What `call_gemm` is given beside the matrices; None if the library cannot take it."""
    (m, n, k), (x, y, z) = product.shape, product.sides
    dtype = product.types[2]
    # Fortran's matrices have neighbours along columns: ours with neighbours along rows are
    # transposed for it, and zᵀ = yᵀ·xᵀ.
    by_rows = _is_by_rows(product)
    first, second, result = (y.turned, x.turned, z.turned) if by_rows else (x, y, z)
    letters, steps = zip(*(_turn(side, dtype.itemsize) for side in (first, second)), strict=True)
    steps = [step // dtype.itemsize for step in (*steps, result.column)]
    sizes = (n, m, k) if by_rows else (m, n, k)
    if max(*sizes, *steps) > library.largest:
        return None
    return [library.matrices[dtype.name], *letters, *sizes, *_factors(product), *steps]


def blas_vector_call(product: Product, library: BlasLibrary) -> LoopsCall | None:
    """The same for a product of one row or column."""
    view = orient(product, turned=product.shape[0] > 1)
    dtype = view.types[2]
    # The letter as if the matrix were the first, whose neighbours are along its rows or columns.
    letter, far = _turn(view.y.turned, dtype.itemsize)
    sizes = (view.columns, view.depth) if letter == ord("N") else (view.depth, view.columns)
    steps = [step // dtype.itemsize for step in (far, view.x.column, view.z.column)]
    if max(*sizes, *steps) > library.largest:
        return None
    head = [library.vectors[dtype.name], letter, *sizes, *_factors(product), *steps]
    return _call(product, head, _VECTOR_SOURCE, turned=view.x_is == 1)


def _factors(product: Product) -> tuple[int, ...]:
    """Alpha and beta, in two slots each: by what the product and what was there are multiplied."""
    low, high = np.frombuffer(np.ones(1, product.types[2]).tobytes().ljust(16, b"\0"), np.int64)
    one = int(low), int(high)
    return (*one, *(one if product.add else (0, 0)))


def _call(
    product: Product, head: list[int], source: str, *, turned: bool, scratch: int = 0
) -> LoopsCall:
    """A call over a stack, given what comes before the arrays; `turned` swaps the inputs."""
    start = len(head)
    integers = [*head, 0, 0, 0, len(product.loops)]
    addresses = [start + 1, start, start + 2] if turned else [start, start + 1, start + 2]
    for size, *own in product.loops:
        integers += [size, *((own[1], own[0], own[2]) if turned else own)]
    addresses.append(len(integers))
    integers.append(0)
    function = compile_source(source, "stacks of matrix products")
    filled = np.array(integers, np.int64)
    return LoopsCall(function, filled, addresses, scratch, product.packs, uses_blas=True)


def _turn(side: MatrixSteps, itemsize: int) -> tuple[int, int]:
    """Whether Fortran is to transpose a matrix, as its letter, and the step between columns."""
    return (ord("N"), side.column) if side.row == itemsize else (ord("T"), side.row)
