"""What kernels made of vector blocks share: orientation, blocks of rows, and the call."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.kernels.cpu.compiling.compile import compile_source
from eindecomp.kernels.cpu.compiling.vectors import lanes, registers
from eindecomp.kernels.cpu.loops.launch import LoopsCall, Pack
from eindecomp.kernels.cpu.products.product import WORTH
from eindecomp.kernels.cpu.products.stacks import over_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.kernels.cpu.products.product import MatrixSteps, Product
    from eindecomp.lang.dtypes import DType

    Loop = tuple[int, int, int, int]

ROWS = 8
"""Rows of which all sums fit the registers, where there are many."""
_VECTORS = 4
"""Vectors of columns up to which a product is narrow: rows are blocked to fill the registers."""
_FIRST = 9
"""The slot of the first array, after sizes and steps."""
SCRATCH = f"load_int64(at, {_FIRST + 4} + 4 * loops)"
"""The address of scratch memory: after the loops over the stack."""
_CACHE = "/sys/devices/system/cpu/cpu0/cache/index{}/size"
_STEPS = ("x_row", "x_depth", "y_column", "y_depth", "z_row", "z_column")


@cache
def first_cache() -> int:
    """Bytes of a core's first cache for data."""
    return _cache(0, 2**15)


@cache
def second_cache() -> int:
    """Bytes of a core's second cache."""
    return _cache(2, 2**20)


def _cache(index: int, usual: int) -> int:
    with suppress(OSError, ValueError):
        text = Path(_CACHE.format(index)).read_text().strip()
        return int(text.rstrip("KM")) * {"K": 2**10, "M": 2**20}.get(text[-1:], 1)
    return usual


@dataclass(frozen=True, slots=True)
class Oriented:
    """A product x · y = z, or its transpose: then x is the second input."""

    x_is: int
    types: tuple[DType, DType, DType]
    rows: int
    columns: int
    depth: int
    x: MatrixSteps
    y: MatrixSteps
    z: MatrixSteps
    loops: tuple[Loop, ...]
    add: bool

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many rows are computed at once, and how many are left over by such blocks."""
        return self._cut(ROWS if registers().count > 16 else ROWS // 2)

    @property
    def narrow_blocks(self) -> tuple[int, ...]:
        """The same, more or fewer where all columns fit a few vectors: no narrower one is left."""
        vectors, rest = divmod(self.columns, lanes(self.types[2]))
        whole = rest == 0 and vectors <= _VECTORS and self.work >= WORTH
        return self._cut(registers().sums // vectors) if whole else self.blocks

    @property
    def work(self) -> int:
        """Multiply-adds of all matrices."""
        return prod((self.rows, self.columns, self.depth, *(loop[0] for loop in self.loops)))

    def _cut(self, most: int) -> tuple[int, ...]:
        left = self.rows % most
        return (left,) if self.rows < most else (most, left) if left else (most,)

    def named(self, kind: str, *numbers: int) -> str:
        """A name for a block that says all that it is made of."""
        types = (of.name for of in self.types)
        return "_".join([kind, *map(str, numbers), *types, f"{self.add:d}"])


def orient(product: Product, *, turned: bool) -> Oriented:
    """A product as it is, or transposed."""
    (m, n, k), (x, y, z) = product.shape, product.sides
    if not turned:
        return Oriented(0, product.types, m, n, k, x, y, z, product.loops, product.add)
    loops = tuple((size, b, a, c) for size, a, b, c in product.loops)
    first, second, result = product.types
    types = (second, first, result)
    return Oriented(1, types, n, m, k, y.turned, x.turned, z.turned, loops, product.add)


@dataclass(slots=True)
class Lines:
    """Lines of a kernel, and the blocks that they call."""

    lines: list[str]
    blocks: dict[str, Any]

    def under(self, head: str, *body: str) -> None:
        """Add a statement with lines under it."""
        self.lines += [head, *("    " + line for line in body)]

    def each_panel(self, width: int, body: Sequence[str], *, last: bool) -> None:
        """Add lines for panels of so many columns; the last of all may overlap the one before."""
        if last:
            place = f"place = min(column, columns - {width})"
            self.under("while column < columns:", place, *body, f"column = place + {width}")
        else:
            test = f"while column + {width} <= columns:"
            self.under(test, "place = column", *body, f"column += {width}")

    def each_row(
        self, blocks: Sequence[int], make: Callable[[int], tuple[str, Any]], call: str
    ) -> list[str]:
        """Lines that call a block for all rows; `make` names and makes it for so many rows."""
        lines = ["row = 0"]
        for block in blocks:
            name, function = make(block)
            self.blocks[name] = function
            lines += [f"while row + {block} <= rows:", f"    {name}{call}", f"    row += {block}"]
        return lines


def blocks_call(
    view: Oriented,
    lines: Lines,
    packs: tuple[Pack, ...],
    description: str,
    scratch: int = 0,
) -> LoopsCall:
    """The call of a kernel whose lines multiply one pair of matrices."""
    x, y, z = view.x, view.y, view.z
    steps = (x.row, x.column, y.column, y.row, z.row, z.column)
    head = ["rows, columns, depth = load_int64(at, 0), load_int64(at, 1), load_int64(at, 2)"]
    head += [f"{name} = load_int64(at, {3 + k})" for k, name in enumerate(_STEPS)]
    source = over_stack([*head, *lines.lines], _FIRST)
    function = compile_source(source, description, lines.blocks)
    integers = [view.rows, view.columns, view.depth, *steps, 0, 0, 0, len(view.loops)]
    integers += [number for loop in view.loops for number in loop]
    addresses = [_FIRST + view.x_is, _FIRST + 1 - view.x_is, _FIRST + 2, len(integers)]
    return LoopsCall(function, np.array([*integers, 0], np.int64), addresses, scratch, packs)
