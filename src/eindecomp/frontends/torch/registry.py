"""Which function imports which operator."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.frontends.torch.operation import Operation

Importer = Callable[..., Any]
F = TypeVar("F", bound=Importer)

OPERATORS: dict[str, Importer] = {}
"""The functions that import operators, by name: `aten.add.Tensor`, or `aten.add` for all."""

WITHOUT_EFFECT = frozenset(
    {"device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "requires_grad"}
)
"""Arguments that say where and how a tensor is stored, and change no element."""


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
        elif name not in WITHOUT_EFFECT and not _is_default(argument, value):
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
    found = inspect.signature(function).parameters.values()
    return frozenset("**" if each.kind is each.VAR_KEYWORD else each.name for each in found)


def _is_default(argument: Any, value: Any) -> bool:
    return argument.has_default_value() and bool(argument.default_value == value)
