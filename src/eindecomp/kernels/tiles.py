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

from eindecomp.kernels.blocks import SCRATCH, Lines, Oriented, blocks_call, orient
from eindecomp.kernels.copies import make_copies
from eindecomp.kernels.vectors import lanes, make_function
from eindecomp.lang.dtypes import FLOAT32, dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.kernels.loops import LoopsCall
    from eindecomp.kernels.product import Product

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
    panels = -(-view.columns // _BLOCK) if together else 1
    scratch = 4 * _BLOCK * _BLOCK + 2 * _BLOCK * view.depth * (1 + panels)
    lines = _lines(view, together)
    return blocks_call(view, lines, product.packs, "products by tiles", scratch)


def _suits(view: Oriented) -> bool:
    item = _BFLOAT16.itemsize
    return view.x.column == item and item in (view.y.row, view.y.column) and view.rows > 1


def _lines(view: Oriented, together: bool) -> Lines:
    paired = view.y.row == _BFLOAT16.itemsize
    lines = Lines([f"sums = {SCRATCH}", f"rest = sums + {4 * _BLOCK * _BLOCK}"], {})
    lines.blocks["tile_products"] = make_function(5, _multiply)
    lines.blocks["tile_set_up"] = make_function(1, _set_up)
    lines.blocks["tile_release"] = make_function(1, _release)
    lines.lines += [f"panels = rest + depth * {2 * _BLOCK}", "tile_set_up((sums,))", *_REST]
    if together:
        lines.lines += ["column = 0"]
        lines.under("while column < columns:", *_panel(lines, paired), f"column += {_BLOCK}")
        lines.lines += ["chunk = 0"]
        body = [f"ends = min(rows, chunk + {_CHUNK})", "column = 0", "while column < columns:"]
        body += ["    " + line for line in ("panel = panels + column * depth * 2", _COUNT)]
        body += ["    " + line for line in (*_rows(view, "chunk"), f"column += {_BLOCK}")]
        lines.under("while chunk < rows:", *body, f"chunk += {_CHUNK}")
    else:
        lines.lines += ["ends = rows", "column = 0"]
        body = [*_panel(lines, paired), *_rows(view, "0"), f"column += {_BLOCK}"]
        lines.under("while column < columns:", *[line.replace(_EACH, "panels") for line in body])
    lines.lines += ["tile_release((sums,))"]
    return lines


_EACH = "panels + column * depth * 2"
_COUNT = f"count = min(columns - column, {_BLOCK})"
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


def _panel(lines: Lines, paired: bool) -> list[str]:
    """Put the columns of a panel together."""
    source = "second + column * y_column"
    if paired:
        # Two neighbours are moved as one number of 32 bits.
        name = "copies_float32_float32_1"
        lines.blocks[name] = make_copies(FLOAT32, FLOAT32, turned=True)
        call = f"{name}(({source}, 4, y_column, panel, depth // 2, 2))"
    else:
        name = "copies_in_pairs"
        lines.blocks[name] = make_function(4, _pair)
        call = f"{name}(({source}, y_depth, panel, depth // 2))"
    part = ["    " + line for line in _part(paired)]
    head = [f"panel = {_EACH}", _COUNT]
    return [*head, f"if count == {_BLOCK}:", f"    {call}", f"if count < {_BLOCK}:", *part]


def _rows(view: Oriented, start: str) -> list[str]:
    """Multiply rows by a panel."""
    body = [f"high = min(rows - row, {_BLOCK})", "from_x, step_x = first + row * x_row, x_row"]
    body += [f"if high < {_BLOCK}:", "    from_x, step_x = rest, depth * 2"]
    body += ["tile_products((from_x, step_x, panel, depth, sums))", *_stored(view)]
    body += [f"row += {_BLOCK}"]
    return [f"row = {start}", "while row < ends:", *("    " + line for line in body)]


def _stored(view: Oriented) -> list[str]:
    """Round a block of sums into the result, along whichever of its sides neighbours are."""
    of = view.types[2]
    place = "result + (row + i) * z_row + (column + j) * z_column"
    read = f"reload_float32(sums + i * {4 * _BLOCK}, j)"
    if view.z.row == of.itemsize:
        heads, at = ("for j in range(count):", "for i in range(high):"), "i"
        place = "result + row * z_row + (column + j) * z_column"
    elif view.z.column == of.itemsize:
        heads, at = ("for i in range(high):", "for j in range(count):"), "j"
        place = "result + (row + i) * z_row + column * z_column"
    else:
        heads, at = ("for i in range(high):", "for j in range(count):"), "0"
    return [heads[0], "    " + heads[1], f"        store_{of.name}({place}, {at}, {read})"]


def _part(paired: bool) -> list[str]:
    """The last columns, number by number, with zeros after them."""
    zero = [
        f"for k in range(depth * {_BLOCK} // 2):",
        "    store_int32(panel, k, to_i4(0))",
        "for j in range(count):",
    ]
    where = "second + (column + j) * y_column"
    if paired:
        read = f"load_int32({where}, k)"
        return [
            *zero,
            "    for k in range(depth // 2):",
            f"        store_int32(panel, k * {_BLOCK} + j, {read})",
        ]
    read = f"load_bytes_uint16({where}, k * y_depth)"
    place = f"(k // 2) * {2 * _BLOCK} + 2 * j + k % 2"
    return [*zero, "    for k in range(depth):", f"        store_uint16(panel, {place}, {read})"]


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
    """32 rows by 32 columns: a function of (x, x_row, panel, depth, sums)."""
    x, x_row, panel, depth, sums = numbers
    lower = builder.add(x, builder.mul(x_row, _I64(_SIDE)))
    row = _I64(4 * _BLOCK)
    for k in range(4):
        _call(builder, "tilezero", _tile(k))
    with cgutils.for_range(builder, builder.sdiv(depth, _I64(_TERMS))) as loop:
        at = builder.mul(loop.index, _I64(2 * _TERMS))
        pairs = builder.mul(loop.index, _I64(_SIDE * 4 * _BLOCK))
        for k, start in enumerate((x, lower)):
            place = _pointer(builder, builder.add(start, at))
            _call(builder, "tileloadd64", _tile(4 + k), place, x_row)
        for k in range(2):
            place = builder.add(builder.add(panel, pairs), _I64(64 * k))
            _call(builder, "tileloadd64", _tile(6 + k), _pointer(builder, place), row)
        for k in range(4):
            _call(builder, "tdpbf16ps", _tile(k), _tile(4 + k // 2), _tile(6 + k % 2))
    for k in range(4):
        place = builder.add(sums, _I64(k // 2 * _SIDE * 4 * _BLOCK + k % 2 * 64))
        _call(builder, "tilestored64", _tile(k), _pointer(builder, place), row)


def _pair(builder: Any, numbers: Sequence[Any]) -> None:
    """Rows of 32 neighbours in pairs: a function of (y, y_depth, panel, pairs)."""
    y, y_depth, panel, pairs = numbers
    half = ir.VectorType(ir.IntType(16), _SIDE)
    places = [k // 2 + k % 2 * _SIDE for k in range(2 * _SIDE)]
    order = ir.Constant(ir.VectorType(ir.IntType(32), 2 * _SIDE), places)
    with cgutils.for_range(builder, pairs) as loop:
        start = builder.add(y, builder.mul(builder.mul(loop.index, _I64(2)), y_depth))
        to = builder.add(panel, builder.mul(loop.index, _I64(4 * _BLOCK)))
        for k in range(2):
            one, other = (
                builder.load(
                    builder.inttoptr(builder.add(line, _I64(2 * _SIDE * k)), half.as_pointer()),
                    align=2,
                )
                for line in (start, builder.add(start, y_depth))
            )
            both = builder.shuffle_vector(one, other, order)
            place = builder.add(to, _I64(64 * k))
            builder.store(both, builder.inttoptr(place, both.type.as_pointer()), align=4)
