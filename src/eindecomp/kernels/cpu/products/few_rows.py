"""Products with a handful of rows or columns: vectors and thin matrices by long ones.

They take as long as reading the long matrix does. BLAS first copies it into an order of its own,
which is worth it from many rows on only; here it is read where it lies, once for all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cpu.compiling.vectors import (
    lanes,
    make_dots,
    make_sums,
    make_updates,
    registers,
)
from eindecomp.kernels.cpu.loops.launch import Pack
from eindecomp.kernels.cpu.products.blocks import ROWS, Lines, Oriented, blocks_call, orient
from eindecomp.kernels.cpu.products.product import MatrixSteps
from eindecomp.lang.dtypes import LOW_PRECISION

if TYPE_CHECKING:
    from eindecomp.kernels.cpu.loops.launch import LoopsCall
    from eindecomp.kernels.cpu.products.product import Product

MOST_ROWS = 32
"""Rows up to which it may be worth reading the long matrix again for every few of them."""
_STRETCH = 256
"""Terms whose part of a few columns stays in the first cache, to be read again by other rows."""
_AHEAD = 8
"""Rows of the long matrix that are asked for before they are read: each is far from the last."""
_BAND, _RESULTS = 4096, 2**15
"""Columns to which terms are added at a time, and bytes of results, which stay in a cache."""


def few_rows_call(product: Product) -> LoopsCall | None:
    """A call for a product of few rows or columns, None if it is not one or lies otherwise."""
    low = product.types[2] in LOW_PRECISION
    if any(of.kind == "c" for of in product.types) or (product.add and low):
        return None
    view = orient(product, turned=product.shape[0] > product.shape[1])
    _, second, result = view.types
    width = lanes(result)
    packs = product.packs
    if view.y.row == second.itemsize and view.depth >= width and view.rows <= MOST_ROWS:
        if view.x.column != view.types[0].itemsize:
            view, pack = _packed(view)
            packs = (*packs, pack)
        return blocks_call(view, _dots(view), packs, f"dot products of {view.blocks[0]} rows")
    if _is_beside(view) and not low:
        lines = _updates(view) if 2 * view.rows <= ROWS else _sums(view)
        return blocks_call(view, lines, packs, f"products of {view.blocks[0]} rows")
    return None


def term_by_term_call(product: Product) -> LoopsCall | None:
    """Another call for as many rows as are else computed by blocks of columns, or None.

    The long matrix is read row by row, as it lies: slower where it is in a cache, and faster where
    it comes from memory, which likes to be read in long runs.
    """
    if set(product.types) & LOW_PRECISION or any(of.kind == "c" for of in product.types):
        return None
    view = orient(product, turned=product.shape[0] > product.shape[1])
    if 2 * view.rows <= ROWS or not _is_beside(view):
        return None
    return blocks_call(view, _updates(view), product.packs, f"updates of {view.rows} rows")


def _is_beside(view: Oriented) -> bool:
    """Whether there are few rows, and columns are neighbours in the long matrix and the result."""
    _, second, result = view.types
    fits = view.y.column == second.itemsize and view.z.column == result.itemsize
    return fits and view.columns >= lanes(result) and view.rows <= ROWS


def _packed(view: Oriented) -> tuple[Oriented, Pack]:
    """Thin matrices with neighbours along what is summed, which costs next to nothing."""
    item = view.types[0].itemsize
    step = item * view.rows * view.depth
    shape, strides = (view.rows, view.depth), (view.x.row, view.x.column)
    loops: list[tuple[int, int, int, int]] = []
    for size, of_x, of_y, of_z in reversed(view.loops):
        loops.insert(0, (size, step if of_x else 0, of_y, of_z))
        if of_x:
            shape, strides, step = (size, *shape), (of_x, *strides), step * size
    side = MatrixSteps(item * view.depth, item)
    return replace(view, x=side, loops=tuple(loops)), Pack(view.x_is, shape, strides)


def _dots(view: Oriented) -> Lines:
    """Neighbours along what is summed."""
    columns = max(1, min(4, registers().sums // view.blocks[0]))
    lines = Lines(["column = 0"], {})
    call = (
        "((first + row * x_row, x_row, second + column * y_column, y_column, "
        "result + row * z_row + column * z_column, z_row, z_column, depth))"
    )
    for width in dict.fromkeys((columns, 1)):

        def make(block: int, width: int = width) -> tuple[str, Any]:
            unroll = 2 if block * width <= 4 else 1
            made = make_dots(block, width, unroll, view.types, add=view.add)
            return view.named("dots", block, width, unroll), made

        body = (*lines.each_row(view.blocks, make, call), f"column += {width}")
        lines.under(f"while column + {width} <= columns:", *body)
    return lines


def _sums(view: Oriented) -> Lines:
    """Neighbours along columns: a few of them over a stretch of terms."""
    width, vectors = lanes(view.types[2]), max(1, registers().sums // view.blocks[0])
    inner = Lines([f"terms = min(depth - start, {_STRETCH})", "column = 0"], {})
    onto = "1" if view.add else "start"
    call = (
        "((first + row * x_row + start * x_depth, x_row, x_depth, "
        "second + start * y_depth + place * y_column, y_depth, "
        f"result + row * z_row + place * z_column, z_row, terms, {onto}, column - place))"
    )
    for count, partial in ((vectors, False), (1, True)):

        def make(block: int, count: int = count, partial: bool = partial) -> tuple[str, Any]:
            made = make_sums(block, count, view.types, _AHEAD, partial=partial, apart=True)
            return view.named("sums", block, count, _AHEAD, partial), made

        inner.each_panel(count * width, inner.each_row(view.blocks, make, call), last=partial)
    lines = Lines(["start = 0"], inner.blocks)
    lines.under("while start < depth:", *inner.lines, "start += terms")
    return lines


def _updates(view: Oriented) -> Lines:
    """Neighbours along columns: the long matrix row by row, a few rows at a time."""
    rows, width = view.rows, lanes(view.types[2])
    terms = max(1, registers().count // (2 if 2 * rows <= ROWS else 1) // rows)
    most = min(_BAND, _RESULTS // (rows * view.types[2].itemsize))
    # A band at the end that is narrower than a vector joins the one before.
    inner = Lines([f"wide = min(columns - band, {most})"], {})
    inner.under(f"if columns - band - wide < {width}:", "wide = columns - band")
    if not view.add:
        zero = f"store_{view.types[2].name}(result + row * z_row + band * z_column, column, 0.0)"
        inner.under("for row in range(rows):", "for column in range(wide):", "    " + zero)
    inner.lines += ["term = 0"]
    for count in dict.fromkeys((terms, 1)):
        name = view.named("updates", rows, count)
        inner.blocks[name] = make_updates(rows, count, view.types)
        call = (
            f"{name}((first + term * x_depth, x_row, x_depth, second + term * y_depth + "
            "band * y_column, y_depth, result + band * z_column, z_row, wide))"
        )
        inner.under(f"while term + {count} <= depth:", call, f"term += {count}")
    lines = Lines(["band = 0"], inner.blocks)
    lines.under("while band < columns:", *inner.lines, "band += wide")
    return lines
