"""Torch's tensors as kernels see them: their elements by type, their dimensions by label.

Of uint16, uint32 and uint64 torch stores, copies and converts tensors, but hardly computes with
them. So they are *carried* as int64: the two narrow ones by value, uint64 by its bits. Sums,
products and differences of carried numbers are right modulo 2^64 and wrap around when they are put
back; where order matters, the sign bit of a carried uint64 is flipped first. Conversions between
all types follow the rule of `numpy_backend.cast`, on every device alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eindecomp.lang.dtypes import (
    BFLOAT16,
    LOW_PRECISION,
    Array,
    DType,
    Kind,
    dtype,
    kind,
    type_names,
)
from eindecomp.lang.einsum import Labels
from eindecomp.lang.numpy_backend import cast as cast_number
from eindecomp.lang.scalar import Number

LabelBox = Mapping[str, tuple[int, int]]
"""Where a window begins along a label, and how long it is."""

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


def as_array(x: Tensor) -> Array:
    """The elements of a tensor on the CPU as NumPy's array, which shares their memory."""
    x = x.detach() if x.requires_grad else x
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(BFLOAT16)
    return x.numpy()


def cast(x: Tensor | Number, to: DType, device: torch.device) -> Tensor:
    """Convert a tensor, or make a number one without dimensions.

    >>> cast(torch.tensor([-1.5, 300.7, torch.nan]), np.dtype("uint8"), torch.device("cpu"))
    tensor([  0, 255,   0], dtype=torch.uint8)
    """
    if not isinstance(x, Tensor):
        with np.errstate(all="ignore"):
            number = cast_number(x, to)
            wide = number.astype(np.float32) if to in LOW_PRECISION else number
        return literal(wide.item(), torch_type(to), device)
    target = torch_type(to)
    if x.dtype == target:
        return x
    if x.is_complex() and kind(to) not in (Kind.BOOL, Kind.COMPLEX):
        x = torch.real(x)
    if x.is_floating_point() and kind(to) is Kind.INT:
        return _to_integer(x, to)
    if x.dtype == torch.float64 and target == torch.float16:
        x = _to_odd(x)
    return x.to(target)


def _to_integer(x: Tensor, to: DType) -> Tensor:
    """Truncated, and the nearest integer where the type's range ends; NaN is 0."""
    limits = np.iinfo(to.name)
    target = torch_type(to)
    held = torch.int64 if target in CARRIED else target
    low, end = int(limits.min), int(limits.max) + 1
    whole = torch.trunc(x)
    inside = torch.where((whole >= low) & (whole < float(end)), whole, 0.0)
    integers = _bits_of_unsigned(inside) if target == torch.uint64 else inside.to(held)
    most = -1 if target == torch.uint64 else end - 1
    integers = torch.where(whole >= float(end), torch.full_like(integers, most), integers)
    integers = torch.where(whole < low, torch.full_like(integers, low), integers)
    return put_back(integers, target) if target in CARRIED else integers


def _bits_of_unsigned(x: Tensor) -> Tensor:
    """Floats from 0 to 2^64 as carried uint64: C converts only those below 2^63 everywhere."""
    large = x >= 2.0**63
    bits = torch.where(large, x - 2.0**63, x).to(torch.int64)
    return torch.where(large, bits ^ SIGN_BIT, bits)


def _to_odd(x: Tensor) -> Tensor:
    """A float64 as the float32 that rounds to the same float16: inexact ones get an odd mantissa.

    Torch rounds twice on its way, first to float32, which may make a tie of what was none.
    """
    near = x.to(torch.float32)
    back = near.to(torch.float64)
    bits = near.view(torch.int32)
    below = torch.where(back.abs() > x.abs(), bits - 1, bits)
    return torch.where(back == x, bits, below | 1).view(torch.float32)


def aligned(x: Tensor, labels: Labels, space: Labels) -> Tensor:
    """A view with a dimension for each label of a space, of size 1 where the tensor has none."""
    x = x.permute([labels.index(label) for label in space if label in labels])
    for k, label in enumerate(space):
        if label not in labels:
            x = x.unsqueeze(k)
    return x


def window(x: Tensor, labels: Labels, box: LabelBox) -> Tensor:
    """The part of a tensor that lies in a box."""
    for k, label in enumerate(labels):
        start, length = box[label]
        if length != x.shape[k]:
            x = x.narrow(k, start, length)
    return x


def expanded(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor repeated to a shape."""
    return x if tuple(x.shape) == tuple(shape) else x.expand(shape)
