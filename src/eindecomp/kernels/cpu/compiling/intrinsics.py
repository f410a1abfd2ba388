"""What generated loops need of the machine and numba does not offer: memory by address, NaN-keeping
extremes, fused sums, bits of numbers.

Loops address memory as NumPy lays it out, by address and byte offset, so that one compiled function
serves arrays of any strides, and so that half-width floats, which numba does not know, are widened
as they are read and rounded as they are written.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Sequence

_intrinsic: Any = intrinsic  # what it makes is called by compiled code only
_FLOAT, _DOUBLE = ir.FloatType(), ir.DoubleType()
_BYTE, _SHORT, _INT = ir.IntType(8), ir.IntType(16), ir.IntType(32)

_HINT = ("llvm.aarch64.hint", 1)
_PAUSES: dict[str, tuple[Any, ...]] = {
    "x86_64": ("llvm.x86.sse2.pause",), "aarch64": _HINT, "arm64": _HINT,
}  # fmt: skip
SHIFT = 1.5 * 2.0**23
"""Around this, float32 numbers are the whole ones."""

# Type name: what memory holds, and the type it is computed in.
STORED: dict[str, tuple[Any, Any]] = {
    "bool": (_BYTE, types.boolean),
    **{f"int{8 * n}": (ir.IntType(8 * n), getattr(types, f"int{8 * n}")) for n in (1, 2, 4, 8)},
    **{f"uint{8 * n}": (ir.IntType(8 * n), getattr(types, f"uint{8 * n}")) for n in (1, 2, 4, 8)},
    "float16": (ir.HalfType(), types.float32),
    "bfloat16": (_SHORT, types.float32),
    "float32": (_FLOAT, types.float32),
    "float64": (_DOUBLE, types.float64),
    "complex64": (_FLOAT, types.complex64),
    "complex128": (_DOUBLE, types.complex128),
}


def _scope(module: Any) -> Any:
    """The memory that stores write, as a scope that input loads are declared apart from.

    Outputs never overlap inputs (`Kernel` says so); told of it, LLVM vectorises without checks.
    """
    domain = module.add_metadata(["eindecomp kernels"])
    return module.add_metadata([module.add_metadata(["eindecomp stores", domain])])


def _pointer(builder: Any, stored: Any, address: Any, index: Any, in_bytes: bool) -> Any:
    unit = _BYTE if in_bytes else stored
    pointer = builder.gep(builder.inttoptr(address, unit.as_pointer()), [index])
    return builder.bitcast(pointer, stored.as_pointer()) if in_bytes else pointer


def make_load(name: str, *, in_bytes: bool, apart: bool) -> Any:
    """A function of an address and an index that reads a value of the named type.

    `in_bytes`: the index counts bytes rather than elements. `apart`: no store of the same function
    writes what is read.
    """
    stored, computed = STORED[name]

    @_intrinsic
    def load(typingctx: Any, address: Any, index: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            def read(pointer: Any) -> Any:
                value = builder.load(pointer, align=1)
                if apart:
                    value.set_metadata("noalias", _scope(builder.module))
                return value

            index = args[1]
            if name.startswith("complex") and not in_bytes:
                index = builder.mul(index, index.type(2))
            pointer = _pointer(builder, stored, args[0], index, in_bytes)
            if name.startswith("complex"):
                number = context.make_complex(builder, computed)
                number.real = read(pointer)
                number.imag = read(builder.gep(pointer, [_INT(1)]))
                return number._getvalue()
            value = read(pointer)
            if name == "bool":
                return builder.icmp_unsigned("!=", value, value.type(0))
            if name == "float16":
                return builder.fpext(value, _FLOAT)
            if name == "bfloat16":
                return builder.bitcast(builder.shl(builder.zext(value, _INT), _INT(16)), _FLOAT)
            return value

        return computed(types.int64, types.int64), codegen

    return load


def make_store(name: str, *, in_bytes: bool) -> Any:
    """A function of an address, an index and a value that writes it as the named type."""
    stored, computed = STORED[name]

    @_intrinsic
    def store(typingctx: Any, address: Any, index: Any, value: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            def write(value: Any, pointer: Any) -> None:
                done = builder.store(value, pointer, align=1)
                done.set_metadata("alias.scope", _scope(builder.module))

            index, value = args[1], args[2]
            if name.startswith("complex") and not in_bytes:
                index = builder.mul(index, index.type(2))
            pointer = _pointer(builder, stored, args[0], index, in_bytes)
            if name.startswith("complex"):
                number = context.make_complex(builder, computed, value=value)
                write(number.real, pointer)
                write(number.imag, builder.gep(pointer, [_INT(1)]))
            else:
                write(narrow(builder, name, value), pointer)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, computed), codegen

    return store


def narrow(builder: Any, name: str, value: Any) -> Any:
    """A computed value as memory holds the named type."""
    if name == "bool":
        return builder.zext(value, _BYTE)
    if name == "float16":
        return builder.fptrunc(value, ir.HalfType())
    if name == "bfloat16":
        return builder.trunc(builder.lshr(_bfloat_bits(builder, value), _INT(16)), _SHORT)
    return value


def _bfloat_bits(builder: Any, value: Any) -> Any:
    """The bits of a float32 rounded to nearest even bfloat16; the lower half is not cleared."""
    bits = builder.bitcast(value, _INT)
    odd = builder.and_(builder.lshr(bits, _INT(16)), _INT(1))
    rounded = builder.add(bits, builder.add(odd, _INT(0x7FFF)))
    quiet = builder.or_(bits, _INT(0x400000))
    return builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)


def _llvm(name: str, arity: int) -> Any:
    """One of LLVM's own functions of floats."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = args[0].type
        function = builder.module.declare_intrinsic(
            name, [kind], ir.FunctionType(kind, [kind] * arity)
        )
        return builder.call(function, args)

    if arity == 1:

        @_intrinsic
        def one(typingctx: Any, x: Any) -> Any:  # noqa: ARG001
            return x(x), codegen

        return one
    if arity == 2:

        @_intrinsic
        def two(typingctx: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
            return x(x, y), codegen

        return two

    @_intrinsic
    def three(typingctx: Any, x: Any, y: Any, z: Any) -> Any:  # noqa: ARG001
        return x(x, y, z), codegen

    return three


maximum = _llvm("llvm.maximum", 2)
minimum = _llvm("llvm.minimum", 2)
muladd = _llvm("llvm.fmuladd", 3)
copysign = _llvm("llvm.copysign", 2)
floor = _llvm("llvm.floor", 1)


@_intrinsic
def remainder(typingctx: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
    """What is left of x / y rounded towards zero: C's fmod."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.frem(*args)

    return x(x, x), codegen


@_intrinsic
def sum_product(typingctx: Any, x: Any, y: Any, total: Any) -> Any:  # noqa: ARG001
    """x · y + total, where terms may be added in any order: lanes of vectors add up their own."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        term = builder.fmul(args[0], args[1], flags=("contract",))
        return builder.fadd(args[2], term, flags=("reassoc", "contract"))

    return x(x, x, x), codegen


@_intrinsic
def choose(typingctx: Any, condition: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
    """x or y, both computed: a branch would keep LLVM from vectorising."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.select(*args)

    return x(types.boolean, x, x), codegen


def _bitcast(source: Any, target: Any, to: Any) -> Any:
    @_intrinsic
    def cast(typingctx: Any, x: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            return builder.bitcast(args[0], to)

        return target(source), codegen

    return cast


float_of_bits = _bitcast(types.int32, types.float32, _FLOAT)
bits_of_float = _bitcast(types.float32, types.int32, _INT)
double_of_bits = _bitcast(types.int64, types.float64, _DOUBLE)
bits_of_double = _bitcast(types.float64, types.int64, ir.IntType(64))


def _saturate(name: str) -> Any:
    """A float truncated to the named integer type: its nearest number if out of range, NaN to 0."""
    target = getattr(types, name)
    bits = ir.IntType(target.bitwidth)
    convert = "llvm.fptosi.sat" if target.signed else "llvm.fptoui.sat"

    @_intrinsic
    def cast(typingctx: Any, x: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            of = args[0].type
            kind = ir.FunctionType(bits, [of])
            function = builder.module.declare_intrinsic(convert, [bits, of], kind)
            return builder.call(function, args)

        return target(x), codegen

    return cast


saturate_i1, saturate_i2, saturate_i4, saturate_i8 = (
    _saturate(f"int{8 * n}") for n in (1, 2, 4, 8)
)
saturate_u1, saturate_u2, saturate_u4, saturate_u8 = (
    _saturate(f"uint{8 * n}") for n in (1, 2, 4, 8)
)


@_intrinsic
def round_half(typingctx: Any, x: Any) -> Any:  # noqa: ARG001
    """Round a float32 to float16 and widen it again."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        return builder.fpext(builder.fptrunc(args[0], ir.HalfType()), _FLOAT)

    return types.float32(types.float32), codegen


@_intrinsic
def round_bfloat(typingctx: Any, x: Any) -> Any:  # noqa: ARG001
    """Round a float32 to bfloat16 and widen it again."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        bits = _bfloat_bits(builder, args[0])
        return builder.bitcast(builder.and_(bits, _INT(0xFFFF0000)), _FLOAT)

    return types.float32(types.float32), codegen


@_intrinsic
def times_power_of_two(typingctx: Any, x: Any, shifted: Any) -> Any:  # noqa: ARG001
    """x · 2^n in float32 for a whole n given as n + SHIFT, −250 < n < 250.

    In two factors, because one normal number does not have all the exponents; in 32 bits
    throughout, because numba would compute in 64 and halve the vectors.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        # The exponent takes the last bits only: those of SHIFT itself are shifted out.
        whole = builder.bitcast(args[1], _INT)
        half = builder.ashr(whole, _INT(1))
        product = args[0]
        for power in (half, builder.sub(whole, half)):
            bits = builder.shl(builder.add(power, _INT(127)), _INT(23))
            product = builder.fmul(product, builder.bitcast(bits, _FLOAT))
        return product

    return types.float32(types.float32, types.float32), codegen


def _blas(arguments: Sequence[int | str], summary: str) -> Any:
    """A call of BLAS: of `x`, `y` and `z`, and of what is in slots of eight bytes.

    Slot 0 has the function's address.
    """

    def typed(typingctx: Any, at: Any, x: Any, y: Any, z: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            pointer = _BYTE.as_pointer()
            at, *matrices = args
            given = dict(zip("xyz", matrices, strict=True))
            places = [
                given[each] if isinstance(each, str) else builder.add(at, at.type(8 * each))
                for each in arguments
            ]
            address = builder.load(builder.inttoptr(at, at.type.as_pointer()))
            kind = ir.FunctionType(ir.VoidType(), [pointer] * len(places))
            function = builder.inttoptr(address, kind.as_pointer())
            builder.call(function, [builder.inttoptr(place, pointer) for place in places])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.int64), codegen

    typed.__doc__ = summary
    return _intrinsic(typed)


# Slots: two letters, three sizes, alpha and beta of two slots each, three steps between columns.
call_gemm = _blas(
    (1, 2, 3, 4, 5, 6, "x", 10, "y", 11, 8, "z", 12), "BLAS's product of two matrices."
)
# Slots: a letter, two sizes, alpha and beta of two slots each, the matrix's step between columns,
# and those of the vectors x and z.
call_gemv = _blas((1, 2, 3, 4, "y", 8, "x", 9, 6, "z", 10), "BLAS's matrix by a vector.")


@_intrinsic
def call_code(typingctx: Any, code: Any, argument: Any) -> Any:  # noqa: ARG001
    """Call compiled code at an address with the address of its arguments."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        kind = ir.FunctionType(ir.VoidType(), [args[1].type])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _shared(count: int, emit: Any) -> Any:
    """A function of a word that threads share, by the address of words and its number.

    `emit` makes it of the builder, the word's pointer and `count` further numbers.
    """
    result = types.int64

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        pointer = _pointer(builder, args[0].type, args[0], args[1], False)
        return emit(builder, pointer, *args[2:])

    if count == 0:

        @_intrinsic
        def none(typingctx: Any, words: Any, at: Any) -> Any:  # noqa: ARG001
            return result(types.int64, types.int64), codegen

        return none
    if count == 1:

        @_intrinsic
        def one(typingctx: Any, words: Any, at: Any, x: Any) -> Any:  # noqa: ARG001
            return result(types.int64, types.int64, types.int64), codegen

        return one

    @_intrinsic
    def two(typingctx: Any, words: Any, at: Any, x: Any, y: Any) -> Any:  # noqa: ARG001
        return result(types.int64, types.int64, types.int64, types.int64), codegen

    return two


_ORDER = "seq_cst"


def _load_shared(builder: Any, at: Any) -> Any:
    return builder.load_atomic(at, _ORDER, 8)


def _add_shared(builder: Any, at: Any, x: Any) -> Any:
    return builder.atomic_rmw("add", at, x, _ORDER)


def _store_shared(builder: Any, at: Any, x: Any) -> Any:
    return builder.atomic_rmw("xchg", at, x, _ORDER)


def _exchange_shared(builder: Any, at: Any, old: Any, new: Any) -> Any:
    return builder.extract_value(builder.cmpxchg(at, old, new, _ORDER, _ORDER), 0)


# All but a load give what was there; an exchange stores only where the old number is there.
shared_load, shared_add = _shared(0, _load_shared), _shared(1, _add_shared)
shared_store, shared_exchange = _shared(1, _store_shared), _shared(2, _exchange_shared)


@_intrinsic
def pause(typingctx: Any) -> Any:  # noqa: ARG001
    """Let another thread of this core go first for a moment."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
        name, *numbers = _PAUSES.get(platform.machine(), ("",))
        if name:
            kind = ir.FunctionType(ir.VoidType(), [_INT for _ in numbers])
            function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            builder.call(function, [_INT(number) for number in numbers])
        return context.get_dummy_value()

    return types.void(), codegen
