"""Scalar functions as torch computes them, element by element: `numpy_backend`'s, on tensors.

An operand is a tensor or, where the expression has a literal, a Python number. Functions of numbers
alone are NumPy's. Nothing here looks at elements, so that all of it can be traced; hence integers
to negative powers are not refused, as NumPy does, but 0 or ±1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eindecomp.kernels import elementwise
from eindecomp.kernels.torch.tensors import CARRIED, SIGN_BIT, carried, cast, literal, put_back
from eindecomp.lang.compile import with_definitions
from eindecomp.lang.dtypes import dtype, type_names
from eindecomp.lang.scalar import Number

Function = Callable[..., Any]


@lru_cache(maxsize=16)
def torch_functions(device: torch.device) -> Mapping[str, Function]:
    """The table for `compile_scalar`, whose literals become tensors of a device."""
    rounding = {name: partial(cast, to=dtype(name), device=device) for name in type_names}
    own = elementwise.on_arrays(_FUNCTIONS, Tensor, _like, _takes_numbers)
    return with_definitions(own | rounding)


def _like(value: Number, beside: Tensor) -> Tensor:
    return literal(value, beside.dtype, beside.device)


def _takes_numbers(name: str, of: torch.dtype) -> bool:
    return name == "where" or (name in _TAKE_NUMBERS and of not in CARRIED)


def _as_tensors(args: Sequence[Any], of: torch.dtype, device: torch.device) -> list[Tensor]:
    return [x if isinstance(x, Tensor) else literal(x, of, device) for x in args]


def _where(test: Any, x: Any, y: Any) -> Tensor:
    device = next(z.device for z in (test, x, y) if isinstance(z, Tensor))
    [test] = _as_tensors([test], torch.bool, device)
    types = [z.dtype for z in (x, y) if isinstance(z, Tensor)]
    of = types[0] if types else torch.from_numpy(np.array([x, y])).dtype
    x, y = _as_tensors([x, y], of, device)
    return put_back(torch.where(test, carried(x), carried(y)), of)


def _ring(function: Function) -> Function:
    """A function that is right modulo 2^64, on carried numbers too."""

    def in_ring(*args: Any) -> Any:
        of = args[0].dtype if isinstance(args[0], Tensor) else None
        if of not in CARRIED:
            return function(*args)
        return put_back(function(*map(carried, args)), of)

    return in_ring


def ordered(x: Tensor) -> Tensor:
    """A tensor as torch computes with it, flipped where that restores the order of its numbers."""
    return carried(x) ^ SIGN_BIT if x.dtype == torch.uint64 else carried(x)


def _comparing(function: Function) -> Function:
    def compared(x: Any, y: Any) -> Tensor:
        if isinstance(x, Tensor) and x.dtype in CARRIED:
            return function(ordered(x), ordered(y))
        return function(x, y)

    return compared


def extreme(function: Function, *args: Tensor) -> Tensor:
    """Apply a function that picks one of its operands by their order."""
    of = args[0].dtype
    chosen = function(*map(ordered, args))
    chosen = chosen ^ SIGN_BIT if of == torch.uint64 else chosen
    return put_back(chosen, of) if of in CARRIED else chosen


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    if x.is_floating_point():
        return elementwise.floor_divide_floats(torch, x, y, _rest(x, y))
    if x.dtype in CARRIED:
        return put_back(_quotient(x, y), x.dtype)
    # Divided by 0 it is 0, as in NumPy; the least number divided by −1 would trap the processor.
    trap = (y == 0) | (y == -1) if x.dtype.is_signed else y == 0
    quotient = torch.div(x, torch.where(trap, 1, y), rounding_mode="floor")
    quotient = torch.where(y == -1, -x, quotient) if x.dtype.is_signed else quotient
    return torch.where(y == 0, 0, quotient)


def _remainder(x: Tensor, y: Tensor) -> Tensor:
    if x.is_floating_point():
        return elementwise.remainder_of_floats(torch, y, _rest(x, y))
    over, by = carried(x), carried(y)
    rest = over - carried(_floor_divide(x, y)) * by
    return put_back(torch.where(by == 0, 0, rest), x.dtype)


def _quotient(x: Tensor, y: Tensor) -> Tensor:
    """The carried quotient of unsigned numbers, 0 by 0."""
    over, by = carried(x), carried(y)
    safe = torch.where(by <= 0, 1, by)
    half = (over >> 1) & (2**63 - 1)
    near = torch.div(half, safe, rounding_mode="floor") << 1
    rest = over - near * safe
    quotient = near + ((rest ^ SIGN_BIT) >= (safe ^ SIGN_BIT)).to(torch.int64)
    above = ((over ^ SIGN_BIT) >= (by ^ SIGN_BIT)).to(torch.int64)
    return torch.where(by == 0, 0, torch.where(by < 0, above, quotient))


def _rest(x: Tensor, y: Tensor) -> Tensor:
    """What C calls fmod, in float64: on some CPUs torch gives up where a quotient is large."""
    return torch.fmod(x.to(torch.float64), y.to(torch.float64)).to(x.dtype)


def _divide(x: Any, y: Any) -> Tensor:
    # A number divided by a tensor would be multiplied by its reciprocal.
    return torch.div(x if isinstance(x, Tensor) else torch.full_like(y, x), y)


def _sign(x: Tensor) -> Tensor:
    if x.dtype in CARRIED:
        return put_back((carried(x) != 0).to(torch.int64), x.dtype)
    return torch.where(x != x, x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_TAKE_NUMBERS = frozenset({"add", "sub", "mul", "div", "pow", *_COMPARISONS})
_ELEMENTARY = ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid")
_OF_ONE_TENSOR: Mapping[str, Callable[[Tensor], Tensor]] = {
    "abs": lambda x: torch.abs(x) if x.is_complex() or x.dtype.is_signed else x,
    "sign": _sign,
    "imag": lambda x: torch.imag(x) if x.is_complex() else torch.zeros_like(x),
    "relu": lambda x: torch.relu(x) if x.dtype.is_signed else x,
    "silu": torch.nn.functional.silu,
    # Exact in the tail, where 1 + erf would cancel.
    "gelu": lambda x: x * (0.5 * torch.erfc(x * -math.sqrt(0.5))),
}
_FUNCTIONS: Mapping[str, Function] = {
    **_OF_ONE_TENSOR,
    **{name: getattr(torch, f"logical_{name}") for name in ("or", "and", "not")},
    **{name: _comparing(getattr(operator, name)) for name in _COMPARISONS},
    **{name: _ring(getattr(operator, name)) for name in ("add", "sub", "mul")},
    "div": _divide,
    "floordiv": _floor_divide,
    "mod": _remainder,
    "neg": _ring(torch.neg),
    "pow": _ring(partial(elementwise.power, torch, literal=_like)),
    "min": partial(extreme, torch.minimum),
    "max": partial(extreme, torch.maximum),
    "where": _where,
    "real": torch.real,
    "conj": torch.conj_physical,
    **{name: getattr(torch, name) for name in _ELEMENTARY},
}
