"""Torch's element types, and how the unsigned ones that torch cannot compute with are carried.

Of uint16, uint32 and uint64 torch stores, copies and converts tensors, but hardly computes with
them. So they are *carried* as int64: the two narrow ones by value, uint64 by its bits. Sums,
products and differences of carried numbers are right modulo 2^64 and wrap around when they are put
back; where order matters, the sign bit of a carried uint64 is flipped first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from eindecomp.lang.dtypes import dtype, type_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.scalar import Number

_TORCH: Mapping[DType, torch.dtype] = {dtype(name): getattr(torch, name) for name in type_names}
CARRIED = frozenset({torch.uint16, torch.uint32, torch.uint64})
LOW = frozenset({torch.float16, torch.bfloat16})
SIGN_BIT = -(2**63)


def torch_type(of: DType) -> torch.dtype:
    """Torch's name of a type.

    >>> torch_type(dtype("bfloat16"))
    torch.bfloat16
    """
    return _TORCH[of]


def carried(x: Tensor) -> Tensor:
    """A tensor as torch computes with it."""
    if x.dtype == torch.uint64:
        return x.view(torch.int64)
    return x.to(torch.int64) if x.dtype in CARRIED else x


def put_back(x: Tensor, of: torch.dtype) -> Tensor:
    """A carried tensor as one of its own type, wrapped around."""
    return x.view(of) if of == torch.uint64 else x.to(of)


def literal(value: Number, of: torch.dtype, device: torch.device) -> Tensor:
    """A number of a type, as a tensor without dimensions."""
    if of != torch.uint64:
        return torch.full((), value, dtype=of, device=device)
    bits = int(value.real)
    signed = bits - 2**64 if bits >= 2**63 else bits
    return torch.full((), signed, dtype=torch.int64, device=device).view(of)


def as_tensor(given: Any, of: DType, device: torch.device) -> Tensor:
    """A number, or a tensor without dimensions, as such a tensor of a type."""
    if isinstance(given, Tensor):
        given = given if given.device.type == device.type else given.to(device)
        return given.to(torch_type(of))
    number = given.item() if hasattr(given, "item") else given
    return literal(number, torch_type(of), device)
