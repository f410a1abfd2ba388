"""What generated source can ask of the machine: memory by address, NaN-keeping extremes, fused
sums, bits of numbers, words that threads share, BLAS.

Loops address memory as NumPy lays it out, by address and byte offset, so that one compiled function
serves arrays of any strides; half-width floats are widened as they are read and rounded as they
are written. Each function here writes LLVM's code for values it is given.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Sequence
from typing import Any

from eindecomp.kernels.cpu.compiling.numbers import (
    COMPLEX,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT32,
    INT64,
    LLVM,
    IrValue,
    Numbers,
    Unsupported,
    ir,
)
from eindecomp.lang.dtypes import LOW_PRECISION, DType, dtype, type_names

Emit = Callable[..., IrValue | None]

_BYTE, _SHORT, _INT, _LONG = (ir.IntType(n) for n in (8, 16, 32, 64))
_FLOAT, _HALF, _VOID = ir.FloatType(), ir.HalfType(), ir.VoidType()
_HINT = ("llvm.aarch64.hint", 1)
_PAUSES: dict[str, tuple[Any, ...]] = {
    "x86_64": ("llvm.x86.sse2.pause",), "aarch64": _HINT, "arm64": _HINT,
}  # fmt: skip
_ORDER = "seq_cst"
_PROCESS = ctypes.CDLL(None)  # Python and the libraries that it has loaded
REFUSE = "eindecomp_refuse"
"""The symbol of a function that says that a kernel cannot go on."""


class Intrinsic:
    """A function that generated source calls, by what writes its code."""

    def __init__(self, emit: Emit) -> None:
        self.emit = emit


def _intrinsic(emit: Emit) -> Any:
    return Intrinsic(emit)  # called by generated source and by `functions`, which is read, not run


# Memory


def _scope(module: Any) -> Any:
    """The memory that stores write, as a scope that input loads are declared apart from.

    Outputs never overlap inputs (`TileKernel` says so); told of it, LLVM vectorises without checks.
    """
    domain = module.add_metadata(["eindecomp kernels"])
    return module.add_metadata([module.add_metadata(["eindecomp stores", domain])])


def _place(numbers: Numbers, of: DType, address: IrValue, index: IrValue, in_bytes: bool) -> Any:
    builder, at = numbers.builder, index.code
    # How memory holds a number of a type, or a part of a complex number.
    special = {"bool": _BYTE, "float16": _HALF, "bfloat16": _SHORT}
    stored = special.get(of.name) or LLVM[COMPLEX.get(of, of)]
    if of in COMPLEX and not in_bytes:
        at = builder.mul(at, _LONG(2))
    unit = _BYTE if in_bytes else stored
    pointer = builder.gep(builder.inttoptr(address.code, unit.as_pointer()), [at])
    return builder.bitcast(pointer, stored.as_pointer()) if in_bytes else pointer


def _load(of: DType, *, in_bytes: bool, apart: bool) -> Any:
    """Read a value by an address and an index, which counts elements or bytes.

    `apart`: no store of the same function writes what is read.
    """

    def emit(numbers: Numbers, address: IrValue, index: IrValue) -> IrValue:
        builder = numbers.builder
        pointer = _place(numbers, of, address, index, in_bytes)

        def read(pointer: Any) -> Any:
            value = builder.load(pointer, align=1)
            if apart:
                value.set_metadata("noalias", _scope(builder.module))
            return value

        code = read(pointer)
        if of in COMPLEX:
            part = COMPLEX[of]
            other = read(builder.gep(pointer, [_INT(1)]))
            return numbers.complex(IrValue(code, part), IrValue(other, part))
        if of.name == "bool":
            return IrValue(builder.icmp_unsigned("!=", code, code.type(0)), of)
        if of.name == "float16":
            return IrValue(builder.fpext(code, _FLOAT), FLOAT32)
        if of.name == "bfloat16":
            bits = builder.shl(builder.zext(code, _INT), _INT(16))
            return IrValue(builder.bitcast(bits, _FLOAT), FLOAT32)
        return IrValue(code, of)

    return _intrinsic(emit)


def _store(of: DType, *, in_bytes: bool) -> Any:
    """Write a value by an address and an index."""

    def emit(numbers: Numbers, address: IrValue, index: IrValue, value: IrValue) -> None:
        builder = numbers.builder
        pointer = _place(numbers, of, address, index, in_bytes)
        value = numbers.cast(value, FLOAT32 if of in LOW_PRECISION else of)
        parts = [part.code for part in numbers.parts(value)] if of in COMPLEX else [value.code]
        for k, part in enumerate(parts):
            place = builder.gep(pointer, [_INT(1)]) if k else pointer
            done = builder.store(_narrow(builder, of, part), place, align=1)
            done.set_metadata("alias.scope", _scope(builder.module))

    return _intrinsic(emit)


def _narrow(builder: Any, of: DType, value: Any) -> Any:
    """A computed value as memory holds a type."""
    if of.name == "bool":
        return builder.zext(value, _BYTE)
    if of.name == "float16":
        return builder.fptrunc(value, _HALF)
    if of.name == "bfloat16":
        return builder.trunc(builder.lshr(_bfloat_bits(builder, value), _INT(16)), _SHORT)
    return value


def _bfloat_bits(builder: Any, value: Any) -> Any:
    """The bits of a float32 rounded to nearest even bfloat16; the lower half is not cleared."""
    bits = builder.bitcast(value, _INT)
    odd = builder.and_(builder.lshr(bits, _INT(16)), _INT(1))
    rounded = builder.add(bits, builder.add(odd, _INT(0x7FFF)))
    quiet = builder.or_(bits, _INT(0x400000))
    return builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)


def memory_functions() -> dict[str, Any]:
    """The functions that read and write each type, by name."""
    functions: dict[str, Any] = {}
    for name in type_names:
        of = dtype(name)
        for suffix, in_bytes in (("", False), ("bytes_", True)):
            functions[f"load_{suffix}{name}"] = _load(of, in_bytes=in_bytes, apart=True)
            functions[f"reload_{suffix}{name}"] = _load(of, in_bytes=in_bytes, apart=False)
            functions[f"store_{suffix}{name}"] = _store(of, in_bytes=in_bytes)
    return functions


# Floats


def _llvm(name: str) -> Any:
    """One of LLVM's own functions of floats."""

    def emit(numbers: Numbers, first: IrValue, *rest: IrValue) -> IrValue:
        of = first.type
        codes = [numbers.cast(value, of).code for value in (first, *rest)]
        full = f"llvm.{name}.f{8 * of.itemsize}"
        return IrValue(numbers.declared(full, LLVM[of], codes), of)

    return _intrinsic(emit)


maximum, minimum, muladd = _llvm("maximum"), _llvm("minimum"), _llvm("fmuladd")
copysign, floor = _llvm("copysign"), _llvm("floor")


@_intrinsic
def polynomial(numbers: Numbers, x: IrValue, *coefficients: IrValue) -> IrValue:
    """The sum of coefficients times powers of x, that of the highest power first."""
    total = numbers.cast(coefficients[0], x.type)
    for coefficient in coefficients[1:]:
        total = muladd.emit(numbers, total, x, coefficient)
    return total


@_intrinsic
def remainder(numbers: Numbers, x: IrValue, y: IrValue) -> IrValue:
    """What is left of x / y rounded towards zero: C's fmod."""
    return IrValue(numbers.builder.frem(x.code, y.code), x.type)


@_intrinsic
def sum_product(numbers: Numbers, x: IrValue, y: IrValue, total: IrValue) -> IrValue:
    """x · y + total, where terms may be added in any order: lanes of vectors add up their own."""
    builder = numbers.builder
    term = builder.fmul(x.code, y.code, flags=("contract",))
    return IrValue(builder.fadd(total.code, term, flags=("reassoc", "contract")), total.type)


@_intrinsic
def choose(numbers: Numbers, condition: IrValue, x: IrValue, y: IrValue) -> IrValue:
    """x or y, both computed: a branch would keep LLVM from vectorising."""
    x, y = numbers.meet(x, y)
    return IrValue(numbers.builder.select(numbers.truth(condition), x.code, y.code), x.type)


def _bits(source: DType, target: DType) -> Any:
    def emit(numbers: Numbers, x: IrValue) -> IrValue:
        code = numbers.cast(x, source).code
        return IrValue(numbers.builder.bitcast(code, LLVM[target]), target)

    return _intrinsic(emit)


float_of_bits, bits_of_float = _bits(INT32, FLOAT32), _bits(FLOAT32, INT32)


@_intrinsic
def round_half(numbers: Numbers, x: IrValue) -> IrValue:
    """Round a float32 to float16 and widen it again."""
    builder = numbers.builder
    return IrValue(builder.fpext(builder.fptrunc(x.code, _HALF), _FLOAT), FLOAT32)


@_intrinsic
def round_bfloat(numbers: Numbers, x: IrValue) -> IrValue:
    """Round a float32 to bfloat16 and widen it again."""
    builder = numbers.builder
    bits = builder.and_(_bfloat_bits(builder, x.code), _INT(0xFFFF0000))
    return IrValue(builder.bitcast(bits, _FLOAT), FLOAT32)


@_intrinsic
def times_power_of_two(numbers: Numbers, x: IrValue, shifted: IrValue) -> IrValue:
    """x · 2^n in float32 for a whole n given as n + 1.5 · 2^23, −250 < n < 250.

    In two factors, because one normal number does not have all the exponents.
    """
    builder = numbers.builder
    # The exponent takes the last bits only: those of what was added are shifted out.
    whole = builder.bitcast(shifted.code, _INT)
    half = builder.ashr(whole, _INT(1))
    product = x.code
    for power in (half, builder.sub(whole, half)):
        bits = builder.shl(builder.add(power, _INT(127)), _INT(23))
        product = builder.fmul(product, builder.bitcast(bits, _FLOAT))
    return IrValue(product, FLOAT32)


def of_c(numbers: Numbers, name: str, args: Sequence[IrValue]) -> IrValue:
    """A function of the machine's C library, of real or complex numbers; these are complex128's.

    Systems pass and return a complex number as its two parts, in registers of floats.
    """
    of = args[0].type
    if of in FLOATS:
        name = name if of == FLOAT64 else f"{name}f"
        codes = [arg.code for arg in args]
    else:
        codes = [part.code for arg in args for part in numbers.parts(arg)]
    if not hasattr(_PROCESS, name):  # calling it would end the process
        raise Unsupported(f"the C library has no {name}")
    return IrValue(numbers.declared(name, LLVM[of], codes), of)


@_intrinsic
def power_of_c(numbers: Numbers, x: IrValue, y: IrValue) -> IrValue:
    """x to the power of y, both complex128."""
    return of_c(numbers, "cpow", (x, y))


@_intrinsic
def refuse(numbers: Numbers) -> None:
    """Say that a kernel cannot go on; whoever called it raises an error when it has ended."""
    numbers.declared(REFUSE, _VOID, [])


# Words that threads share, by the address of words and a number


def _shared(operate: Callable[..., Any]) -> Any:
    def emit(numbers: Numbers, words: IrValue, at: IrValue, *args: IrValue) -> IrValue:
        pointer = _place(numbers, INT64, words, at, in_bytes=False)
        return IrValue(operate(numbers.builder, pointer, *(arg.code for arg in args)), INT64)

    return _intrinsic(emit)


@_shared
def shared_load(builder: Any, at: Any) -> Any:
    """What is there."""
    return builder.load_atomic(at, _ORDER, 8)


@_shared
def shared_add(builder: Any, at: Any, x: Any) -> Any:
    """Add a number; gives what was there."""
    return builder.atomic_rmw("add", at, x, _ORDER)


@_shared
def shared_store(builder: Any, at: Any, x: Any) -> Any:
    """Store a number; gives what was there."""
    return builder.atomic_rmw("xchg", at, x, _ORDER)


@_shared
def shared_exchange(builder: Any, at: Any, old: Any, new: Any) -> Any:
    """Store a number where another is; gives what was there."""
    return builder.extract_value(builder.cmpxchg(at, old, new, _ORDER, _ORDER), 0)


@_intrinsic
def core_of_thread(numbers: Numbers) -> IrValue:
    """The number of the core that this thread is on; -2 where the system does not say."""
    if not hasattr(_PROCESS, "sched_getcpu"):
        return IrValue(_LONG(-2), INT64)
    core = numbers.declared("sched_getcpu", _INT, [])
    return IrValue(numbers.builder.sext(core, _LONG), INT64)


@_intrinsic
def pause(numbers: Numbers) -> None:
    """Let another thread of this core go first for a moment."""
    name, *args = _PAUSES.get(platform.machine(), ("",))
    if name:
        numbers.declared(name, _VOID, [_INT(arg) for arg in args])


# Code by its address


@_intrinsic
def call_code(numbers: Numbers, code: IrValue, argument: IrValue) -> None:
    """Call compiled code at an address with the address of its arguments."""
    kind = ir.FunctionType(_VOID, [_LONG])
    numbers.builder.call(numbers.builder.inttoptr(code.code, kind.as_pointer()), [argument.code])


def _blas(arguments: Sequence[int | str]) -> Any:
    """A call of BLAS: of `x`, `y` and `z`, and of what is in slots of eight bytes.

    Slot 0 has the function's address.
    """

    def emit(numbers: Numbers, at: IrValue, x: IrValue, y: IrValue, z: IrValue) -> None:
        builder, pointer = numbers.builder, _BYTE.as_pointer()
        given = {"x": x.code, "y": y.code, "z": z.code}
        places = [
            given[each] if isinstance(each, str) else builder.add(at.code, _LONG(8 * each))
            for each in arguments
        ]
        address = builder.load(builder.inttoptr(at.code, _LONG.as_pointer()))
        kind = ir.FunctionType(_VOID, [pointer] * len(places))
        function = builder.inttoptr(address, kind.as_pointer())
        builder.call(function, [builder.inttoptr(place, pointer) for place in places])

    return _intrinsic(emit)


# Slots: two letters, three sizes, alpha and beta of two slots each, three steps between columns.
call_gemm = _blas((1, 2, 3, 4, 5, 6, "x", 10, "y", 11, 8, "z", 12))
# Slots: a letter, two sizes, alpha and beta of two slots each, the matrix's step between columns,
# and those of the vectors x and z.
call_gemv = _blas((1, 2, 3, 4, "y", 8, "x", 9, 6, "z", 10))
