"""Products with a handful of rows or columns: vectors and thin matrices by long ones.

They take as long as reading the long matrix does. BLAS first copies it into an order of its own,
which is worth it from many rows on only; here every element is read once, where it lies, and
multiplied by all rows. Both matrices have neighbours along what is summed.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.kernels.compiling import compile_source
from eindecomp.kernels.emit import literal
from eindecomp.kernels.loops import LoopsCall
from eindecomp.kernels.stacks import over_stack
from eindecomp.lang.dtypes import widen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.kernels.layout import Layout
    from eindecomp.lang.dtypes import DType

_FEW = 8
"""Rows up to which the sums of all of them fit the registers."""
_DEEP = 32
"""Terms of a sum below which adding up the lanes of vectors takes longer than the products."""
_WORK = 2**14
"""Multiply-adds below which the loops of any EinSum do as well."""
_FIRST = 6
"""The slot of the first array, after sizes and steps."""


def thin_call(
    layout: Layout, classes: Sequence[Sequence[str]], types: Sequence[DType], *, add: bool
) -> LoopsCall | None:
    """A call for a product-sum of two inputs, None if it is not thin or lies otherwise.

    `classes` are the loops that both inputs and the result have, those of rows, those of columns,
    and those that are summed; `types` those of the inputs and the result.
    """
    batch, *parts = classes
    m, n, k = (prod(layout.sizes[label] for label in part) for part in parts)
    if any(len(part) > 1 for part in parts) or min(m, n) > _FEW:
        return None
    if k < _DEEP or m * n * k < _WORK or any(t.kind == "c" for t in types):
        return None
    # The first is the thin one from here on.
    order = (0, 1, 2) if m <= n else (1, 0, 2)
    few, many, summed = (
        next(iter(part), "") for part in (parts[order[0]], parts[order[1]], parts[2])
    )
    x, y, z = (layout.arrays[which] for which in order)
    first, second, result = (types[which] for which in order)
    if x[summed] != first.itemsize or y[summed] != second.itemsize:
        return None
    rows, columns = min(m, n), max(m, n)
    steps = [x.get(few, 0), y.get(many, 0), z.get(few, 0), z.get(many, 0)]
    loops = [(layout.sizes[t], x[t], y[t], z[t]) for t in batch]
    integers = [columns, k, *steps, 0, 0, 0, len(loops)]
    integers += [number for loop in loops for number in loop]
    addresses = [_FIRST + order[0], _FIRST + order[1], _FIRST + 2, len(integers)]
    source = over_stack(_product(rows, (first, second, result), add=add), _FIRST)
    function = compile_source(source, f"products of {rows} rows")
    return LoopsCall(function, np.array([*integers, 0], np.int64), addresses, 0, ())


def _product(rows: int, types: tuple[DType, DType, DType], *, add: bool) -> list[str]:
    """The lines that multiply one pair of matrices."""
    lines = ["columns, depth = load_int64(at, 0), load_int64(at, 1)"]
    steps = ("row_step", "column_step", "result_row", "result_column")
    lines += [f"{name} = load_int64(at, {2 + k})" for k, name in enumerate(steps)]
    lines += [f"x{row} = first + {row} * row_step" for row in range(rows)]
    lines += ["column = 0"]
    # Two columns share what is read of the rows; one matrix alone is read fastest by itself.
    for width in (2, 1) if rows > 1 else (1,):
        lines += [f"while column + {width} <= columns:"]
        lines += ["    " + line for line in _columns(rows, width, types, add=add)]
    return lines


def _columns(rows: int, width: int, types: tuple[DType, DType, DType], *, add: bool) -> list[str]:
    """The sums of all rows by some columns."""
    first, second, result = types
    pairs = [(row, column) for row in range(rows) for column in range(width)]
    lines = [f"y{c} = second + (column + {c}) * column_step" for c in range(width)]
    zero = literal(0, widen(result))
    lines += [f"s{r}_{c} = {zero}" for r, c in pairs]
    lines += ["for k in range(depth):"]
    lines += [f"    b{c} = load_{second.name}(y{c}, k)" for c in range(width)]
    lines += [f"    a{r} = load_{first.name}(x{r}, k)" for r in range(rows)]
    lines += [f"    s{r}_{c} = sum_product(a{r}, b{c}, s{r}_{c})" for r, c in pairs]
    for r, c in pairs:
        place = f"result + {r} * result_row + (column + {c}) * result_column"
        total = f"reload_{result.name}({place}, 0) + s{r}_{c}" if add else f"s{r}_{c}"
        lines += [f"store_{result.name}({place}, 0, {total})"]
    return [*lines, f"column += {width}"]
