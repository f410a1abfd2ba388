"""Products of bfloat16 by the matrix unit that some x86-64 processors have (AMX).

It multiplies 16 × 32 numbers by 32 × 16 at a time, an order of magnitude faster than vectors do.
One matrix is read where it lies, its terms being neighbours; of the other, 32 columns at a time are
put together in pairs of terms, as the unit wants them. Sums are float32's and rounded at the end.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import TYPE_CHECKING, Any

import llvmlite.binding
from llvmlite import ir as untyped_ir
from numba.core import cgutils as untyped_cgutils

from eindecomp.kernels.cpu.compiling.copies import make_copies
from eindecomp.kernels.cpu.compiling.vectors import Block, lanes, make_function
from eindecomp.kernels.cpu.products.blocks import SCRATCH, Lines, Oriented, blocks_call, orient
from eindecomp.lang.dtypes import FLOAT32, dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.kernels.cpu.loops.launch import LoopsCall
    from eindecomp.kernels.cpu.products.product import Product

ir: Any = untyped_ir
cgutils: Any = untyped_cgutils
_BFLOAT16 = dtype("bfloat16")
_BYTE, _I64 = ir.IntType(8), ir.IntType(64)
_SIDE = 16  # rows or columns of one of the unit's tiles, each row of 64 bytes
_BLOCK = 2 * _SIDE
"""Rows and columns that are computed at once: four sums, and two tiles of either matrix."""
_TERMS = 32  # of a tile's row
_CHUNK = 256
"""Rows that stay in a core's own caches while all columns are multiplied by them."""
_STRETCH = 2048
"""Terms of such rows; sums of fewer than there are are put aside."""
_PANELS = 8
"""Blocks of columns put together at a time: long enough runs of a row to be fetched ahead."""
_MOST = 2**25
"""Bytes of columns that are put together at once at the most."""
_PERMISSION = (158, 0x1023, 18)  # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)


@cache
def has_tiles() -> bool:
    """Whether there is such a unit, and the system lets this process use it."""
    features = llvmlite.binding.get_host_cpu_features()
    if platform.system() != "Linux" or not (features.get("amx-tile") and features.get("amx-bf16")):
        return False
    return ctypes.CDLL(None).syscall(*map(ctypes.c_long, _PERMISSION)) == 0


def tiles_call(product: Product) -> LoopsCall | None:
    """A call for a product of bfloat16, None where there is no such unit or it does not suit."""
    first, second, result = product.types
    if not first == second == _BFLOAT16 or product.add or product.shape[2] % _TERMS:
        return None
    if result not in (_BFLOAT16, FLOAT32) or lanes(FLOAT32) != _SIDE or not has_tiles():
        return None
    views = [orient(product, turned=turned) for turned in (False, True)]
    views = [view for view in views if _suits(view)]
    if not views:
        return None
    view = max(views, key=lambda view: view.rows)
    # Where rows are too many for the caches, columns are put together once for all of them.
    together = view.rows > _CHUNK and 2 * view.depth * view.columns <= _MOST
    across = -(-view.columns // _BLOCK)
    panels = across * view.depth if together else _PANELS * min(view.depth, _STRETCH)
    rows = min(view.rows, _CHUNK) if together else view.rows
    blocks = -(-rows // _BLOCK) * across if view.depth > _STRETCH else 1
    scratch = 4 * _BLOCK * _BLOCK * blocks + 2 * _BLOCK * (view.depth + panels)
    lines = _lines(view, together)
    return blocks_call(view, lines, product.packs, "products by tiles", scratch)


def _suits(view: Oriented) -> bool:
    item = _BFLOAT16.itemsize
    return view.x.column == item and item in (view.y.row, view.y.column) and view.rows > 1


def _lines(view: Oriented, together: bool) -> Lines:
    lines = Lines([f"sums = {SCRATCH}", "low, ends, blocks = 0, rows, 1"], {})
    lines.blocks["tile_products"] = make_function(6, _multiply)
    lines.blocks["tile_set_up"] = make_function(1, _set_up)
    lines.blocks["tile_release"] = make_function(1, _release)
    lines.lines += [f"across = (columns + {_BLOCK - 1}) // {_BLOCK}"]
    most = f"min(rows, {_CHUNK})" if together else "rows"
    lines.under(f"if depth > {_STRETCH}:", f"blocks = ({most} + {_BLOCK - 1}) // {_BLOCK} * across")
    lines.lines += [f"rest = sums + blocks * {4 * _BLOCK * _BLOCK}"]
    lines.lines += [f"panels = rest + depth * {2 * _BLOCK}", "tile_set_up((sums,))", *_REST]
    if together:
        body = ["place = panels + column * depth * 2", *_panels(lines, view)]
        lines.lines += ["start, terms, column = 0, depth, 0"]
        lines.under("while column < columns:", *body, f"column += count * {_BLOCK}")
        body = [f"panel = panels + column * depth * 2 + start * {2 * _BLOCK}"]
        inner = [*body, *_rows(lines, view), f"column += {_BLOCK}"]
        inner = _stretches(["while column < columns:", *("    " + line for line in inner)])
        body = [f"ends = min(rows, low + {_CHUNK})", *inner, "low = ends"]
        lines.under("while low < rows:", *body)
    else:
        body = ["place = panels", *_panels(lines, view), "for number in range(count):"]
        inner = [f"panel = panels + number * terms * {2 * _BLOCK}", *_rows(lines, view)]
        body += ["    " + line for line in (*inner, f"column += {_BLOCK}")]
        lines.lines += _stretches(["while column < columns:", *("    " + line for line in body)])
    lines.lines += ["tile_release((sums,))"]
    return lines


def _stretches(body: list[str]) -> list[str]:
    """All columns, a stretch of terms at a time."""
    inner = [f"terms = min(depth - start, {_STRETCH})", "column = 0", *body, "start += terms"]
    return ["start = 0", "while start < depth:", *("    " + line for line in inner)]


# Rows that do not fill a block are multiplied together with others that are zero.
_REST = f"""
left = rows % {_BLOCK}
for row in range(left):
    for k in range(depth // 2):
        from_x = first + (rows - left + row) * x_row
        store_int32(rest + row * depth * 2, k, load_int32(from_x, k))
if left > 0:
    for k in range(({_BLOCK} - left) * depth // 2):
        store_int32(rest + left * depth * 2, k, to_i4(0))
""".strip().splitlines()


def _panels(lines: Lines, view: Oriented) -> list[str]:
    """Put the columns of a few panels together, or those that are left, and count the panels."""
    paired = view.y.row == _BFLOAT16.itemsize
    source = "second + start * y_depth + column * y_column"
    found = [f"count = min((columns - column) // {_BLOCK}, {_PANELS})"]
    if paired:
        # Two neighbours are moved as one number of 32 bits.
        name = "copies_float32_float32_1"
        lines.blocks[name] = make_copies(FLOAT32, FLOAT32, turned=True)
        size = f"number * terms * {2 * _BLOCK}"
        source += f" + number * {_BLOCK} * y_column"
        call = f"{name}(({source}, 4, y_column, place + {size}, terms // 2, 2))"
        found += ["for number in range(count):", f"    {call}"]
    else:
        name = "copies_in_pairs"
        lines.blocks[name] = make_function(5, _pair)
        found += [f"{name}(({source}, y_depth, place, terms // 2, count))"]
    part = ["    " + line for line in (*_part(paired), "count = 1")]
    return [*found, "if count == 0:", *part]


def _rows(lines: Lines, view: Oriented) -> list[str]:
    """Multiply rows by a panel; after the last terms, round the sums into the result."""
    of = view.types[2]
    step = "z_column" if view.z.row == of.itemsize else "z_row"
    body = [f"high = min(rows - row, {_BLOCK})", "spot = sums"]
    body += ["if blocks > 1:", f"    spot = sums + ((row - low) // {_BLOCK} * across + column // "]
    body[-1] += f"{_BLOCK}) * {4 * _BLOCK * _BLOCK}"
    body += ["from_x, step_x = first + row * x_row, x_row"]
    body += [f"if high < {_BLOCK}:", "    from_x, step_x = rest, depth * 2"]
    where = "result + row * z_row + column * z_column"
    body += ["tile_products((from_x + start * 2, step_x, panel, terms, spot, start))"]
    stored = _stored(view)
    if whole := _stored_whole(lines, view):
        call = f"{whole}((spot, {where}, {step}))"
        test = f"if high < {_BLOCK} or wide < {_BLOCK}:"
        stored = [test, *("    " + line for line in stored)]
        stored += [f"if high == {_BLOCK} and wide == {_BLOCK}:", "    " + call]
    body += ["if start + terms == depth:", *("    " + line for line in stored)]
    body += [f"row += {_BLOCK}"]
    head = ["row = low", f"wide = min(columns - column, {_BLOCK})", "while row < ends:"]
    return [*head, *("    " + line for line in body)]


def _stored_whole(lines: Lines, view: Oriented) -> str:
    """The name of what rounds a whole block into the result, if neighbours are along a side."""
    of = view.types[2]
    if of.itemsize not in (view.z.row, view.z.column):
        return ""
    turned = view.z.row == of.itemsize

    def emit(builder: Any, numbers: Sequence[Any]) -> None:
        block = Block(builder, FLOAT32)
        sums, result, step = numbers

        def corner(down: int, right: int) -> list[Any]:
            start = builder.add(sums, _I64((down * _SIDE * _BLOCK + right * _SIDE) * 4))
            rows = [block.load(FLOAT32, block.at(start, _I64(4 * _BLOCK), k)) for k in range(_SIDE)]
            return block.turned(rows) if turned else rows

        for k in range(2):
            halves = [corner(j, k) if turned else corner(k, j) for j in range(2)]
            for r, both in enumerate(zip(*halves, strict=True)):
                block.store_rounded(of, both, block.at(result, step, k * _SIDE + r))

    name = f"tile_stored_{of.name}_{turned:d}"
    lines.blocks[name] = make_function(3, emit)
    return name


def _stored(view: Oriented) -> list[str]:
    """Round a block of sums into the result, along whichever of its sides neighbours are."""
    of = view.types[2]
    place = "result + (row + i) * z_row + (column + j) * z_column"
    read = f"reload_float32(spot + i * {4 * _BLOCK}, j)"
    if view.z.row == of.itemsize:
        heads, at = ("for j in range(wide):", "for i in range(high):"), "i"
        place = "result + row * z_row + (column + j) * z_column"
    elif view.z.column == of.itemsize:
        heads, at = ("for i in range(high):", "for j in range(wide):"), "j"
        place = "result + (row + i) * z_row + column * z_column"
    else:
        heads, at = ("for i in range(high):", "for j in range(wide):"), "0"
    return [heads[0], "    " + heads[1], f"        store_{of.name}({place}, {at}, {read})"]


def _part(paired: bool) -> list[str]:
    """The last columns, number by number, with zeros after them."""
    zero = [
        f"for k in range(terms * {_BLOCK} // 2):",
        "    store_int32(place, k, to_i4(0))",
        "for j in range(columns - column):",
    ]
    where = "second + start * y_depth + (column + j) * y_column"
    if paired:
        read = f"load_int32({where}, k)"
        return [
            *zero,
            "    for k in range(terms // 2):",
            f"        store_int32(place, k * {_BLOCK} + j, {read})",
        ]
    read = f"load_bytes_uint16({where}, k * y_depth)"
    at = f"(k // 2) * {2 * _BLOCK} + 2 * j + k % 2"
    return [*zero, "    for k in range(terms):", f"        store_uint16(place, {at}, {read})"]


def _call(builder: Any, name: str, *args: Any) -> None:
    module = builder.module
    function = module.globals.get(f"llvm.x86.{name}")
    if function is None:
        kind = ir.FunctionType(ir.VoidType(), [arg.type for arg in args])
        function = ir.Function(module, kind, f"llvm.x86.{name}")
    builder.call(function, args)


def _tile(number: int) -> Any:
    return ir.Constant(_BYTE, number)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _BYTE.as_pointer())


def _set_up(builder: Any, numbers: Sequence[Any]) -> None:
    """Eight tiles of 16 rows of 64 bytes, written where the panel will be."""
    words = [1, 0, *[0] * 6]  # which way of setting up it is, then bytes of rows, then rows
    for k in range(8):
        words[2 + k // 4] |= 64 << 16 * (k % 4)
    words[6] = sum(_SIDE << 8 * k for k in range(8))
    for k, word in enumerate(words):
        address = builder.add(numbers[0], _I64(8 * k))
        builder.store(_I64(word), builder.inttoptr(address, _I64.as_pointer()), align=1)
    _call(builder, "ldtilecfg", _pointer(builder, numbers[0]))


def _release(builder: Any, _: Sequence[Any]) -> None:
    _call(builder, "tilerelease")


def _multiply(builder: Any, numbers: Sequence[Any]) -> None:
    """32 rows by 32 columns: a function of (x, x_row, panel, depth, sums, onto)."""
    x, x_row, panel, depth, sums, onto = numbers
    block = Block(builder, FLOAT32)
    lower = builder.add(x, builder.mul(x_row, _I64(_SIDE)))
    row = _I64(4 * _BLOCK)
    corners = [
        _pointer(builder, builder.add(sums, _I64(k // 2 * _SIDE * 4 * _BLOCK + k % 2 * 64)))
        for k in range(4)
    ]
    with builder.if_else(builder.icmp_signed("!=", onto, _I64(0))) as (again, first):
        with again:
            for k, place in enumerate(corners):
                _call(builder, "tileloadd64", _tile(k), place, row)
        with first:
            for k in range(4):
                _call(builder, "tilezero", _tile(k))
    with cgutils.for_range(builder, builder.sdiv(depth, _I64(_TERMS))) as loop:
        at = builder.mul(loop.index, _I64(2 * _TERMS))
        pairs = builder.add(panel, builder.mul(loop.index, _I64(_SIDE * 4 * _BLOCK)))
        # What is multiplied next is asked for meanwhile: tiles are slow to come from further away.
        later = [builder.add(block.at(x, x_row, r), at) for r in range(_BLOCK)]
        later = [builder.add(place, _I64(2 * _TERMS)) for place in later]
        later += [builder.add(pairs, _I64((_SIDE * _BLOCK + _SIDE * r) * 4)) for r in range(_BLOCK)]
        for step, (down, right) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
            if right == 0:
                place = _pointer(builder, builder.add((x, lower)[down], at))
                _call(builder, "tileloadd64", _tile(4 + down), place, x_row)
            if down == 0:
                place = _pointer(builder, builder.add(pairs, _I64(64 * right)))
                _call(builder, "tileloadd64", _tile(6 + right), place, row)
            _call(builder, "tdpbf16ps", _tile(2 * down + right), _tile(4 + down), _tile(6 + right))
            for place in later[step::4]:
                block.fetch_ahead(place)
    for k, place in enumerate(corners):
        _call(builder, "tilestored64", _tile(k), place, row)


def _pair(builder: Any, numbers: Sequence[Any]) -> None:
    """Rows of panels, 32 neighbours each, in pairs: of (y, y_depth, place, pairs, panels)."""
    y, y_depth, place, pairs, panels = numbers
    half = ir.VectorType(ir.IntType(16), _SIDE)
    places = [k // 2 + k % 2 * _SIDE for k in range(2 * _SIDE)]
    order = ir.Constant(ir.VectorType(ir.IntType(32), 2 * _SIDE), places)
    size = builder.mul(pairs, _I64(4 * _BLOCK))

    def read(line: Any, k: int) -> Any:
        return builder.load(
            builder.inttoptr(builder.add(line, _I64(2 * _SIDE * k)), half.as_pointer()), align=2
        )

    with cgutils.for_range(builder, pairs) as loop:
        line = builder.add(y, builder.mul(builder.mul(loop.index, _I64(2)), y_depth))
        to = builder.add(place, builder.mul(loop.index, _I64(4 * _BLOCK)))
        with cgutils.for_range(builder, panels) as inner:
            start = builder.add(line, builder.mul(inner.index, _I64(2 * _BLOCK)))
            spot = builder.add(to, builder.mul(inner.index, size))
            for k in range(2):
                one, other = read(start, k), read(builder.add(start, y_depth), k)
                both = builder.shuffle_vector(one, other, order)
                at = builder.add(spot, _I64(64 * k))
                builder.store(both, builder.inttoptr(at, both.type.as_pointer()), align=4)
