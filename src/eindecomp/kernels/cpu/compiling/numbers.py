"""Numbers of known types in LLVM's terms: conversions, comparisons, arithmetic."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llvmlite import ir as untyped_ir
from numba import types as untyped_types

if TYPE_CHECKING:
    from collections.abc import Sequence

ir: Any = untyped_ir
types: Any = untyped_types
FLOATS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
SIGNED = {getattr(types, f"int{n}"): ir.IntType(n) for n in (8, 16, 32, 64)}
_UNSIGNED = {getattr(types, f"uint{n}"): ir.IntType(n) for n in (8, 16, 32, 64)}
LLVM = {**FLOATS, **SIGNED, **_UNSIGNED, types.boolean: ir.IntType(1)}


class Unsupported(Exception):  # noqa: N818 - not an error: numba compiles it
    """Something that numba has to compile."""


@dataclass(frozen=True, slots=True)
class Value:
    """A number in LLVM's terms, of a type in numba's."""

    code: Any
    type: Any
    literal: bool = False
    """Whether it takes the type of what it meets."""


def constant(number: float) -> Value:
    """A literal float."""
    return Value(ir.Constant(ir.DoubleType(), number), types.float64, literal=True)


class Numbers:
    """Writes operations on numbers."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def truth(self, value: Value) -> Any:
        """A condition: a truth value, or whether a whole number is not 0."""
        if value.type is types.boolean:
            return value.code
        if value.type not in SIGNED:
            raise Unsupported("the truth of a number")
        return self.builder.icmp_signed("!=", value.code, value.code.type(0))

    def meet(self, left: Value, right: Value) -> tuple[Value, Value]:
        """Two values in one type: literals take the other's, and a wider float takes both."""
        if left.type == right.type:
            return left, right
        if left.literal or (left.type == types.float32 and right.type == types.float64):
            return self.cast(left, right.type), right
        if right.literal or (right.type == types.float32 and left.type == types.float64):
            return left, self.cast(right, left.type)
        raise Unsupported(f"{left.type} meets {right.type}")

    def negative(self, value: Value) -> Value:
        """−x."""
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
        if left.type in FLOATS:
            make = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
        else:
            make = builder.icmp_signed if left.type in SIGNED else builder.icmp_unsigned
        return Value(make(sign, left.code, right.code), types.boolean)

    def binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        """A binary operation, in the type of its operands."""
        literal = left.literal and right.literal
        left, right = self.meet(left, right)
        maker = self._maker(type(op), left.type)
        return Value(maker(left.code, right.code), left.type, literal)

    def _maker(self, op: type[ast.operator], of: Any) -> Any:
        builder = self.builder
        makers: dict[type[ast.operator], Any]
        if of in FLOATS:
            makers = {
                ast.Add: builder.fadd, ast.Sub: builder.fsub, ast.Mult: builder.fmul,
                ast.Div: builder.fdiv,
            }  # fmt: skip
        else:
            makers = {ast.BitAnd: builder.and_, ast.BitOr: builder.or_}
            if of is not types.boolean:
                makers |= {ast.Add: builder.add, ast.Sub: builder.sub, ast.Mult: builder.mul}
            if of in SIGNED:
                makers |= {
                    ast.RShift: builder.ashr, ast.FloorDiv: self._quotient, ast.Mod: self._rest,
                }  # fmt: skip
        if op not in makers:
            raise Unsupported(f"{op.__name__} of {of}")
        return makers[op]

    def _quotient(self, x: Any, y: Any) -> Any:
        """The whole quotient, rounded down; 0 if there is none, as NumPy has it."""
        builder, zero = self.builder, y.type(0)
        # Neither 0 nor −1 is divided by: the machine would stop at some numbers.
        none = builder.icmp_signed("==", y, zero)
        odd = builder.or_(none, builder.icmp_signed("==", y, y.type(-1)))
        safe = builder.select(odd, y.type(1), y)
        found = builder.sdiv(x, safe)
        rest = builder.sub(x, builder.mul(found, safe))
        apart = builder.icmp_signed("<", builder.xor(rest, safe), zero)
        down = builder.and_(apart, builder.icmp_signed("!=", rest, zero))
        found = builder.select(down, builder.sub(found, y.type(1)), found)
        by_one = builder.select(none, zero, builder.neg(x))
        return builder.select(odd, by_one, found)

    def _rest(self, x: Any, y: Any) -> Any:
        builder = self.builder
        rest = builder.sub(x, builder.mul(self._quotient(x, y), y))
        return builder.select(builder.icmp_signed("==", y, y.type(0)), y.type(0), rest)

    def cast(self, value: Value, to: Any) -> Value:
        """A number in another type; a float beyond the whole numbers becomes the last of them."""
        if value.type == to:
            return Value(value.code, to)
        builder, code, of = self.builder, value.code, value.type
        if to not in LLVM:
            raise Unsupported(f"a cast to {to}")
        target = LLVM[to]
        match (of in FLOATS, to in FLOATS):
            case True, True:
                wider = to == types.float64
                return Value((builder.fpext if wider else builder.fptrunc)(code, target), to)
            case True, False:
                if to is types.boolean:
                    return self.compare("!=", value, constant(0.0))
                sign = "s" if to in SIGNED else "u"
                ends = f"i{target.width}.f{8 * (4 if of == types.float32 else 8)}"
                name = f"llvm.fpto{sign}i.sat.{ends}"
                return Value(self.declared(name, target, [code]), to)
            case False, True:
                make = builder.sitofp if of in SIGNED else builder.uitofp
                return Value(make(code, target), to)
            case _:
                if to is types.boolean:
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
