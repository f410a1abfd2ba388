"""Numbers of known types in LLVM's terms: conversions, comparisons, arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir as untyped_ir

from eindecomp.lang.dtypes import BOOL, DType, dtype

ir: Any = untyped_ir
FLOAT32, FLOAT64, INT32, INT64 = map(dtype, ("float32", "float64", "int32", "int64"))
FLOATS = {FLOAT32: ir.FloatType(), FLOAT64: ir.DoubleType()}
SIGNED = {dtype(f"int{n}"): ir.IntType(n) for n in (8, 16, 32, 64)}
_UNSIGNED = {dtype(f"uint{n}"): ir.IntType(n) for n in (8, 16, 32, 64)}
# For each complex type, the type of its parts.
COMPLEX = {dtype("complex64"): FLOAT32, dtype("complex128"): FLOAT64}
LLVM: dict[DType, Any] = {
    **FLOATS, **SIGNED, **_UNSIGNED, BOOL: ir.IntType(1),
    **{of: ir.LiteralStructType([FLOATS[part]] * 2) for of, part in COMPLEX.items()},
}  # fmt: skip


_BITS = {ast.BitAnd: "and_", ast.BitOr: "or_"}
_WHOLE = {**_BITS, ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_MAKERS: dict[str, dict[type[ast.operator], str]] = {
    "f": {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"},
    "b": {**_BITS},
    "i": {**_WHOLE, ast.RShift: "ashr"},
    "u": {**_WHOLE, ast.RShift: "lshr", ast.FloorDiv: "udiv", ast.Mod: "urem"},
}
"""The instruction of each operation: on floats, truth values, signed and unsigned numbers."""


class Unsupported(TypeError):  # noqa: N818
    """Something that generated source never says."""


@dataclass(frozen=True, slots=True)
class IrValue:
    """A number in LLVM's terms, and its type."""

    code: Any
    type: DType
    literal: bool = False
    """Whether it takes the type of what it meets."""


def constant(number: float) -> IrValue:
    """A literal float."""
    return IrValue(ir.Constant(ir.DoubleType(), number), FLOAT64, literal=True)


class Numbers:
    """Writes operations on numbers."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def truth(self, value: IrValue) -> Any:
        """A condition: a truth value, or whether a whole number is not 0."""
        if value.type == BOOL:
            return value.code
        return self.builder.icmp_signed("!=", value.code, value.code.type(0))

    def meet(self, left: IrValue, right: IrValue) -> tuple[IrValue, IrValue]:
        """Two values in one type: literals take the other's, and a wider float takes both."""
        if left.type == right.type:
            return left, right
        if left.literal or (left.type == FLOAT32 and right.type == FLOAT64):
            return self.cast(left, right.type), right
        if right.literal or (right.type == FLOAT32 and left.type == FLOAT64):
            return left, self.cast(right, left.type)
        raise Unsupported(f"{left.type} meets {right.type}")

    def parts(self, value: IrValue) -> tuple[IrValue, IrValue]:
        """The real part and the imaginary one."""
        of = COMPLEX[value.type]
        real, imaginary = (self.builder.extract_value(value.code, k) for k in range(2))
        return IrValue(real, of), IrValue(imaginary, of)

    def complex(self, real: IrValue, imaginary: IrValue) -> IrValue:
        """The complex number with these parts, of one type."""
        real, imaginary = self.meet(real, imaginary)
        of = next(of for of, part in COMPLEX.items() if part == real.type)
        code = ir.Constant(LLVM[of], ir.Undefined)
        for k, part in enumerate((real, imaginary)):
            code = self.builder.insert_value(code, part.code, k)
        return IrValue(code, of)

    def negative(self, value: IrValue) -> IrValue:
        """−x."""
        if value.type in COMPLEX:
            return self.complex(*map(self.negative, self.parts(value)))
        if value.literal and isinstance(value.code, ir.Constant):
            number = ir.Constant(value.code.type, -value.code.constant)
            return IrValue(number, value.type, literal=True)
        if value.type in FLOATS:
            return IrValue(self.builder.fneg(value.code), value.type)
        return IrValue(self.builder.neg(value.code), value.type, value.literal)

    def compare(self, sign: str, left: IrValue, right: IrValue) -> IrValue:
        """Whether two numbers are in an order; none is with NaN."""
        left, right = self.meet(left, right)
        builder = self.builder
        if left.type in COMPLEX:
            pairs = zip(self.parts(left), self.parts(right), strict=True)
            one, other = (self.compare(sign, *pair).code for pair in pairs)
            return IrValue((builder.or_ if sign == "!=" else builder.and_)(one, other), BOOL)
        if left.type in FLOATS:
            make = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
        else:
            make = builder.icmp_signed if left.type in SIGNED else builder.icmp_unsigned
        return IrValue(make(sign, left.code, right.code), BOOL)

    def binary(self, op: ast.operator, left: IrValue, right: IrValue) -> IrValue:
        """A binary operation, in the type of its operands."""
        literal = left.literal and right.literal
        left, right = self.meet(left, right)
        if left.type in COMPLEX:
            return self._binary_complex(op, left, right)
        maker = self._maker(type(op), left.type)
        return IrValue(maker(left.code, right.code), left.type, literal)

    def _binary_complex(self, op: ast.operator, left: IrValue, right: IrValue) -> IrValue:
        (a, b), (c, d) = self.parts(left), self.parts(right)
        if not isinstance(op, ast.Mult):
            return self.complex(self.binary(op, a, c), self.binary(op, b, d))
        ac, bd, ad, bc = (self.binary(op, x, y) for x, y in ((a, c), (b, d), (a, d), (b, c)))
        return self.complex(self.binary(ast.Sub(), ac, bd), self.binary(ast.Add(), ad, bc))

    def _maker(self, op: type[ast.operator], of: DType) -> Any:
        if of in SIGNED and op in (ast.FloorDiv, ast.Mod):
            return self._quotient if op is ast.FloorDiv else self._rest
        kind = "f" if of in FLOATS else "b" if of == BOOL else "i" if of in SIGNED else "u"
        name = _MAKERS[kind].get(op)
        if name is None:
            raise Unsupported(f"{op.__name__} of {of}")
        return getattr(self.builder, name)

    def _quotient(self, x: Any, y: Any) -> Any:
        """The whole quotient of a number by one that is neither 0 nor −1, rounded down."""
        builder, zero = self.builder, y.type(0)
        quotient = builder.sdiv(x, y)
        rest = builder.sub(x, builder.mul(quotient, y))
        apart = builder.icmp_signed("<", builder.xor(rest, y), zero)
        down = builder.and_(apart, builder.icmp_signed("!=", rest, zero))
        return builder.select(down, builder.sub(quotient, y.type(1)), quotient)

    def _rest(self, x: Any, y: Any) -> Any:
        return self.builder.sub(x, self.builder.mul(self._quotient(x, y), y))

    def cast(self, value: IrValue, to: DType) -> IrValue:
        """A number in another type; a float beyond the whole numbers becomes the last of them."""
        builder, code, of = self.builder, value.code, value.type
        if of == to:
            return IrValue(code, to)
        target = LLVM[to]
        if to in COMPLEX:
            real, other = self.parts(value) if of in COMPLEX else (value, constant(0.0))
            return self.complex(self.cast(real, COMPLEX[to]), self.cast(other, COMPLEX[to]))
        match (of in FLOATS, to in FLOATS):
            case True, True:
                wider = to == FLOAT64
                return IrValue((builder.fpext if wider else builder.fptrunc)(code, target), to)
            case True, False:
                if to == BOOL:
                    return self.compare("!=", value, constant(0.0))
                sign = "s" if to in SIGNED else "u"
                ends = f"i{target.width}.f{8 * of.itemsize}"
                return IrValue(self.declared(f"llvm.fpto{sign}i.sat.{ends}", target, [code]), to)
            case False, True:
                make = builder.sitofp if of in SIGNED else builder.uitofp
                return IrValue(make(code, target), to)
            case _:
                if to == BOOL:
                    return IrValue(builder.icmp_signed("!=", code, code.type(0)), to)
                if target.width > code.type.width:
                    make = builder.sext if of in SIGNED else builder.zext
                    return IrValue(make(code, target), to)
                same = target.width == code.type.width
                return IrValue(code if same else builder.trunc(code, target), to)

    def declared(self, name: str, result: Any, args: Sequence[Any]) -> Any:
        """Call a function that LLVM knows or the machine's libraries have."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(result, [arg.type for arg in args])
            function = ir.Function(module, kind, name)
        return self.builder.call(function, args)
