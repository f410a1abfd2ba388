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
_WAITING = 8
"""Sums that are added to in turn, so that none has to wait for the one before."""
_FEW_TERMS = 4
"""Rows that are read at once where their lines would push each other out of a cache."""
_BAND, _RESULTS = 4096, 2**15
"""Columns to which terms are added at a time, and bytes of results, which stay in a cache."""


def few_rows_call(product: Product) -> LoopsCall | None:
    """A call for a product of few rows or columns, None if it is not one or lies otherwise."""
    return _call(product, together=True)


def line_by_line_call(product: Product) -> LoopsCall | None:
    """Another call, which reads one line of the long matrix at a time, or few: as they lie.

    That is slower where they are in a cache, and faster where they come from memory, which likes to
    be read in few long runs.
    """
    return _call(product, together=False)


def _call(product: Product, *, together: bool) -> LoopsCall | None:
    low = product.types[2] in LOW_PRECISION
    if any(of.kind == "c" for of in product.types) or (product.add and low):
        return None
    view = orient(product, turned=product.shape[0] > product.shape[1])
    _, second, result = view.types
    packs = product.packs
    rows = f"{view.blocks[0]} rows"
    if view.y.row == second.itemsize and view.depth >= lanes(result) and view.rows <= MOST_ROWS:
        if view.x.column != view.types[0].itemsize:
            view, pack = _packed(view)
            packs = (*packs, pack)
        columns = max(1, min(4, registers().sums // view.blocks[0])) if together else 1
        return blocks_call(view, _dots(view, columns), packs, f"dot products of {rows}")
    if not _is_beside(view) or low:
        return None
    if together:
        lines = _updates(view, _most_terms(view)) if 2 * view.rows <= ROWS else _sums(view)
        return blocks_call(view, lines, packs, f"products of {rows}")
    lines = _updates(view, min(_FEW_TERMS, _most_terms(view)))
    return blocks_call(view, lines, packs, f"updates of {rows}")


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


def _dots(view: Oriented, columns: int) -> Lines:
    """Neighbours along what is summed: so many columns at a time."""
    lines = Lines(["column = 0"], {})
    call = (
        "((first + row * x_row, x_row, second + column * y_column, y_column, "
        "result + row * z_row + column * z_column, z_row, z_column, depth))"
    )
    for width in dict.fromkeys((columns, 1)):

        def make(block: int, width: int = width) -> tuple[str, Any]:
            # Sums in as many registers as a column alone would keep waiting for one.
            unroll = max(1, _WAITING // block) if columns == 1 else 2 if block * width <= 4 else 1
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


def _most_terms(view: Oriented) -> int:
    """Rows of the long matrix whose factors fit the registers."""
    return max(1, registers().count // (2 if 2 * view.rows <= ROWS else 1) // view.rows)


def _updates(view: Oriented, terms: int) -> Lines:
    """Neighbours along columns: so many rows of the long matrix at a time."""
    rows, width = view.rows, lanes(view.types[2])
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
