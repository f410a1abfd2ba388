"""Products of a few dozen rows by a matrix with neighbours along what is summed.

Such is a prompt's product by weights as they are usually stored. To put panels of the long matrix
together means to turn all of it, which takes about as long as to multiply a few dozen rows by it.
Here the short matrix is turned instead: it is the panel, the long one is read where it lies, and
what comes out is the transposed result, which is turned while it is in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cpu.compiling.copies import make_copies, make_turned
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

_PANEL = 4
"""Vectors of rows up to which they are one panel."""
_STRETCH, _CHUNK = 512, 384
"""Terms of a panel, and columns whose results are held until all terms were added, at the most."""
_LEAST = 64
"""Of either at the least, so that panels are not put together too often."""
_AHEAD = 4
"""Terms of a panel that are asked for before they are read."""


def turned_panels_call(product: Product) -> LoopsCall | None:
    """A call for a product of a few dozen rows, None where it does not suit."""
    if set(product.types) & LOW_PRECISION or any(of.kind == "c" for of in product.types):
        return None
    result = product.types[2]
    by_rows = product.sides[2].column == result.itemsize
    view = orient(product, turned=by_rows)
    item, width = result.itemsize, lanes(result)
    vectors, rest = divmod(view.columns, width)
    if product.add or rest or view.columns <= ROWS or _panel(vectors) == 1 < vectors:
        return None
    if view.z.row != item or view.x.column != item or item not in (view.y.row, view.y.column):
        return None
    if min(view.rows, view.depth) < width:
        return None
    stretch, chunk = _sizes(view)
    scratch = (stretch + width + chunk) * view.columns * item
    return blocks_call(view, _lines(view), product.packs, "products by turned panels", scratch)


def _panel(vectors: int) -> int:
    """How many vectors wide panels are, of so many in all."""
    if vectors <= _PANEL:
        return vectors
    return next(count for count in (2, 3, 1) if vectors % count == 0)


def _sizes(view: Oriented) -> tuple[int, int]:
    """How many terms and columns are computed at a time, in a quarter of the second cache each."""
    fit = second_cache() // 4 // (view.columns * view.types[2].itemsize)
    return max(_LEAST, min(fit, _STRETCH)), max(_LEAST, min(fit, _CHUNK))


def _lines(view: Oriented) -> Lines:
    """The same for all sizes that have panels of the same width."""
    of = view.types[2]
    width, item = lanes(of), of.itemsize
    panel = _panel(view.columns // width)
    fit = f"{second_cache() // 4} // full"
    lines = Lines([f"full = columns * {item}", f"count = columns // {panel * width}"], {})
    lines.lines += [f"stretch = max({_LEAST}, min({fit}, {_STRETCH}))"]
    lines.lines += [f"chunk = max({_LEAST}, min({fit}, {_CHUNK}))"]
    lines.lines += [f"panels = {SCRATCH}", f"sums = panels + (stretch + {width}) * full"]
    inner = ["terms = min(depth - start, stretch)"]
    # A stretch at the end that is shorter than a vector joins the one before.
    inner += [f"if depth - start - terms < {width}:", "    terms = depth - start"]
    inner += [*_put_together(lines, view, panel), *_multiplied(lines, view, panel)]
    body = ["high = min(rows, low + chunk)"]
    # Results are turned a vector's width at a time: no chunk is narrower than that.
    body += [f"if 0 < rows - high < {width}:", f"    high -= {width}"]
    body += ["start = 0", "while start < depth:"]
    body += ["    " + line for line in (*inner, "start += terms")]
    name = f"turned_results_{of.name}"
    lines.blocks[name] = make_turned(of)
    where = "sums, full, result + low * z_row, z_column"
    body += [f"{name}(({where}, high - low, columns // {width}))", "low = high"]
    lines.lines += ["low = 0"]
    lines.under("while low < rows:", *body)
    return lines


def _put_together(lines: Lines, view: Oriented, panel: int) -> list[str]:
    """Turn a stretch of the short matrix."""
    of = view.types[2]
    width = panel * lanes(of)
    turned = view.y.column != of.itemsize
    name = f"copies_{of.name}_{of.name}_{turned:d}"
    lines.blocks[name] = make_copies(of, of, turned=turned)
    source = f"second + start * y_depth + k * {width} * y_column"
    place = f"panels + k * terms * {width * of.itemsize}"
    call = f"{name}(({source}, y_depth, y_column, {place}, terms, {panel}))"
    return ["for k in range(count):", "    " + call]


def _multiplied(lines: Lines, view: Oriented, panel: int) -> list[str]:
    """Multiply a few columns of the long matrix by all panels, then the next ones."""
    of = view.types[2]
    row = panel * lanes(of) * of.itemsize
    found = ["row = low"]
    for block in dict.fromkeys((registers().sums // panel, 1)):
        name = view.named("turned", block, panel, _AHEAD)
        made: Any = make_sums(block, panel, (of, of, of), _AHEAD, partial=False)
        lines.blocks[name] = made
        source = "first + row * x_row + start * x_depth, x_row, x_depth"
        where = f"sums + (row - low) * full + k * {row}, full, terms, start, 0"
        found += [f"while row + {block} <= high:", "    for k in range(count):"]
        found += [f"        {name}(({source}, panels + k * terms * {row}, {row}, {where}))"]
        found += [f"    row += {block}"]
    return found
