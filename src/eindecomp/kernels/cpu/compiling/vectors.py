"""Blocks of products that stay in the machine's vector registers, for numbers by address.

LLVM vectorises loops as it sees fit; a product with few rows takes as long as reading its long
matrix does, so here the vectors are our own: how many sums are held at once, in what order the
matrix is read, and what is fetched ahead.

- `make_dots`: neighbours along what is summed; each vector holds partial sums of one result;
- `make_sums`: neighbours along columns; each vector holds results, over a stretch of terms;
- `make_updates`: the same, adding a few terms to all columns at a time: one long matrix is read
  row by row, as it lies.

What does not fill a last vector is read again with the neighbours before it, and those are left
out: no block reads or writes past the end of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import llvmlite.binding
from llvmlite import ir as untyped_ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

from eindecomp.kernels.cpu.compiling.intrinsics import narrow
from eindecomp.lang.dtypes import widen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.lang.dtypes import DType

_intrinsic: Any = intrinsic  # what it makes is called by compiled code only
cgutils: Any = untyped_cgutils
ir: Any = untyped_ir
_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_BYTE = ir.IntType(8)
_UNROLL = 4  # terms of sums between two jumps


@dataclass(frozen=True, slots=True)
class Registers:
    """The vector registers of a processor."""

    count: int
    bytes: int

    @property
    def sums(self) -> int:
        """How many of them may hold sums while others hold what is multiplied."""
        return 3 * self.count // 4


@cache
def registers() -> Registers:
    """Those of the processor that code is compiled for here."""
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("avx512f"):
        return Registers(32, 64)
    if features.get("avx"):
        return Registers(16, 32)
    if "arm" in (triple := llvmlite.binding.get_process_triple()) or "aarch64" in triple:
        return Registers(32, 16)
    return Registers(16, 16)


def lanes(of: DType) -> int:
    """How many numbers of a type are computed at once."""
    return registers().bytes // widen(of).itemsize


class Block:
    """Emits code over vectors of one computed type."""

    def __init__(self, builder: Any, computed: DType) -> None:
        self.builder = builder
        self.lanes = lanes(computed)
        self.scalar = ir.DoubleType() if computed.itemsize == 8 else ir.FloatType()
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.suffix = f"v{self.lanes}f{8 * computed.itemsize}"
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)

    def _call(self, name: str, result: Any, args: Sequence[Any], **how: Any) -> Any:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, args, **how)

    def at(self, address: Any, step: Any, times: int) -> Any:
        """The address so many steps further on."""
        return self.builder.add(address, self.builder.mul(step, _I64(times)))

    def pointer(self, address: Any, to: Any) -> Any:
        """An address as a pointer."""
        return self.builder.inttoptr(address, to.as_pointer())

    def load(self, of: DType, address: Any) -> Any:
        """Neighbours in memory as a vector."""
        return self._widened(of, address, lambda kind: ir.VectorType(kind, self.lanes))

    def spread(self, of: DType, address: Any) -> Any:
        """One number in every lane."""
        number = self._widened(of, address, lambda kind: kind)
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, number, _I32(0))
        places = ir.Constant(ir.VectorType(_I32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, places)

    def _widened(self, of: DType, address: Any, shaped: Callable[[Any], Any]) -> Any:
        builder = self.builder

        def read(kind: Any) -> Any:
            return builder.load(self.pointer(address, shaped(kind)), align=of.itemsize)

        if of.name == "bfloat16":
            wide = builder.zext(read(_I16), shaped(_I32))
            shift = ir.Constant(shaped(_I32), 16 if shaped(_I32) is _I32 else [16] * self.lanes)
            return builder.bitcast(builder.shl(wide, shift), shaped(ir.FloatType()))
        if of.name == "float16":
            return builder.fpext(read(ir.HalfType()), shaped(ir.FloatType()))
        return read(self.scalar)

    def store(self, value: Any, address: Any) -> None:
        """Write a vector of the computed type."""
        item = self.vector.element.intrinsic_name
        self.builder.store(
            value, self.pointer(address, self.vector), align=8 if item == "f64" else 4
        )

    def store_rounded(self, of: DType, values: Sequence[Any], address: Any) -> None:
        """Write two vectors, neighbours, as numbers of a type that is as wide or narrower."""
        one, other = map(self._bfloat, values) if of.name == "bfloat16" else values
        places = ir.Constant(ir.VectorType(_I32, 2 * self.lanes), [*range(2 * self.lanes)])
        both = self.builder.shuffle_vector(one, other, places)
        self.builder.store(both, self.pointer(address, both.type), align=of.itemsize)

    def _bfloat(self, value: Any) -> Any:
        """The upper halves of float32's bits, rounded to the nearest even one."""
        builder, kind = self.builder, ir.VectorType(_I32, self.lanes)

        def all_lanes(number: int) -> Any:
            return ir.Constant(kind, [number] * self.lanes)

        bits = builder.bitcast(value, kind)
        odd = builder.and_(builder.lshr(bits, all_lanes(16)), all_lanes(1))
        rounded = builder.add(bits, builder.add(odd, all_lanes(0x7FFF)))
        quiet = builder.or_(bits, all_lanes(0x400000))
        either = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
        half = ir.VectorType(_I16, self.lanes)
        return builder.trunc(builder.lshr(either, all_lanes(16)), half)

    def sums(self, count: int) -> list[Any]:
        """Places for vectors, which LLVM puts into registers, with zeros in them."""
        made = [cgutils.alloca_once(self.builder, self.vector) for _ in range(count)]
        for place in made:
            self.builder.store(self.zero, place)
        return made

    def add_product(self, x: Any, y: Any, place: Any) -> None:
        """Add x · y to the sum at a place, rounding once where the machine can."""
        total = self.builder.load(place)
        fused = self._call(f"llvm.fmuladd.{self.suffix}", self.vector, [x, y, total])
        self.builder.store(fused, place)

    def total(self, place: Any) -> Any:
        """The sum of all lanes, in any order."""
        start = ir.Constant(self.scalar, -0.0)
        args = [start, self.builder.load(place)]
        name = f"llvm.vector.reduce.fadd.{self.suffix}"
        return self._call(name, self.scalar, args, fastmath=("reassoc",))

    def from_lane(self, first: Any) -> Any:
        """Which lanes come at or after one, as a vector of bits."""
        kind = ir.VectorType(_I64, self.lanes)
        undefined = ir.Constant(kind, ir.Undefined)
        one = self.builder.insert_element(undefined, first, _I32(0))
        places = ir.Constant(ir.VectorType(_I32, self.lanes), [0] * self.lanes)
        firsts = self.builder.shuffle_vector(one, undefined, places)
        numbers = ir.Constant(kind, [_I64(k) for k in range(self.lanes)])
        return self.builder.icmp_signed(">=", numbers, firsts)

    def turned(self, rows: list[Any]) -> list[Any]:
        """Vectors, a power of two of them, with their lanes in turns: one of each, and so on."""
        half, middle = len(rows) // 2, self.lanes // 2
        for _ in range(len(rows).bit_length() - 1):
            rows = [
                self._woven(rows[k // 2], rows[k // 2 + half], k % 2 * middle)
                for k in range(len(rows))
            ]
        return rows

    def _woven(self, one: Any, other: Any, first: int) -> Any:
        """Lanes of two vectors in turns, from a lane on."""
        places = [first + k // 2 + k % 2 * self.lanes for k in range(self.lanes)]
        kind = ir.VectorType(_I32, self.lanes)
        return self.builder.shuffle_vector(one, other, ir.Constant(kind, places))

    def fetch_ahead(self, address: Any) -> None:
        """Ask for what will be read soon."""
        pointer = self.pointer(address, _BYTE)
        self._call("llvm.prefetch.p0", ir.VoidType(), [pointer, _I32(0), _I32(3), _I32(1)])


def make_function(count: int, emit: Callable[[Any, Sequence[Any]], None]) -> Any:
    """A function of a tuple of so many integers, for compiled code."""

    def codegen(context: Any, builder: Any, _: Any, args: Any) -> Any:
        emit(builder, cgutils.unpack_tuple(builder, args[0], count))
        return context.get_dummy_value()

    @_intrinsic
    def function(typingctx: Any, numbers: Any) -> Any:  # noqa: ARG001
        return types.void(types.UniTuple(types.int64, count)), codegen

    return function


def make_dots(
    rows: int, columns: int, unroll: int, of: tuple[DType, DType, DType], *, add: bool
) -> Any:
    """Dot products: a function of (x, x_row, y, y_column, z, z_row, z_column, depth).

    Numbers along the depth are neighbours, and there are at least as many as a vector has lanes.
    """
    first, second, result = of

    def emit(builder: Any, numbers: Sequence[Any]) -> None:
        block = Block(builder, widen(result))
        x, x_row, y, y_column, z, z_row, z_column, depth = numbers
        xs = [block.at(x, x_row, r) for r in range(rows)]
        ys = [block.at(y, y_column, c) for c in range(columns)]
        sums = [block.sums(rows * columns) for _ in range(unroll)]

        def step(places: list[Any], at: Any, kept: Any = None) -> None:
            def read(of: DType, start: Any) -> Any:
                address = builder.add(start, builder.mul(at, _I64(of.itemsize)))
                value = block.load(of, address)
                return value if kept is None else builder.select(kept, value, block.zero)

            many = [read(second, start) for start in ys]
            for r, start in enumerate(xs):
                one = read(first, start)
                for c, other in enumerate(many):
                    block.add_product(one, other, places[r * columns + c])

        width = block.lanes * unroll
        turns = builder.sdiv(depth, _I64(width))
        with cgutils.for_range(builder, turns) as loop:
            start = builder.mul(loop.index, _I64(width))
            for u, places in enumerate(sums):
                step(places, builder.add(start, _I64(u * block.lanes)))
        done = builder.mul(turns, _I64(width))
        if unroll > 1:
            vectors = builder.sdiv(builder.sub(depth, done), _I64(block.lanes))
            with cgutils.for_range(builder, vectors) as loop:
                step(sums[0], builder.add(done, builder.mul(loop.index, _I64(block.lanes))))
            done = builder.add(done, builder.mul(vectors, _I64(block.lanes)))
        with builder.if_then(builder.icmp_signed("<", done, depth)):
            last = builder.sub(depth, _I64(block.lanes))
            step(sums[0], last, block.from_lane(builder.sub(done, last)))
        for r in range(rows):
            for c in range(columns):
                places = [part[r * columns + c] for part in sums]
                for other in places[1:]:
                    total = builder.fadd(builder.load(places[0]), builder.load(other))
                    builder.store(total, places[0])
                address = block.at(block.at(z, z_row, r), z_column, c)
                _store_number(block, result, block.total(places[0]), address, add=add)

    return make_function(8, emit)


def _store_number(block: Block, of: DType, value: Any, address: Any, *, add: bool) -> None:
    builder = block.builder
    kinds = {"bfloat16": _I16, "float16": ir.HalfType()}
    pointer = block.pointer(address, kinds.get(of.name, block.scalar))
    if add:
        value = builder.fadd(builder.load(pointer), value)
    builder.store(narrow(builder, of.name, value), pointer, align=of.itemsize)


def make_sums(
    rows: int,
    vectors: int,
    of: tuple[DType, DType, DType],
    ahead: int,
    *,
    partial: bool,
    apart: bool = False,
) -> Any:
    """Sums: a function of (x, x_row, x_depth, y, y_depth, z, z_row, depth, onto, skip).

    A few columns are neighbours in `y` and `z`. With `onto` sums go on from what is in `z`. The
    first `skip` columns of a `partial` vector are left as they are. `ahead` is how many rows of
    `y` early they are asked for; where they lie far `apart`, one is read at a time.
    """
    first, second, result = of

    def emit(builder: Any, numbers: Sequence[Any]) -> None:
        block = Block(builder, result)
        x, x_row, x_depth, y, y_depth, z, z_row, depth, onto, skip = numbers
        width = block.lanes
        sums = block.sums(rows * vectors)
        places = [
            builder.add(block.at(z, z_row, r), _I64(v * width * result.itemsize))
            for r in range(rows)
            for v in range(vectors)
        ]
        for place in places:
            block.fetch_ahead(place)
        xs = [block.at(x, x_row, r) for r in range(rows)]
        offsets = [_I64(v * width * second.itemsize) for v in range(vectors)]

        def step(term: Any) -> None:
            row = builder.add(y, builder.mul(term, y_depth))
            if ahead:
                later = block.at(row, y_depth, ahead)
                for offset in offsets:
                    block.fetch_ahead(builder.add(later, offset))
            many = [block.load(second, builder.add(row, offset)) for offset in offsets]
            for r, start in enumerate(xs):
                one = block.spread(first, builder.add(start, builder.mul(term, x_depth)))
                for v, other in enumerate(many):
                    block.add_product(one, other, sums[r * vectors + v])

        # What is left over of rows or columns is little: it is compiled for less.
        unroll = _UNROLL if 2 * rows * vectors > registers().sums and not apart else 1
        turns = builder.sdiv(depth, _I64(unroll))
        with cgutils.for_range(builder, turns) as loop:
            for u in range(unroll):
                step(builder.add(builder.mul(loop.index, _I64(unroll)), _I64(u)))
        done = builder.mul(turns, _I64(unroll))
        with cgutils.for_range(builder, builder.sub(depth, done)) as loop:
            step(builder.add(done, loop.index))
        with builder.if_then(builder.icmp_signed("!=", onto, _I64(0))):
            for total, place in zip(sums, places, strict=True):
                added = builder.fadd(builder.load(total), block.load(result, place))
                builder.store(added, total)
        for total, place in zip(sums, places, strict=True):
            value = builder.load(total)
            if partial:
                value = builder.select(block.from_lane(skip), value, block.load(result, place))
            block.store(value, place)

    return make_function(10, emit)


def make_updates(rows: int, terms: int, of: tuple[DType, DType, DType]) -> Any:
    """Updates: a function of (x, x_row, x_depth, y, y_depth, z, z_row, columns).

    Columns are neighbours in `y` and `z`, at least as many as a vector has lanes.
    """
    first, second, result = of

    def emit(builder: Any, numbers: Sequence[Any]) -> None:
        block = Block(builder, result)
        x, x_row, x_depth, y, y_depth, z, z_row, columns = numbers
        factors = [
            [block.spread(first, block.at(block.at(x, x_row, r), x_depth, k)) for k in range(terms)]
            for r in range(rows)
        ]
        ys = [block.at(y, y_depth, k) for k in range(terms)]
        zs = [block.at(z, z_row, r) for r in range(rows)]

        def step(at: Any, kept: Any = None) -> None:
            at_y, at_z = (builder.mul(at, _I64(t.itemsize)) for t in (second, result))
            many = [block.load(second, builder.add(start, at_y)) for start in ys]
            for r, start in enumerate(zs):
                place = builder.add(start, at_z)
                old = block.load(result, place)
                total = cgutils.alloca_once(builder, block.vector)
                builder.store(old, total)
                for one, other in zip(factors[r], many, strict=True):
                    block.add_product(one, other, total)
                value = builder.load(total)
                block.store(value if kept is None else builder.select(kept, value, old), place)

        turns = builder.sdiv(columns, _I64(block.lanes))
        with cgutils.for_range(builder, turns) as loop:
            step(builder.mul(loop.index, _I64(block.lanes)))
        done = builder.mul(turns, _I64(block.lanes))
        with builder.if_then(builder.icmp_signed("<", done, columns)):
            last = builder.sub(columns, _I64(block.lanes))
            step(last, block.from_lane(builder.sub(done, last)))

    return make_function(8, emit)
