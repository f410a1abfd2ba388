"""Products with a handful of rows or columns: a thin matrix by a long one, read where it lies.

They take as long as reading the long matrix does. BLAS first copies it into an order of its own,
which is worth it only from many rows on. Low precision is widened on the way, and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.kernels.cpu.products.product import call_over_stack
from eindecomp.lang.dtypes import LOW_PRECISION, widen

if TYPE_CHECKING:
    from eindecomp.kernels.cpu.loops.launch import LoopsCall
    from eindecomp.kernels.cpu.products.product import Product
    from eindecomp.lang.dtypes import DType

_MOST_ROWS, _MOST_LOW = 8, 32
"""Rows up to which BLAS takes longer, and those of low precision, which BLAS does not know."""
_ROWS, _COLUMNS = 4, 3
"""Sums that are made at once: with what they are made of, they fit sixteen vector registers."""
_UNPACK = (
    "rows, columns, depth = load_int64(at, 0), load_int64(at, 1), load_int64(at, 2)",
    "x_row, y_column = load_int64(at, 3), load_int64(at, 4)",
    "z_row, z_column = load_int64(at, 5), load_int64(at, 6)",
    "column = 0",
)


def few_rows_call(product: Product) -> LoopsCall | None:
    """A call for a product of few rows or columns; None if it is not one, or lies otherwise.

    In both inputs the numbers that are summed must be neighbours.
    """
    (m, n, k), (x, y, z) = product.shape, product.sides
    first, second, result = product.types
    low = any(of in LOW_PRECISION for of in product.types)
    rows = min(m, n)
    if not (rows <= _MOST_LOW if low else 1 < rows <= _MOST_ROWS):
        return None
    if result.kind == "c" or (product.add and low):
        return None
    if x.column != first.itemsize or y.row != second.itemsize:
        return None
    turned = m > n
    if turned:
        m, n, x, y, z = n, m, y.turned, x.turned, z.turned
        first, second = second, first
    body = list(_UNPACK)
    for columns in dict.fromkeys((_COLUMNS, 1)):
        body += [f"while column + {columns} <= columns:", "    row = 0"]
        for rows in dict.fromkeys((min(m, _ROWS), 1)):
            block = _block(rows, columns, (first, second, result), add=product.add)
            body += [f"    while row + {rows} <= rows:", *("        " + line for line in block)]
        body += [f"    column += {columns}"]
    return call_over_stack(
        product, [m, n, k, x.row, y.column, z.row, z.column], body, turned=turned
    )


def _block(rows: int, columns: int, types: tuple[DType, DType, DType], *, add: bool) -> list[str]:
    """Sum a few rows by a few columns; terms are added in any order, as lanes of vectors do."""
    first, second, result = (of.name for of in types)
    zero = "to_f8(0.0)" if widen(types[2]).itemsize == 8 else "to_f4(0.0)"
    both = [(i, j) for i in range(rows) for j in range(columns)]
    lines = [f"x{i} = first + (row + {i}) * x_row" for i in range(rows)]
    lines += [f"y{j} = second + (column + {j}) * y_column" for j in range(columns)]
    lines += [f"s{i}_{j} = {zero}" for i, j in both]
    lines += ["for k in range(depth):"]
    lines += [f"    a{i} = load_{first}(x{i}, k)" for i in range(rows)]
    lines += [f"    b{j} = load_{second}(y{j}, k)" for j in range(columns)]
    lines += [f"    s{i}_{j} = sum_product(a{i}, b{j}, s{i}_{j})" for i, j in both]
    for i, j in both:
        place = f"result + (row + {i}) * z_row + (column + {j}) * z_column, 0"
        total = f"reload_{result}({place}) + s{i}_{j}" if add else f"s{i}_{j}"
        lines += [f"store_{result}({place}, {total})"]
    return [*lines, f"row += {rows}"]
