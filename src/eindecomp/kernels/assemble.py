"""From the source of a kernel to LLVM's code, without numba's analysis of Python.

Generated source is plain: loops over whole numbers, numbers of known types, functions of our own.
Reading it directly takes a tenth of the time that numba takes to find out as much. What needs more
of Python (complex numbers, exceptions, early returns) is `Unsupported`, and numba's.

Types are numba's, and so are the functions in `intrinsics` and `vectors`, each of which says how it
is written in LLVM's terms; those in `functions` are written out where they are called.
"""

from __future__ import annotations

import ast
import inspect
import math
from dataclasses import dataclass
from functools import cache, reduce
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NoReturn

from llvmlite import ir as untyped_ir
from numba import types as untyped_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ir: Any = untyped_ir
types: Any = untyped_types
_I1, _I64 = ir.IntType(1), ir.IntType(64)
_FLOATS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
_SIGNED = {getattr(types, f"int{n}"): ir.IntType(n) for n in (8, 16, 32, 64)}
_UNSIGNED = {getattr(types, f"uint{n}"): ir.IntType(n) for n in (8, 16, 32, 64)}
_LLVM = {**_FLOATS, **_SIGNED, **_UNSIGNED, types.boolean: _I1}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
# Functions that LLVM knows, most of which end in a call of C's, and those that are C's alone.
_MATH = {"exp", "log", "sqrt", "sin", "cos", "tanh", "pow"}
_OF_C = {"erf", "erfc"}


class Unsupported(Exception):  # noqa: N818 - not an error: numba compiles it
    """Something that numba has to compile."""


@dataclass(frozen=True, slots=True)
class _Value:
    code: Any
    type: Any
    literal: bool = False
    """Whether it takes the type of what it meets."""


class _Context:
    """What the functions of `intrinsics` ask of numba."""

    def get_dummy_value(self) -> None:
        """Nothing: they return nothing."""

    def make_complex(self, *_: Any) -> NoReturn:
        """Complex numbers are numba's."""
        raise Unsupported("a complex number")


_CONTEXT = _Context()


def assemble(source: str, name: str, names: Mapping[str, Any]) -> str:
    """The text of an LLVM module with the function `kernel` of a source, under a new name."""
    tree = ast.parse(source).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise Unsupported("no function")
    module = ir.Module(name)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64]), name)
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    writer = _Writer(builder, names)
    writer.assign(tree.args.args[0].arg, _Value(function.args[0], types.int64))
    writer.statements(tree.body)
    builder.ret_void()
    return str(module)


class _Writer:
    """Writes one scope: a kernel's, or that of a function that is written out."""

    def __init__(self, builder: Any, names: Mapping[str, Any]) -> None:
        self.builder, self.names = builder, names
        self.variables: dict[str, tuple[Any, Any]] = {}

    # Statements

    def statements(self, body: Sequence[ast.stmt]) -> _Value | None:
        """Write statements; the value of the `return` that may end them."""
        for number, statement in enumerate(body):
            match statement:
                case ast.Return(value=ast.expr() as value) if number == len(body) - 1:
                    return self.value(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.assign(name, self.value(value))
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                    found = [self.value(value) for value in values]
                    for target, value in zip(targets, found, strict=True):
                        self.assign(_name(target), value)
                case ast.AugAssign(target=target, op=op, value=value):
                    old = self.value(ast.Name(_name(target)))
                    self.assign(_name(target), self.binary(op, old, self.value(value)))
                case ast.For(target=target, iter=ast.Call(func=ast.Name(id="range"), args=args)):
                    self._for(_name(target), [self.value(arg) for arg in args], statement.body)
                case ast.While(test=test, body=inner):
                    self._while(test, inner)
                case ast.If(test=test, body=then, orelse=[]):
                    with self.builder.if_then(self._truth(self.value(test))):
                        self._inner(then)
                case ast.Expr(value=ast.Call() as call):
                    self.call(call)
                case ast.Expr(value=ast.Constant()):  # a docstring
                    pass
                case _:
                    raise Unsupported(ast.dump(statement))
        return None

    def _inner(self, body: Sequence[ast.stmt]) -> None:
        if any(isinstance(statement, ast.Return) for statement in body):
            raise Unsupported("an early return")
        self.statements(body)

    def assign(self, name: str, value: _Value) -> None:
        """Give a variable a value; its type is that of its first."""
        if name not in self.variables:
            with self.builder.goto_entry_block():
                place = self.builder.alloca(_LLVM[value.type])
            self.variables[name] = (place, value.type)
        place, of = self.variables[name]
        if of != value.type:
            raise Unsupported(f"{name} changes its type")
        self.builder.store(value.code, place)

    def _for(self, name: str, bounds: list[_Value], body: Sequence[ast.stmt]) -> None:
        start = bounds[0] if len(bounds) > 1 else _Value(_I64(0), types.int64)
        stop = bounds[min(1, len(bounds) - 1)]
        step = bounds[2].code if len(bounds) > 2 else _I64(1)
        if not isinstance(step, ir.Constant):
            raise Unsupported("a step that varies")
        builder = self.builder
        head, inner, after = (builder.append_basic_block(b) for b in ("head", "body", "after"))
        with builder.goto_entry_block():
            place = builder.alloca(_I64)
        builder.store(start.code, place)
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.load(place)
        sign = "<" if step.constant > 0 else ">"
        builder.cbranch(builder.icmp_signed(sign, index, stop.code), inner, after)
        builder.position_at_end(inner)
        self.assign(name, _Value(index, types.int64))
        self._inner(body)
        builder.store(builder.add(index, step, flags=("nsw",)), place)
        builder.branch(head)
        builder.position_at_end(after)

    def _while(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        builder = self.builder
        head, inner, after = (builder.append_basic_block(b) for b in ("head", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(self._truth(self.value(test)), inner, after)
        builder.position_at_end(inner)
        self._inner(body)
        builder.branch(head)
        builder.position_at_end(after)

    def _truth(self, value: _Value) -> Any:
        if value.type is types.boolean:
            return value.code
        if value.type not in _SIGNED:
            raise Unsupported("the truth of a number")
        return self.builder.icmp_signed("!=", value.code, value.code.type(0))

    # Expressions

    def value(self, node: ast.expr) -> _Value:
        """The value of an expression."""
        match node:
            case ast.Constant() | ast.Name() | ast.Attribute():
                return self._leaf(node)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._negative(self.value(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return _Value(self.builder.not_(self._truth(self.value(operand))), types.boolean)
            case ast.BoolOp(op=ast.And(), values=values):
                # All are computed: none does anything but that.
                truths = [self._truth(self.value(value)) for value in values]
                return _Value(reduce(self.builder.and_, truths), types.boolean)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compare(_COMPARISONS[type(op)], self.value(left), self.value(right))
            case ast.IfExp(test=test, body=left, orelse=right):
                one, other = self._meet(self.value(left), self.value(right))
                chosen = self.builder.select(self._truth(self.value(test)), one.code, other.code)
                return _Value(chosen, one.type)
            case ast.Call() if (found := self.call(node)) is not None:
                return found
            case _:
                raise Unsupported(ast.dump(node))

    def _leaf(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value=bool() as number):
                return _Value(_I1(int(number)), types.boolean)
            case ast.Constant(value=int() as number):
                return _Value(_I64(number), types.int64, literal=True)
            case ast.Constant(value=float() as number):
                return _constant(number)
            case ast.Name(id=name) if name in self.variables:
                place, of = self.variables[name]
                return _Value(self.builder.load(place), of)
            case ast.Name(id=name) if isinstance(self.names.get(name), float):
                return _constant(self.names[name])
            case ast.Attribute(value=ast.Name(id="math"), attr="inf" | "nan" as name):
                return _constant(getattr(math, name))
            case _:
                raise Unsupported(ast.dump(node))

    def _meet(self, left: _Value, right: _Value) -> tuple[_Value, _Value]:
        """Two values in one type: literals take the other's, and a wider float takes both."""
        if left.type == right.type:
            return left, right
        if left.literal or (left.type == types.float32 and right.type == types.float64):
            return self.cast(left, right.type), right
        if right.literal or (right.type == types.float32 and left.type == types.float64):
            return left, self.cast(right, left.type)
        raise Unsupported(f"{left.type} meets {right.type}")

    def _negative(self, value: _Value) -> _Value:
        if value.literal and isinstance(value.code, ir.Constant):
            number = ir.Constant(value.code.type, -value.code.constant)
            return _Value(number, value.type, literal=True)
        if value.type in _FLOATS:
            return _Value(self.builder.fneg(value.code), value.type)
        return _Value(self.builder.neg(value.code), value.type, value.literal)

    def _compare(self, sign: str, left: _Value, right: _Value) -> _Value:
        left, right = self._meet(left, right)
        builder = self.builder
        if left.type in _FLOATS:
            make = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
        else:
            make = builder.icmp_signed if left.type in _SIGNED else builder.icmp_unsigned
        return _Value(make(sign, left.code, right.code), types.boolean)

    def binary(self, op: ast.operator, left: _Value, right: _Value) -> _Value:
        """A binary operation, in the type of its operands."""
        literal = left.literal and right.literal
        left, right = self._meet(left, right)
        maker = self._maker(type(op), left.type)
        return _Value(maker(left.code, right.code), left.type, literal)

    def _maker(self, op: type[ast.operator], of: Any) -> Any:
        builder = self.builder
        makers: dict[type[ast.operator], Any]
        if of in _FLOATS:
            makers = {
                ast.Add: builder.fadd, ast.Sub: builder.fsub, ast.Mult: builder.fmul,
                ast.Div: builder.fdiv,
            }  # fmt: skip
        else:
            makers = {ast.BitAnd: builder.and_, ast.BitOr: builder.or_}
            if of is not types.boolean:
                makers |= {ast.Add: builder.add, ast.Sub: builder.sub, ast.Mult: builder.mul}
            if of in _SIGNED:
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

    def cast(self, value: _Value, to: Any) -> _Value:
        """A number in another type; a float beyond the whole numbers becomes the last of them."""
        if value.type == to:
            return _Value(value.code, to)
        builder, code, of = self.builder, value.code, value.type
        if to not in _LLVM:
            raise Unsupported(f"a cast to {to}")
        target = _LLVM[to]
        match (of in _FLOATS, to in _FLOATS):
            case True, True:
                wider = to == types.float64
                return _Value((builder.fpext if wider else builder.fptrunc)(code, target), to)
            case True, False:
                if to is types.boolean:
                    return self._compare("!=", value, _constant(0.0))
                sign = "s" if to in _SIGNED else "u"
                ends = f"i{target.width}.f{8 * (4 if of == types.float32 else 8)}"
                name = f"llvm.fpto{sign}i.sat.{ends}"
                return _Value(self._declared(name, target, [code]), to)
            case False, True:
                make = builder.sitofp if of in _SIGNED else builder.uitofp
                return _Value(make(code, target), to)
            case _:
                if to is types.boolean:
                    return _Value(builder.icmp_signed("!=", code, code.type(0)), to)
                if target.width > code.type.width:
                    make = builder.sext if of in _SIGNED else builder.zext
                    return _Value(make(code, target), to)
                same = target.width == code.type.width
                return _Value(code if same else builder.trunc(code, target), to)

    def _declared(self, name: str, result: Any, args: Sequence[Any]) -> Any:
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(result, [arg.type for arg in args])
            function = ir.Function(module, kind, name)
        return self.builder.call(function, args)

    # Calls

    def call(self, node: ast.Call) -> _Value | None:
        """What a function gives; None for one that only writes."""
        if node.keywords:
            raise Unsupported("keywords")
        match node.func:
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in _MATH | _OF_C:
                return self._math(name, [self.value(arg) for arg in node.args])
            case ast.Name(id="abs" | "min" | "max" as name):
                return self._plain(name, [self.value(arg) for arg in node.args])
            case ast.Name(id=name):
                return self._named(self.names.get(name), node.args)
            case _:
                raise Unsupported(ast.dump(node.func))

    def _math(self, name: str, args: list[_Value]) -> _Value:
        of = args[0].type
        if of not in _FLOATS or any(arg.type != of for arg in args):
            raise Unsupported(f"{name} of {of}")
        single = of == types.float32
        full = f"llvm.{name}.f{32 if single else 64}"
        if name in _OF_C:
            full = f"{name}f" if single else name
        return _Value(self._declared(full, _LLVM[of], [arg.code for arg in args]), of)

    def _plain(self, name: str, args: list[_Value]) -> _Value:
        builder, of = self.builder, args[0].type
        if name == "abs" and of in _FLOATS:
            full = f"llvm.fabs.f{32 if of == types.float32 else 64}"
            return _Value(self._declared(full, _LLVM[of], [args[0].code]), of)
        one, other = args if name != "abs" else (args[0], self._negative(args[0]))
        one, other = self._meet(one, other)
        if one.type not in _SIGNED:
            raise Unsupported(f"{name} of {of}")
        first = builder.icmp_signed("<" if name == "min" else ">", one.code, other.code)
        return _Value(builder.select(first, one.code, other.code), one.type)

    def _named(self, function: Any, args: Sequence[ast.expr]) -> _Value | None:
        if isinstance(function, types.Type):
            return self.cast(self.value(args[0]), function)
        if (defined := getattr(function, "_defn", None)) is not None:
            return self._intrinsic(defined, args)
        if (python := getattr(function, "py_func", None)) is not None:
            return self._written_out(python, [self.value(arg) for arg in args])
        raise Unsupported(repr(function))

    def _intrinsic(self, defined: Any, args: Sequence[ast.expr]) -> _Value | None:
        match args:
            case [ast.Tuple(elts=items)]:
                values = [self.value(item) for item in items]
                given: list[Any] = [types.UniTuple(types.int64, len(values))]
            case _:
                values = [self.value(arg) for arg in args]
                given = [value.type for value in values]
        signature, codegen = defined(None, *given)
        if isinstance(args[0], ast.Tuple):
            kind = ir.LiteralStructType([_I64] * len(values))
            packed = ir.Constant(kind, ir.Undefined)
            for k, value in enumerate(values):
                packed = self.builder.insert_value(packed, value.code, k)
            codes = [packed]
        else:
            pairs = zip(values, signature.args, strict=True)
            codes = [self.cast(value, of).code for value, of in pairs]
        found = codegen(_CONTEXT, self.builder, signature, codes)
        of = signature.return_type
        return None if of == types.void else _Value(found, of)

    def _written_out(self, python: Any, args: list[_Value]) -> _Value:
        tree = _tree_of(python)
        inner = _Writer(self.builder, {"math": math, **python.__globals__})
        for parameter, value in zip(tree.args.args, args, strict=True):
            inner.assign(parameter.arg, value)
        found = inner.statements(tree.body)
        if found is None:
            raise Unsupported(python.__name__)
        return found


def _constant(number: float) -> _Value:
    return _Value(ir.Constant(ir.DoubleType(), number), types.float64, literal=True)


def _name(target: ast.expr) -> str:
    if not isinstance(target, ast.Name):
        raise Unsupported(ast.dump(target))
    return target.id


@cache
def _tree_of(python: Any) -> ast.FunctionDef:
    try:
        tree = ast.parse(dedent(inspect.getsource(python))).body[0]
    except (OSError, TypeError) as error:  # a source that is nowhere
        raise Unsupported(python.__name__) from error
    if not isinstance(tree, ast.FunctionDef):
        raise Unsupported(python.__name__)
    return tree
