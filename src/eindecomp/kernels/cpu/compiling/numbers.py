"""Numbers of known types in LLVM's terms: conversions, comparisons, arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir as untyped_ir

from eindecomp.lang.dtypes import BOOL, DType, dtype

ir: Any = untyped_ir
FLOAT32, FLOAT64, INT32, INT64 = map(dtype, ("float32", "float64", "int32", "int64"))
FLOATS = {FLOAT32: ir.FloatType(), FLOAT64: ir.DoubleType()}
SIGNED = {dtype(f"int{n}"): ir.IntType(n) for n in (8, 16, 32, 64)}
_UNSIGNED = {dtype(f"uint{n}"): ir.IntType(n) for n in (8, 16, 32, 64)}
# Of a complex number, the type of its parts.
COMPLEX = {dtype("complex64"): FLOAT32, dtype("complex128"): FLOAT64}
LLVM: dict[DType, Any] = {
    **FLOATS, **SIGNED, **_UNSIGNED, BOOL: ir.IntType(1),
    **{of: ir.LiteralStructType([FLOATS[part]] * 2) for of, part in COMPLEX.items()},
}  # fmt: skip


class Unsupported(TypeError):  # noqa: N818
    """Something that generated source never says."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number in LLVM's terms, and its type."""

    code: Any
    type: DType
    literal: bool = False
    """Whether it takes the type of what it meets."""


def constant(number: float) -> Value:
    """A literal float."""
    return Value(ir.Constant(ir.DoubleType(), number), FLOAT64, literal=True)


class Numbers:
    """Writes operations on numbers."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def truth(self, value: Value) -> Any:
        """A condition: a truth value, or whether a whole number is not 0."""
        if value.type == BOOL:
            return value.code
        return self.builder.icmp_signed("!=", value.code, value.code.type(0))

    def meet(self, left: Value, right: Value) -> tuple[Value, Value]:
        """Two values in one type: literals take the other's, and a wider float takes both."""
        if left.type == right.type:
            return left, right
        if left.literal or (left.type == FLOAT32 and right.type == FLOAT64):
            return self.cast(left, right.type), right
        if right.literal or (right.type == FLOAT32 and left.type == FLOAT64):
            return left, self.cast(right, left.type)
        raise Unsupported(f"{left.type} meets {right.type}")

    def parts(self, value: Value) -> tuple[Value, Value]:
        """The real part and the imaginary one."""
        of = COMPLEX[value.type]
        real, imaginary = (self.builder.extract_value(value.code, k) for k in range(2))
        return Value(real, of), Value(imaginary, of)

    def complex(self, real: Value, imaginary: Value) -> Value:
        """The complex number with these parts, of one type."""
        real, imaginary = self.meet(real, imaginary)
        of = next(of for of, part in COMPLEX.items() if part == real.type)
        code = ir.Constant(LLVM[of], ir.Undefined)
        for k, part in enumerate((real, imaginary)):
            code = self.builder.insert_value(code, part.code, k)
        return Value(code, of)

    def negative(self, value: Value) -> Value:
        """−x."""
        if value.type in COMPLEX:
            return self.complex(*map(self.negative, self.parts(value)))
        if value.literal and isinstance(value.code, ir.Constant):
            number = ir.Constant(value.code.type, -value.code.constant)
            return Value(number, value.type, literal=True)
        if value.type in FLOATS:
            return Value(self.builder.fneg(value.code), value.type)
        return Value(self.builder.neg(value.code), value.type, value.literal)

    def compare(self, sign: str, left: Value, right: Value) -> Value:
        """Whether two numbers are in an order; none is with NaN."""
        left, right = self.meet(left, right)
        builder = self.builder
        if left.type in COMPLEX:
            pairs = zip(self.parts(left), self.parts(right), strict=True)
            one, other = (self.compare(sign, *pair).code for pair in pairs)
            return Value((builder.or_ if sign == "!=" else builder.and_)(one, other), BOOL)
        if left.type in FLOATS:
            make = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
        else:
            make = builder.icmp_signed if left.type in SIGNED else builder.icmp_unsigned
        return Value(make(sign, left.code, right.code), BOOL)

    def binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        """A binary operation, in the type of its operands."""
        literal = left.literal and right.literal
        left, right = self.meet(left, right)
        if left.type in COMPLEX:
            return self._binary_complex(op, left, right)
        maker = self._maker(type(op), left.type)
        return Value(maker(left.code, right.code), left.type, literal)

    def _binary_complex(self, op: ast.operator, left: Value, right: Value) -> Value:
        (a, b), (c, d) = self.parts(left), self.parts(right)
        if not isinstance(op, ast.Mult):
            return self.complex(self.binary(op, a, c), self.binary(op, b, d))
        ac, bd, ad, bc = (self.binary(op, x, y) for x, y in ((a, c), (b, d), (a, d), (b, c)))
        return self.complex(self.binary(ast.Sub(), ac, bd), self.binary(ast.Add(), ad, bc))

    def _maker(self, op: type[ast.operator], of: DType) -> Any:
        builder = self.builder
        makers: dict[type[ast.operator], Callable[..., Any]]
        if of in FLOATS:
            makers = {
                ast.Add: builder.fadd, ast.Sub: builder.fsub, ast.Mult: builder.fmul,
                ast.Div: builder.fdiv,
            }  # fmt: skip
        else:
            makers = {ast.BitAnd: builder.and_, ast.BitOr: builder.or_}
            if of != BOOL:
                makers |= {ast.Add: builder.add, ast.Sub: builder.sub, ast.Mult: builder.mul}
            if of in SIGNED:
                makers |= {
                    ast.RShift: builder.ashr, ast.FloorDiv: self._quotient, ast.Mod: self._rest,
                }  # fmt: skip
            if of in _UNSIGNED:
                makers |= {
                    ast.RShift: builder.lshr, ast.FloorDiv: builder.udiv, ast.Mod: builder.urem,
                }  # fmt: skip
        if op not in makers:
            raise Unsupported(f"{op.__name__} of {of}")
        return makers[op]

    def _quotient(self, x: Any, y: Any) -> Any:
        """The whole quotient of a number by one that is neither 0 nor −1, rounded down."""
        builder, zero = self.builder, y.type(0)
        found = builder.sdiv(x, y)
        rest = builder.sub(x, builder.mul(found, y))
        apart = builder.icmp_signed("<", builder.xor(rest, y), zero)
        down = builder.and_(apart, builder.icmp_signed("!=", rest, zero))
        return builder.select(down, builder.sub(found, y.type(1)), found)

    def _rest(self, x: Any, y: Any) -> Any:
        return self.builder.sub(x, self.builder.mul(self._quotient(x, y), y))

    def cast(self, value: Value, to: DType) -> Value:
        """A number in another type; a float beyond the whole numbers becomes the last of them."""
        builder, code, of = self.builder, value.code, value.type
        if of == to:
            return Value(code, to)
        target = LLVM[to]
        if to in COMPLEX:
            real, other = self.parts(value) if of in COMPLEX else (value, constant(0.0))
            return self.complex(self.cast(real, COMPLEX[to]), self.cast(other, COMPLEX[to]))
        match (of in FLOATS, to in FLOATS):
            case True, True:
                wider = to == FLOAT64
                return Value((builder.fpext if wider else builder.fptrunc)(code, target), to)
            case True, False:
                if to == BOOL:
                    return self.compare("!=", value, constant(0.0))
                sign = "s" if to in SIGNED else "u"
                ends = f"i{target.width}.f{8 * of.itemsize}"
                return Value(self.declared(f"llvm.fpto{sign}i.sat.{ends}", target, [code]), to)
            case False, True:
                make = builder.sitofp if of in SIGNED else builder.uitofp
                return Value(make(code, target), to)
            case _:
                if to == BOOL:
                    return Value(builder.icmp_signed("!=", code, code.type(0)), to)
                if target.width > code.type.width:
                    make = builder.sext if of in SIGNED else builder.zext
                    return Value(make(code, target), to)
                same = target.width == code.type.width
                return Value(code if same else builder.trunc(code, target), to)

    def declared(self, name: str, result: Any, args: Sequence[Any]) -> Any:
        """Call a function that LLVM knows or the machine's libraries have."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(result, [arg.type for arg in args])
            function = ir.Function(module, kind, name)
        return self.builder.call(function, args)
