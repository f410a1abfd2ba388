"""Compiling scalar expressions to functions of a backend.

A backend is a table from the names in `scalar.FUNCTIONS` to callables. The function that comes out
is ordinary Python byte code calling that table, built from a syntax tree node by node (no text of
the user's is ever evaluated), so that NumPy, torch and jax can call it on arrays and numba can
compile it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from eindecomp.lang.scalar import DEFINITIONS, FUNCTIONS, Arg, Call, Const, Expr, Scalar, Tuple


def compile_scalar(
    expr: Expr, arity: int, backend: Mapping[str, Callable[..., Any]], scalars: Sequence[str] = ()
) -> Callable[..., Any]:
    """Make a function of `arity` inputs, then of the named run-time scalars.

    >>> from eindecomp.lang.numpy_backend import NUMPY
    >>> from eindecomp.lang.scalar import call
    >>> compile_scalar(call("max", Arg(0), call("abs", Arg(1))), 2, NUMPY)(1.0, -3.0).item()
    3.0
    """
    parameters = [*(f"arg{k}" for k in range(arity)), *(f"scalar_{name}" for name in scalars)]
    names = [ast.arg(arg=name) for name in parameters]
    inputs = ast.arguments(posonlyargs=[], args=names, kwonlyargs=[], kw_defaults=[], defaults=[])
    function = ast.Lambda(args=inputs, body=_node(expr))
    module = compile(ast.fix_missing_locations(ast.Expression(function)), "<scalar>", "eval")
    [code] = [const for const in module.co_consts if isinstance(const, CodeType)]
    # No builtins: the code can call nothing but the backend's table.
    return FunctionType(code, {"__builtins__": {}, **{f"op_{n}": op for n, op in backend.items()}})


def with_definitions(backend: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """A backend's table and, compiled, those functions it lacks that `DEFINITIONS` has."""
    complete = dict(backend)
    for name, definition in DEFINITIONS.items():
        if name not in complete:
            complete[name] = compile_scalar(definition, FUNCTIONS[name].arity, complete)
    return complete


def _node(expr: Expr) -> ast.expr:
    match expr:
        case Arg(index):
            return ast.Name(id=f"arg{index}", ctx=ast.Load())
        case Scalar(name):
            return ast.Name(id=f"scalar_{name}", ctx=ast.Load())
        case Const(value):
            return ast.Constant(value)
        case Tuple(items):
            return ast.Tuple(elts=[_node(item) for item in items], ctx=ast.Load())
        case Call(op, args):
            function = ast.Name(id=f"op_{op}", ctx=ast.Load())
            return ast.Call(func=function, args=[_node(arg) for arg in args], keywords=[])
