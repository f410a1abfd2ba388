"""From the source of a kernel to LLVM's code.

Generated source is plain: loops over whole numbers, numbers of known types, functions of our own.
Those in `intrinsics` say how they are written in LLVM's terms; those in `functions` are written out
where they are called.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, reduce
from textwrap import dedent
from typing import Any, cast

import numpy as np

from eindecomp.kernels.cpu.compiling.intrinsics import Intrinsic, of_c
from eindecomp.kernels.cpu.compiling.numbers import (
    COMPLEX,
    FLOATS,
    INT64,
    LLVM,
    SIGNED,
    IrValue,
    Numbers,
    Unsupported,
    constant,
    ir,
)
from eindecomp.lang.dtypes import BOOL, DType

_I1, _I64 = ir.IntType(1), ir.IntType(64)
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_MATH = {"exp", "log", "sqrt", "sin", "cos", "tanh", "pow"}
"""Functions that LLVM knows; most of them become calls of the C library."""


def assemble(source: str, name: str, names: Mapping[str, Any]) -> str:
    """The text of an LLVM module with the function `kernel` of a source, under a new name."""
    tree = ast.parse(source).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise Unsupported("no function")
    module = ir.Module(name)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64]), name)
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    writer = _LlvmWriter(builder, names)
    writer.assign(tree.args.args[0].arg, IrValue(function.args[0], INT64))
    writer.statements(tree.body)
    builder.ret_void()
    return str(module)


class _LlvmWriter:
    """Writes one scope: a kernel's, or that of a function that is written out."""

    def __init__(self, builder: Any, names: Mapping[str, Any]) -> None:
        self.builder, self.names = builder, names
        self.numbers = Numbers(builder)
        self.variables: dict[str, tuple[Any, Any]] = {}

    # Statements

    def statements(self, body: Sequence[ast.stmt]) -> IrValue | None:
        """Write statements; returns the value of the `return` that may end them."""
        for number, statement in enumerate(body):
            match statement:
                case ast.Return(value=ast.expr() as value) if number == len(body) - 1:
                    return self.value(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.assign(name, self.value(value))
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                    assigned = [self.value(value) for value in values]
                    for target, value in zip(targets, assigned, strict=True):
                        self.assign(_name(target), value)
                case ast.AugAssign(target=target, op=op, value=value):
                    old = self.value(ast.Name(_name(target)))
                    self.assign(_name(target), self.numbers.binary(op, old, self.value(value)))
                case ast.For(target=target, iter=ast.Call(func=ast.Name(id="range"), args=args)):
                    self._for(_name(target), [self.value(arg) for arg in args], statement.body)
                case ast.While(test=test, body=inner):
                    with self._loop(lambda: self.numbers.truth(self.value(test))):
                        self._inner(inner)
                case ast.If(test=test, body=then, orelse=[]):
                    with self.builder.if_then(self.numbers.truth(self.value(test))):
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

    def assign(self, name: str, value: IrValue) -> None:
        """Give a variable a value; its first value sets its type."""
        if name not in self.variables:
            with self.builder.goto_entry_block():
                place = self.builder.alloca(LLVM[value.type])
            self.variables[name] = (place, value.type)
        place, of = self.variables[name]
        if of != value.type:
            raise Unsupported(f"{name} changes its type")
        self.builder.store(value.code, place)

    def _for(self, name: str, bounds: list[IrValue], body: Sequence[ast.stmt]) -> None:
        builder = self.builder
        start = bounds[0].code if len(bounds) > 1 else _I64(0)
        stop = bounds[min(1, len(bounds) - 1)].code
        step = bounds[2].code if len(bounds) > 2 else _I64(1)
        if not isinstance(step, ir.Constant):
            raise Unsupported("a step that varies")
        with builder.goto_entry_block():
            place = builder.alloca(_I64)
        builder.store(start, place)
        sign = "<" if step.constant > 0 else ">"
        with self._loop(lambda: builder.icmp_signed(sign, builder.load(place), stop)):
            index = builder.load(place)
            self.assign(name, IrValue(index, INT64))
            self._inner(body)
            builder.store(builder.add(index, step, flags=("nsw",)), place)

    @contextmanager
    def _loop(self, test: Callable[[], Any]) -> Generator[None]:
        """Repeat what is written inside while a condition holds."""
        builder = self.builder
        head, inner, after = (builder.append_basic_block(b) for b in ("head", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(test(), inner, after)
        builder.position_at_end(inner)
        yield
        builder.branch(head)
        builder.position_at_end(after)

    # Expressions

    def value(self, node: ast.expr) -> IrValue:
        """The value of an expression."""
        match node:
            case ast.Constant() | ast.Name():
                return self._leaf(node)
            case ast.Attribute(value=inner, attr="real" | "imag" as name):
                return self.numbers.parts(self.value(inner))[name == "imag"]
            case ast.BinOp(left=left, op=op, right=right):
                return self.numbers.binary(op, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.numbers.negative(self.value(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return IrValue(self.builder.not_(self.numbers.truth(self.value(operand))), BOOL)
            case ast.BoolOp(op=ast.And(), values=values):
                # All are computed, since none has side effects.
                truths = [self.numbers.truth(self.value(value)) for value in values]
                return IrValue(reduce(self.builder.and_, truths), BOOL)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                sign = _COMPARISONS[type(op)]
                return self.numbers.compare(sign, self.value(left), self.value(right))
            case ast.IfExp(test=test, body=left, orelse=right):
                one, other = self.numbers.meet(self.value(left), self.value(right))
                truth = self.numbers.truth(self.value(test))
                return IrValue(self.builder.select(truth, one.code, other.code), one.type)
            case ast.Call() if (returned := self.call(node)) is not None:
                return returned
            case _:
                raise Unsupported(ast.dump(node))

    def _leaf(self, node: ast.expr) -> IrValue:
        match node:
            case ast.Constant(value=bool() as number):
                return IrValue(_I1(int(number)), BOOL)
            case ast.Constant(value=int() as number):
                return IrValue(_I64(number), INT64, literal=True)
            case ast.Constant(value=float() as number):
                return constant(number)
            case ast.Name(id=name) if name in self.variables:
                place, of = self.variables[name]
                return IrValue(self.builder.load(place), of)
            case ast.Name(id=name) if isinstance(self.names.get(name), float):
                return constant(self.names[name])
            case _:
                raise Unsupported(ast.dump(node))

    # Calls

    def call(self, node: ast.Call) -> IrValue | None:
        """The value of a call; None for a function that only writes."""
        args: list[IrValue] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):  # a table of numbers
                args += map(constant, self.names[_name(arg.value)])
            else:
                args.append(self.value(arg))
        match node.func:
            case ast.Attribute(value=ast.Name(id="math"), attr="erf" | "erfc" as name):
                return of_c(self.numbers, name, args)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in _MATH:
                of = args[0].type
                full = f"llvm.{name}.f{8 * of.itemsize}"
                codes = [arg.code for arg in args]
                return IrValue(self.numbers.declared(full, LLVM[of], codes), of)
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in _MATH:
                return of_c(self.numbers, f"c{name}", args)
            case ast.Attribute(value=inner, attr="conjugate"):
                real, imaginary = self.numbers.parts(self.value(inner))
                return self.numbers.complex(real, self.numbers.negative(imaginary))
            case ast.Name(id="complex"):
                return self.numbers.complex(*args)
            case ast.Name(id="abs" | "min" | "max" as name):
                return self._plain(name, args)
            case ast.Name(id=name):
                return self._named(self.names.get(name), args)
            case _:
                raise Unsupported(ast.dump(node.func))

    def _plain(self, name: str, args: list[IrValue]) -> IrValue:
        of = args[0].type
        if of in COMPLEX:
            return of_c(self.numbers, "hypot", self.numbers.parts(args[0]))
        if of in FLOATS:
            full = f"llvm.fabs.f{8 * of.itemsize}"
            return IrValue(self.numbers.declared(full, LLVM[of], [args[0].code]), of)
        one, other = args if name != "abs" else (args[0], self.numbers.negative(args[0]))
        one, other = self.numbers.meet(one, other)
        if one.type not in SIGNED:
            raise Unsupported(f"{name} of {of}")
        sign = "<" if name == "min" else ">"
        first = self.builder.icmp_signed(sign, one.code, other.code)
        return IrValue(self.builder.select(first, one.code, other.code), one.type)

    def _named(self, function: Any, args: list[IrValue]) -> IrValue | None:
        if isinstance(function, np.dtype):
            return self.numbers.cast(args[0], cast("DType", function))
        if isinstance(function, Intrinsic):
            return function.emit(self.numbers, *args)
        if inspect.isfunction(function):
            return self._written_out(function, args)
        raise Unsupported(repr(function))

    def _written_out(self, python: Any, args: list[IrValue]) -> IrValue:
        tree = _tree_of(python)
        inner = _LlvmWriter(self.builder, python.__globals__)
        for parameter, value in zip(tree.args.args, args, strict=True):
            inner.assign(parameter.arg, value)
        returned = inner.statements(tree.body)
        if returned is None:
            raise Unsupported(python.__name__)
        return returned


def _name(target: ast.expr) -> str:
    if not isinstance(target, ast.Name):
        raise Unsupported(ast.dump(target))
    return target.id


@cache
def _tree_of(python: Any) -> ast.FunctionDef:
    tree = ast.parse(dedent(inspect.getsource(python))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise Unsupported(python.__name__)
    return tree
