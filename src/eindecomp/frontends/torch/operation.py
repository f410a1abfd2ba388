"""`Operation`: one call of an operator, as the function that imports it sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import _prims_common

from eindecomp.errors import GraphError
from eindecomp.frontends.views import View
from eindecomp.lang.dtypes import LOW_PRECISION, DType, Kind, dtype, kind, type_names

if TYPE_CHECKING:
    from eindecomp.frontends.trace import Trace
    from eindecomp.lang.scalar import Expr

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

    def refuse(self, why: str) -> GraphError:
        """The error that says why a call cannot be imported."""
        return GraphError(f"{self.name} {why}")

    def promoted(self, *operands: Operand) -> list[View]:
        """Operands as arrays of their common type, by torch's rules."""
        common = common_type(*operands)
        return [self.array(operand, common) for operand in operands]

    def array(self, operand: Operand, to: object) -> View:
        """An operand as an array of a type."""
        if isinstance(operand, View):
            return self.trace.cast(operand, to)
        return self.trace.number(operand, to)

    def map(self, join: str | Expr, *operands: Operand, to: object = None) -> View:
        """A function of elements, computed in the operands' common type, as the result's type."""
        return self.trace.map(join, *self.promoted(*operands), dtype=to or self.dtype)

    def fraction(self, join: str | Expr, x: Operand) -> View:
        """A function that yields fractions, of whole numbers too."""
        given = self.array(x, x.dtype if isinstance(x, View) else self.dtype)
        if kind(given.dtype) < Kind.FLOAT:
            given = self.trace.cast(given, self.dtype)
        return self.trace.map(join, given, dtype=self.dtype)

    def wide(self, array: View) -> View:
        """An array in the type that sums of its type are kept in."""
        return self.trace.cast(array, "float32") if array.dtype in LOW_PRECISION else array


def torch_type(given: DType) -> torch.dtype:
    """The torch type of a type."""
    return getattr(torch, given.name)


def own_type(given: torch.dtype) -> DType:
    """The type of a torch type."""
    name = str(given).removeprefix("torch.")
    if name not in type_names:
        raise GraphError(f"tensors of {given} are not imported; types are {', '.join(type_names)}")
    return dtype(name)


def common_type(*operands: Operand) -> DType:
    """The type that torch computes in for these operands; numbers and scalars give way."""
    keys = tuple(
        (operand.dtype.name, bool(operand.dims)) if isinstance(operand, View) else type(operand)
        for operand in operands
    )
    return _common(keys)


@lru_cache(maxsize=2**12)
def _common(keys: tuple[Any, ...]) -> DType:
    given = [key(1) if isinstance(key, type) else _example(*key) for key in keys]
    common: Any = _prims_common
    kinds = common.ELEMENTWISE_TYPE_PROMOTION_KIND
    return own_type(common.elementwise_dtypes(*given, type_promotion_kind=kinds.NO_OPMATH)[1])


def _example(name: str, has_dims: bool) -> torch.Tensor:
    return torch.empty((1,) * has_dims, dtype=getattr(torch, name), device="meta")
