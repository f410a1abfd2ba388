"""Products by panels: a few columns over a stretch of terms, put together once for all rows.

What a BLAS does, but the first matrix is read where it lies: to put that together, too, takes some
dozens of rows as long as to multiply them. Numbers of few bits are widened on the way into a panel,
and sums of them rounded once, at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cpu.compiling.copies import make_copies
from eindecomp.kernels.cpu.compiling.vectors import lanes, make_sums, registers
from eindecomp.kernels.cpu.products.blocks import (
    ROWS,
    SCRATCH,
    Lines,
    Oriented,
    blocks_call,
    first_cache,
    orient,
)
from eindecomp.lang.dtypes import LOW_PRECISION, widen

if TYPE_CHECKING:
    from eindecomp.kernels.cpu.loops.launch import LoopsCall
    from eindecomp.kernels.cpu.products.product import Product

_LONG = 1024
"""Terms of a panel that the second cache holds."""
_FEW = 64
"""Rows up to which it counts that a panel is put together in the first cache."""
_AHEAD = 8
"""Terms of a panel that are asked for before they are read."""


def panels_call(product: Product) -> LoopsCall | None:
    """A call for a product of many rows, None where panels cannot be put together or stored."""
    first, second, result = product.types
    low = result in LOW_PRECISION
    if any(of.kind == "c" for of in product.types) or (product.add and low):
        return None
    view = orient(product, turned=product.sides[2].column != result.itemsize)
    _, second, result = view.types
    width = lanes(result)
    if view.z.column != result.itemsize or view.columns < width:
        return None
    if view.rows <= ROWS and not {first, second, result} & LOW_PRECISION:
        return None  # few rows are multiplied by what is read once, where it lies
    turned = view.y.column != second.itemsize
    if turned and (view.y.row != second.itemsize or view.depth < width):
        return None
    lines = _rounded(view, turned) if low else _direct(view, turned)
    item = widen(result).itemsize
    panel = _stretch(view) + width + (view.rows if low else 0)
    scratch = panel * _vectors(view) * width * item
    return blocks_call(view, lines, product.packs, "products by panels", scratch)


def _stretch(view: Oriented) -> int:
    """How many terms a panel has: the more, the less often sums are read and written."""
    if view.y.column != view.types[1].itemsize or view.rows > _FEW:
        return _LONG
    # Three quarters of the first cache: the rest is for rows and results.
    row = _vectors(view) * registers().bytes
    return max(lanes(view.types[2]), 3 * first_cache() // 4 // row)


def _vectors(view: Oriented) -> int:
    """How many vectors wide a panel is."""
    return max(1, registers().sums // view.narrow_blocks[0])


def _direct(view: Oriented, turned: bool) -> Lines:
    """Stretch by stretch, adding to the result."""
    onto = "1" if view.add else "start"
    width = lanes(view.types[2])
    inner = Lines([*_terms(view), "column = 0"], {})
    for count, partial in ((_vectors(view), False), (1, True)):
        where = f"result + row * z_row + place * z_column, z_row, terms, {onto}, column - place"
        body = _multiplied(inner, view, turned, count, where, partial=partial)
        inner.each_panel(count * width, body, last=partial)
    lines = Lines([f"panel = {SCRATCH}", "start = 0"], inner.blocks)
    lines.under("while start < depth:", *inner.lines, "start += terms")
    return lines


def _rounded(view: Oriented, turned: bool) -> Lines:
    """Panel by panel, with sums in float32 beside the result."""
    width = lanes(view.types[2])
    lines = Lines([f"panel = {SCRATCH}", "column = 0"], {})
    for count in dict.fromkeys((_vectors(view), 1)):
        row = count * width * 4
        where = f"sums + row * {row}, {row}, terms, start, 0"
        body = _multiplied(lines, view, turned, count, where, partial=False)
        stretches = ["start = 0", "while start < depth:"]
        stretches += ["    " + line for line in (*_terms(view), *body)]
        stretches += ["    start += terms", "for row in range(rows):"]
        stretches += [f"    for k in range({count * width}):"]
        store = f"store_{view.types[2].name}(result + row * z_row + place * z_column, k, "
        stretches += [f"        {store}reload_float32(sums + row * {row}, k))"]
        sums = f"sums = panel + {(_stretch(view) + width) * row}"
        lines.each_panel(count * width, [sums, *stretches], last=count == 1)
    return lines


def _terms(view: Oriented) -> list[str]:
    """A stretch of terms; one at the end that is shorter than a vector joins the one before."""
    width = lanes(view.types[2])
    rest = f"if depth - start - terms < {width}:"
    return [f"terms = min(depth - start, {_stretch(view)})", rest, "    terms = depth - start"]


def _multiplied(
    lines: Lines, view: Oriented, turned: bool, vectors: int, where: str, *, partial: bool
) -> list[str]:
    """Put a panel together and multiply all rows by it."""
    first, second, result = view.types
    wide = widen(result)
    name = f"copies_{second.name}_{wide.name}_{turned:d}"
    lines.blocks[name] = make_copies(second, wide, turned=turned)
    source = "second + start * y_depth + place * y_column"

    def make(block: int) -> tuple[str, Any]:
        made = make_sums(block, vectors, (first, wide, wide), _AHEAD, partial=partial)
        return view.named("panel", block, vectors, partial), made

    row = vectors * lanes(wide) * wide.itemsize
    call = f"((first + row * x_row + start * x_depth, x_row, x_depth, panel, {row}, {where}))"
    return [
        f"{name}(({source}, y_depth, y_column, panel, terms, {vectors}))",
        *lines.each_row(view.narrow_blocks, make, call),
    ]
