"""A matrix product as it lies in memory, and calls that compute it for every pair of two stacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.kernels.cpu.compiling.compile import compile_source
from eindecomp.kernels.cpu.loops.launch import LoopsCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.kernels.cpu.loops.launch import Pack
    from eindecomp.lang.dtypes import DType


@dataclass(frozen=True, slots=True)
class MatrixSteps:
    """A stack's matrices: byte steps along rows and columns."""

    row: int
    column: int

    @property
    def turned(self) -> MatrixSteps:
        """The transposed matrices."""
        return MatrixSteps(self.column, self.row)


@dataclass(frozen=True, slots=True)
class Product:
    """Stacks of products of m × k by k × n matrices, and where their numbers are."""

    types: tuple[DType, DType, DType]
    """Of the first input, the second and the result."""
    shape: tuple[int, int, int]
    """m, n and k."""
    sides: tuple[MatrixSteps, MatrixSteps, MatrixSteps]
    loops: tuple[tuple[int, int, int, int], ...] = ()
    """Those over the stack: the size, and the byte step of either input and of the result."""
    packs: tuple[Pack, ...] = ()
    """Inputs that are copied first; their sides and steps are those of the copies."""
    add: bool = False
    """Whether the product is added to what the result holds."""


_OVER_STACK = """
def kernel(at):
    loops = load_int64(at, {count})
    total = 1
    for loop in range(loops):
        total *= load_int64(at, {count} + 1 + 4 * loop)
    for place in range(total):
        rest = place
        first, second = load_int64(at, {array}), load_int64(at, {array} + 1)
        result = load_int64(at, {array} + 2)
        for loop in range(loops - 1, -1, -1):
            slot = {count} + 1 + 4 * loop
            size = load_int64(at, slot)
            k = rest % size
            rest //= size
            first += k * load_int64(at, slot + 1)
            second += k * load_int64(at, slot + 2)
            result += k * load_int64(at, slot + 3)
"""


def call_over_stack(
    product: Product,
    head: Sequence[int],
    body: Sequence[str],
    *,
    turned: bool,
    uses_blas: bool = False,
) -> LoopsCall:
    """A call whose `body` multiplies `first` by `second` into `result`, for all of a stack.

    It finds the numbers of `head` in the first slots at `at`. If it is `turned`, `first` is the
    product's second input.
    """
    start = len(head)
    lines = ["        " + line for line in body]
    source = _OVER_STACK.format(array=start, count=start + 3) + "\n".join(lines) + "\n"
    integers = [*head, 0, 0, 0, len(product.loops)]
    for size, x, y, z in product.loops:
        integers += [size, *((y, x, z) if turned else (x, y, z))]
    inputs = [start + 1, start] if turned else [start, start + 1]
    addresses = [*inputs, start + 2, len(integers)]
    function = compile_source(source, "stacks of matrix products")
    filled = np.array([*integers, 0], np.int64)
    return LoopsCall(function, filled, addresses, 0, product.packs, 0, uses_blas)
