"""Products by panels of the second matrix and blocks of rows of the first, both put together.

What a BLAS does. To put rows together is worth it where there are many columns to multiply them by:
every block is then read in one stretch, however far apart its rows lie.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from eindecomp.kernels.cpu.compiling.copies import make_copies, make_panels, make_row_copies
from eindecomp.kernels.cpu.compiling.vectors import lanes, make_sums, registers
from eindecomp.kernels.cpu.products.blocks import (
    ROWS,
    SCRATCH,
    Lines,
    Oriented,
    blocks_call,
    orient,
    second_cache,
)
from eindecomp.lang.dtypes import LOW_PRECISION

if TYPE_CHECKING:
    from eindecomp.kernels.cpu.loops.launch import LoopsCall
    from eindecomp.kernels.cpu.products.product import Product

_STRETCH = 2**11
"""Bytes of a row that are multiplied at a time: more, and panels leave a core's own caches."""
_PANELS = 2
"""Panels put together at a time: what is read of a row is then long enough to be fetched ahead."""
_AHEAD = 8
"""Terms of a panel that are asked for before they are read."""
_WORTH = 2**24
"""Multiply-adds from which on it may be faster than panels alone; fewer are not worth compiling."""


def row_blocks_call(product: Product) -> LoopsCall | None:
    """A call for a product of many rows and columns, None where it does not suit."""
    if set(product.types) & LOW_PRECISION or any(of.kind == "c" for of in product.types):
        return None
    result = product.types[2]
    view = orient(product, turned=product.sides[2].column != result.itemsize)
    width, item = lanes(result), result.itemsize
    if view.z.column != item or min(view.columns, view.depth) < width or view.rows <= ROWS:
        return None
    if view.work < _WORTH:
        return None
    if item not in (view.x.row, view.x.column) or item not in (view.y.row, view.y.column):
        return None
    panels = _PANELS * _vectors(view) * width
    scratch = (_STRETCH + width * item) * (panels + min(view.rows, _chunk()))
    return blocks_call(view, _lines(view), product.packs, "products by blocks of rows", scratch)


def _vectors(view: Oriented) -> int:
    """How many vectors wide a panel is."""
    return max(1, registers().sums // view.blocks[0])


@cache
def _chunk() -> int:
    """How many rows fill half of the second cache, where they stay for all panels."""
    return max(1, second_cache() // 2 // (_STRETCH * ROWS)) * ROWS


def _lines(view: Oriented) -> Lines:
    of = view.types[2]
    width, item = lanes(of), of.itemsize
    inner = Lines([f"high = min(rows, low + {_chunk()})"], {})
    inner.lines += [*_put_together(inner, view), "column = 0"]
    _whole_panels(inner, view)
    body = ["panel = panels", *_panel(inner, view, 1), *_multiplied(inner, view, 1)]
    inner.each_panel(width, body, last=True)
    lines = Lines([f"panels = {SCRATCH}", "start = 0"], inner.blocks)
    size = (_STRETCH + width * item) * _PANELS * _vectors(view) * width
    lines.lines += [f"blocks = panels + {size}"]
    body = [f"terms = min(depth - start, {_STRETCH // item})"]
    # A stretch at the end that is shorter than a vector joins the one before.
    body += [f"if depth - start - terms < {width}:", "    terms = depth - start"]
    body += ["low = 0", "while low < rows:", *("    " + line for line in inner.lines)]
    lines.under("while start < depth:", *body, "    low = high", "start += terms")
    return lines


def _put_together(lines: Lines, view: Oriented) -> list[str]:
    """Put blocks of rows together, one term's numbers after another's."""
    of = view.types[2]
    source = "first + row * x_row + start * x_depth"
    to = f"blocks + (row - low) * terms * {of.itemsize}"
    found = ["row = low"]
    for block in view.blocks:
        read = f"load_bytes_{of.name}({source}, r * x_row + k * x_depth)"
        body = ["for k in range(terms):", f"    for r in range({block}):"]
        body += [f"        store_{of.name}({to}, k * {block} + r, {read})"]
        if view.x.column == of.itemsize and block.bit_count() == 1:
            name = f"row_copies_{block}_{of.name}"
            lines.blocks[name] = make_row_copies(block, of)
            body = [f"{name}(({source}, x_row, {to}, terms))"]
        body = ["    " + line for line in (*body, f"row += {block}")]
        found += [f"while row + {block} <= high:", *body]
    return found


def _whole_panels(lines: Lines, view: Oriented) -> None:
    """Add lines for panels as wide as they may be, a few of them at a time."""
    of, vectors = view.types[2], _vectors(view)
    width = vectors * lanes(of)
    step = f"panel = panels + k * terms * {width * of.itemsize}"
    body = [f"count = min((columns - column) // {width}, {_PANELS})"]
    if view.y.column == of.itemsize:
        name = f"panels_{of.name}_{vectors}"
        lines.blocks[name] = make_panels(of, vectors)
        source = "second + start * y_depth + column * y_column"
        body += [f"{name}(({source}, y_depth, panels, terms, count))"]
    each = [step, "place = column"]
    if view.y.column != of.itemsize:
        each += _panel(lines, view, vectors)
    each += [*_multiplied(lines, view, vectors), f"column += {width}"]
    body += ["for k in range(count):", *("    " + line for line in each)]
    lines.under(f"while column + {width} <= columns:", *body)


def _panel(lines: Lines, view: Oriented, vectors: int) -> list[str]:
    """Put one panel together."""
    of = view.types[2]
    turned = view.y.column != of.itemsize
    name = f"copies_{of.name}_{of.name}_{turned:d}"
    lines.blocks[name] = make_copies(of, of, turned=turned)
    source = "second + start * y_depth + place * y_column"
    return [f"{name}(({source}, y_depth, y_column, panel, terms, {vectors}))"]


def _multiplied(lines: Lines, view: Oriented, vectors: int) -> list[str]:
    """Multiply all blocks by a panel; one of one vector may overlap the panel before."""
    of, partial = view.types[2], vectors == 1
    found = ["row = low"]
    panel_row, onto = vectors * lanes(of) * of.itemsize, "1" if view.add else "start"
    for block in view.blocks:
        name = view.named("row_block", block, vectors, _AHEAD, partial)
        lines.blocks[name] = make_sums(block, vectors, (of, of, of), _AHEAD, partial=partial)
        rows = f"blocks + (row - low) * terms * {of.itemsize}, {of.itemsize}, {block * of.itemsize}"
        skip = "column - place"
        where = f"result + row * z_row + place * z_column, z_row, terms, {onto}, {skip}"
        call = f"{name}(({rows}, panel, {panel_row}, {where}))"
        found += [f"while row + {block} <= high:", f"    {call}", f"    row += {block}"]
    return found
