"""Products with a handful of rows or columns: vectors and thin matrices by long ones.

They take as long as reading the long matrix does. BLAS first copies it into an order of its own,
which is worth it from many rows on only; here it is read where it lies, once for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.kernels.compiling import compile_source
from eindecomp.kernels.loops import LoopsCall, Pack
from eindecomp.kernels.product import Side
from eindecomp.kernels.stacks import over_stack
from eindecomp.kernels.vectors import lanes, make_dots, make_sums, make_updates, registers
from eindecomp.lang.dtypes import FLOAT32, LOW_PRECISION, widen

if TYPE_CHECKING:
    from eindecomp.kernels.product import Product
    from eindecomp.lang.dtypes import DType

MOST_ROWS = 32
"""Rows up to which it may be worth reading the long matrix again for every few of them."""
_ROWS = 8
"""Rows of which all sums fit the registers."""
_STRETCH = 256
"""Terms whose part of a few columns stays in the first cache, to be read again by other rows."""
_AHEAD = 8
"""Rows of the long matrix that are asked for before they are read: each is far from the last."""
_BAND = 4096
"""Columns to which terms are added at a time: the results stay in the first cache."""
_FIRST = 9
"""The slot of the first array, after sizes and steps."""
_STEPS = ("x_row", "x_depth", "y_column", "y_depth", "z_row", "z_column")


@dataclass(frozen=True, slots=True)
class _Thin:
    """A product seen so that its first matrix is the thin one: which input that is, and steps."""

    thin: int
    types: tuple[DType, DType, DType]
    rows: int
    columns: int
    depth: int
    x: Side
    y: Side
    z: Side
    loops: tuple[tuple[int, int, int, int], ...]
    add: bool

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many rows are computed at once, and how many are left over by such blocks."""
        most = _ROWS if registers().count > 16 else _ROWS // 2
        left = self.rows % most
        return (left,) if self.rows < most else (most, left) if left else (most,)


def few_rows_call(product: Product) -> LoopsCall | None:
    """A call for a product of few rows or columns, None if it is not one or lies otherwise."""
    if any(of.kind == "c" for of in product.types):
        return None
    if product.add and product.types[2] in LOW_PRECISION:
        return None
    thin = _thin(product)
    if thin.rows > MOST_ROWS:
        return None
    first, second, result = thin.types
    width = lanes(result)
    if thin.y.row == second.itemsize and thin.depth >= width:
        return _call(product, thin, *_dots(thin))
    if thin.y.column == second.itemsize and thin.z.column == result.itemsize:
        if thin.columns < width:
            return None
        wide = replace(thin, types=(first, second, widen(result)))
        kind, lines, names = _updates(wide) if 2 * thin.rows <= _ROWS else _sums(wide)
        if result in LOW_PRECISION:
            lines = _rounded_at_the_end(lines, result.name)
        return _call(product, thin, kind, lines, names)
    return None


def _rounded_at_the_end(lines: list[str], of: str) -> list[str]:
    """Sums in float32 in memory beside the result, which gets them rounded once."""
    slot = _FIRST + 4  # after the number of loops over the stack come those, then that memory
    return [
        "rounded, rounded_row, rounded_column = result, z_row, z_column",
        f"result, z_row, z_column = load_int64(at, {slot} + 4 * loops), 4 * columns, 4",
        *lines,
        "for row in range(rows):",
        "    for column in range(columns):",
        "        place = rounded + row * rounded_row + column * rounded_column",
        f"        store_{of}(place, 0, reload_float32(result + row * z_row, column))",
        "result = rounded",
    ]


def _thin(product: Product) -> _Thin:
    (m, n, k), (x, y, z) = product.shape, product.sides
    first, second, result = product.types
    if m <= n:
        return _Thin(0, product.types, m, n, k, x, y, z, product.loops, product.add)
    loops = tuple((size, b, a, c) for size, a, b, c in product.loops)
    types = (second, first, result)
    return _Thin(1, types, n, m, k, y.turned, x.turned, z.turned, loops, product.add)


_Lines = tuple[str, list[str], dict[str, Any]]
"""What a kernel is called, its lines, and the blocks they use."""


def _named(thin: _Thin, kind: str, *numbers: int) -> str:
    """A name for a block that says all that it is made of."""
    return "_".join([kind, *map(str, numbers), *(of.name for of in thin.types), f"{thin.add:d}"])


def _each_block(thin: _Thin, names: dict[str, Any], make: Any, call: str) -> list[str]:
    """Lines that call a block for all rows; `make` gives its name and itself for so many rows."""
    lines = ["row = 0"]
    for block in thin.blocks:
        name, function = make(block)
        names[name] = function
        lines += [f"while row + {block} <= rows:", f"    {name}{call}", f"    row += {block}"]
    return lines


def _dots(thin: _Thin) -> _Lines:
    """Neighbours along what is summed."""
    columns = max(1, min(4, registers().sums // thin.blocks[0]))
    names: dict[str, Any] = {}
    call = (
        "((first + row * x_row, x_row, second + column * y_column, y_column, "
        "result + row * z_row + column * z_column, z_row, z_column, depth))"
    )
    lines = ["column = 0"]
    for width in dict.fromkeys((columns, 1)):

        def make(block: int, width: int = width) -> tuple[str, Any]:
            unroll = 2 if block * width <= 4 else 1
            made = make_dots(block, width, unroll, thin.types, add=thin.add)
            return _named(thin, "dots", block, width, unroll), made

        lines += [f"while column + {width} <= columns:"]
        body = (*_each_block(thin, names, make, call), f"column += {width}")
        lines += ["    " + line for line in body]
    return "dots", lines, names


def _sums(thin: _Thin) -> _Lines:
    """Neighbours along columns: a few of them over a stretch of terms, for all rows."""
    width = lanes(thin.types[2])
    vectors = max(1, registers().sums // thin.blocks[0])
    names: dict[str, Any] = {}
    lines = ["start = 0", "while start < depth:", f"    terms = min(depth - start, {_STRETCH})"]
    lines += [f"    onto = {1 if thin.add else 'start'}", "    column = 0"]
    call = (
        "((first + row * x_row + start * x_depth, x_row, x_depth, "
        "second + start * y_depth + {at} * y_column, y_depth, "
        "result + row * z_row + {at} * z_column, z_row, terms, onto, column - {at}))"
    )
    for count, partial in ((vectors, False), (1, False), (1, True)):

        def make(block: int, count: int = count, partial: bool = partial) -> tuple[str, Any]:
            made = make_sums(block, count, thin.types, _AHEAD, partial=partial)
            return _named(thin, "sums", block, count, partial), made

        if partial:
            lines += ["    if column < columns:", f"        last = columns - {width}"]
            body = _each_block(thin, names, make, call.format(at="last"))
        else:
            lines += [f"    while column + {count * width} <= columns:"]
            body = _each_block(thin, names, make, call.format(at="column"))
            body += [f"column += {count * width}"]
        lines += ["        " + line for line in body]
    return "sums", [*lines, "    start += terms"], names


def _updates(thin: _Thin) -> _Lines:
    """Neighbours along columns: the long matrix row by row, a few rows at a time."""
    rows, width = thin.rows, lanes(thin.types[2])
    terms = max(1, registers().count // 2 // rows)
    names: dict[str, Any] = {}
    # A band at the end that is narrower than a vector joins the one before.
    lines = ["band = 0", "while band < columns:", f"    wide = min(columns - band, {_BAND})"]
    lines += [f"    if columns - band - wide < {width}:", "        wide = columns - band"]
    if not thin.add:
        zero = f"store_{thin.types[2].name}(result + row * z_row + band * z_column, column, 0.0)"
        lines += ["    for row in range(rows):", "        for column in range(wide):"]
        lines += ["            " + zero]
    lines += ["    term = 0"]
    for count in dict.fromkeys((terms, 1)):
        name = _named(thin, "updates", rows, count)
        names[name] = make_updates(rows, count, thin.types)
        lines += [
            f"    while term + {count} <= depth:",
            f"        {name}((first + term * x_depth, x_row, x_depth, second + term * y_depth + "
            "band * y_column, y_depth, result + band * z_column, z_row, wide))",
            f"        term += {count}",
        ]
    return "updates", [*lines, "    band += wide"], names


def _call(
    product: Product, thin: _Thin, kind: str, lines: list[str], names: dict[str, Any]
) -> LoopsCall:
    x, y, z = thin.x, thin.y, thin.z
    packs = product.packs
    loops = thin.loops
    if kind == "dots" and x.column != thin.types[0].itemsize:
        pack, x, loops = _packed(thin)
        packs = (*packs, pack)
    steps = (x.row, x.column, y.column, y.row, z.row, z.column)
    head = ["rows, columns, depth = load_int64(at, 0), load_int64(at, 1), load_int64(at, 2)"]
    head += [f"{name} = load_int64(at, {3 + k})" for k, name in enumerate(_STEPS)]
    source = over_stack([*head, *lines], _FIRST)
    function = compile_source(source, f"products of {thin.blocks[0]} rows", names)
    integers = [thin.rows, thin.columns, thin.depth, *steps, 0, 0, 0, len(loops)]
    integers += [number for loop in loops for number in loop]
    addresses = [_FIRST + thin.thin, _FIRST + 1 - thin.thin, _FIRST + 2, len(integers)]
    scratch = 0
    if kind != "dots" and thin.types[2] in LOW_PRECISION:
        scratch = thin.rows * thin.columns * FLOAT32.itemsize
    return LoopsCall(function, np.array([*integers, 0], np.int64), addresses, scratch, packs)


def _packed(
    thin: _Thin,
) -> tuple[Pack, Side, tuple[tuple[int, int, int, int], ...]]:
    """The thin matrices with neighbours along what is summed, which costs next to nothing."""
    item = thin.types[0].itemsize
    step = item * thin.rows * thin.depth
    shape, strides = (thin.rows, thin.depth), (thin.x.row, thin.x.column)
    loops: list[tuple[int, int, int, int]] = []
    for size, of_x, of_y, of_z in reversed(thin.loops):
        loops.insert(0, (size, step if of_x else 0, of_y, of_z))
        if of_x:
            shape, strides, step = (size, *shape), (of_x, *strides), step * size
    return Pack(thin.thin, shape, strides), Side(item * thin.depth, item), tuple(loops)
