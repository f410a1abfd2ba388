"""A matrix product as it lies in memory: the input of every way to compute it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eindecomp.kernels.cpu.loops.launch import Pack
    from eindecomp.lang.dtypes import DType


WORTH = 2**22
"""Multiply-adds from which on they are worth a large kernel, which takes some tenths of a second to
compile."""


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

    @property
    def work(self) -> int:
        """Multiply-adds of all matrices."""
        return prod((*self.shape, *(loop[0] for loop in self.loops)))
