"""Which function imports which operator."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import _prims_common

from eindecomp.errors import GraphError
from eindecomp.frontends.draft import View
from eindecomp.frontends.trace import Trace
from eindecomp.lang.dtypes import LOW_PRECISION, DType, Kind, dtype, kind, type_names
from eindecomp.lang.scalar import Expr

Importer = Callable[..., Any]
F = TypeVar("F", bound=Importer)

OPERATORS: dict[str, Importer] = {}
"""The functions that import operators, by name: `aten.add.Tensor`, or `aten.add` for all."""

WITHOUT_EFFECT = frozenset(
    {"device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "requires_grad"}
)
"""Arguments that say where and how a tensor is stored, and change no element."""


def number(value: Number) -> str:
    """A number as a join writes it.

    >>> number(-0.5), number(True)
    ('(-0.5)', '(true)')
    """
    return f"({str(value).lower()})"


def operator(*names: str) -> Callable[[F], F]:
    """Let a function import operators; see `register_torch_operator`."""

    def registered(function: F) -> F:
        for name in names:
            OPERATORS[name] = function
        return function

    return registered


def register_torch_operator(name: str, function: Importer) -> None:
    """Let a function import an operator, such as one of your own.

    It gets an `Operation`, and the operator's arguments by their names in its schema: tensors as
    views, `self` and `input` as `x`, a name of a Python builtin with an underscore after it. It
    returns a view, or a list of them. An argument that it does not take must have its default,
    unless it takes any by `**`.

    >>> def cubed(op, x):
    ...     return op.map("x**3", x)
    >>> register_torch_operator("mylib.cubed.default", cubed)
    """
    OPERATORS[name] = function


def find_operator(name: str) -> Importer | None:
    """The function that imports an operator, if there is one."""
    return OPERATORS.get(name) or OPERATORS.get(name.rpartition(".")[0])


def call_operator(
    function: Importer, op: Operation, schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """What a function makes of a call, whose arguments are bound by the operator's schema."""
    taken = _parameters(function)
    takes_all = "**" in taken
    bound: dict[str, Any] = {}
    for k, argument in enumerate(schema.arguments):
        name = argument.name
        if k < len(args) and not argument.kwarg_only:
            value = args[k]
        elif name in kwargs:
            value = kwargs[name]
        else:
            continue
        own = parameter_name(name)
        if takes_all or own in taken:
            bound[own] = value
        elif name not in WITHOUT_EFFECT and not (
            argument.has_default_value() and bool(argument.default_value == value)
        ):
            raise op.refuse(f"is not imported with {name}={value!r}")
    return function(op, **bound)


def parameter_name(name: str) -> str:
    """What an argument of a schema is called as a parameter of a function.

    >>> parameter_name("self"), parameter_name("min"), parameter_name("other")
    ('x', 'min_', 'other')
    """
    if name in ("self", "input"):
        return "x"
    return f"{name}_" if hasattr(builtins, name) else name


@cache
def _parameters(function: Importer) -> frozenset[str]:
    parameters = inspect.signature(function).parameters.values()
    return frozenset("**" if each.kind is each.VAR_KEYWORD else each.name for each in parameters)


Number = bool | int | float | complex
Operand = View | Number
"""A tensor, or a Python number, whose type gives way to that of tensors."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The shape and type of a result."""

    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Operation:
    """What a function that imports an operator gets besides the operator's arguments.

    `trace` adds vertices; `results` are shape and type of each tensor that the operator returns.
    """

    name: str
    trace: Trace
    results: tuple[Meta, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result."""
        return self.results[0].shape

    @property
    def dtype(self) -> DType:
        """The type of the first result."""
        return self.results[0].dtype

    @property
    def short(self) -> str:
        """Its name without namespace, overload and the underscores around it: `add`."""
        return self.name.split(".")[1].strip("_")

    def refuse(self, why: str) -> GraphError:
        """The error that says why a call cannot be imported."""
        return GraphError(f"{self.name} {why}")

    def array(self, operand: Operand, to: object) -> View:
        """An operand as an array of a type."""
        if isinstance(operand, View):
            return self.trace.cast(operand, to)
        return self.trace.number(operand, to)

    def map(self, join: str | Expr, *operands: Operand, to: object = None) -> View:
        """A function of elements, computed in the operands' common type, as the result's type."""
        common = common_type(*operands)
        arrays = [self.array(operand, common) for operand in operands]
        return self.trace.map(join, *arrays, dtype=to or self.dtype)

    def fraction(self, join: str | Expr, x: Operand) -> View:
        """A function that yields fractions, of whole numbers too."""
        given = self.array(x, x.dtype if isinstance(x, View) else self.dtype)
        if kind(given.dtype) < Kind.FLOAT:
            given = self.trace.cast(given, self.dtype)
        return self.trace.map(join, given, dtype=self.dtype)

    def wide(self, array: View) -> View:
        """An array in the type that sums of its type are kept in."""
        return self.trace.cast(array, "float32") if array.dtype in LOW_PRECISION else array


def own_type(given: torch.dtype) -> DType:
    """The type of a torch type."""
    name = str(given).removeprefix("torch.")
    if name not in type_names:
        raise GraphError(f"tensors of {given} are not imported; types are {', '.join(type_names)}")
    return dtype(name)


def common_type(*operands: Operand) -> DType:
    """The type that torch computes in for these operands; numbers and scalars give way."""
    given = [
        torch.empty((1,) * bool(own.dims), dtype=getattr(torch, own.dtype.name), device="meta")
        if isinstance(own, View)
        else own
        for own in operands
    ]
    common: Any = _prims_common
    kinds = common.ELEMENTWISE_TYPE_PROMOTION_KIND
    return own_type(common.elementwise_dtypes(*given, type_promotion_kind=kinds.NO_OPMATH)[1])
