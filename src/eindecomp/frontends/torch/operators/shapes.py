"""Tensors from nothing, and the same elements in other shapes, places and types."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from eindecomp.frontends.draft import View
from eindecomp.frontends.join import Indexed
from eindecomp.frontends.operations import (
    cut_apart,
    moved_around,
    padded,
    placed,
    reversed_along,
    stacked,
)
from eindecomp.frontends.torch.registry import Number, Operation, operator
from eindecomp.frontends.windows import around
from eindecomp.lang.index import CLAMP


@operator(
    "aten.zeros", "aten.zeros_like", "aten.new_zeros", "aten.zero", "aten.empty", "aten.empty_like",
    "aten.new_empty", "aten.empty_strided", "aten.ones", "aten.ones_like", "aten.new_ones",
)  # fmt: skip
def zeros_or_ones(op: Operation, **_: Any) -> View:
    """Zeros, or ones."""
    return op.trace.number(int("ones" in op.name), op.dtype, op.shape)


_WRITTEN = {"fill": "value", "copy": "src", "scalar_tensor": "s"}


@operator(
    "aten.full", "aten.full_like", "aten.new_full", "aten.scalar_tensor", "aten.fill", "aten.copy"
)
def full(op: Operation, **given: Any) -> View:
    """One number, or a tensor, in the place of all."""
    value = given[_WRITTEN.get(op.short, "fill_value")]
    return op.trace.expand(op.array(value, op.dtype), op.shape)


@operator("aten.arange")
def arange(op: Operation, end: Number, start: Number = 0, step: Number = 1, **_: Any) -> View:
    """Numbers in steps; how many is known."""
    del end
    return op.trace.iota(op.shape[0], op.dtype, start, step)


@operator(
    "aten.to", "aten._to_copy", "aten.type_as", "aten._autocast_to_reduced_precision",
    "aten._autocast_to_full_precision", "prims.convert_element_type",
)  # fmt: skip
def converted(op: Operation, **given: Any) -> View:
    """The same values in another type."""
    return op.trace.cast(next(iter(given.values())), op.dtype)


@operator(
    "aten.detach", "aten.detach_", "aten.alias", "aten.clone", "aten.contiguous", "aten.lift",
    "aten.lift_fresh", "aten.lift_fresh_copy", "aten.view_copy", "aten.cpu", "aten.cuda",
    "aten.resolve_conj", "aten.resolve_neg", "aten.requires_grad_",
)  # fmt: skip
def same(op: Operation, x: View, **_: Any) -> View:
    """The same."""
    del op
    return x


@operator(
    "aten.view.default", "aten.reshape", "aten._unsafe_view", "aten.flatten", "aten.unflatten",
    "aten.view_as", "aten.reshape_as", "aten._reshape_copy", "aten.ravel",
)  # fmt: skip
def reshape(op: Operation, x: View, **_: Any) -> View:
    """Another shape, which is known."""
    return op.trace.reshape(x, op.shape)


@operator("aten.expand", "aten.expand_as", "aten.broadcast_to")
def expand(op: Operation, x: View, **_: Any) -> View:
    """Repeated up to a shape."""
    return op.trace.expand(x, op.shape)


@operator("prims.broadcast_in_dim")
def broadcast_in_dim(op: Operation, a: View, broadcast_dimensions: Sequence[int], **_: Any) -> View:
    """Repeated up to a shape of which its dimensions are some."""
    return placed(op.trace, a, broadcast_dimensions, op.shape)


@operator("aten.permute")
def permute(op: Operation, x: View, dims: Sequence[int]) -> View:
    """Dimensions in another order."""
    return op.trace.transpose(x, [dim % len(x.dims) for dim in dims])


@operator("aten.transpose", "aten.t")
def transpose(op: Operation, x: View, dim0: int = 0, dim1: int = 1) -> View:
    """Two dimensions in each other's place."""
    if len(x.dims) < 2:
        return x
    order = [*range(len(x.dims))]
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return op.trace.transpose(x, order)


@operator("aten.unsqueeze")
def unsqueeze(op: Operation, x: View, dim: int) -> View:
    """A dimension of size 1 more."""
    return op.trace.unsqueeze(x, dim % (len(x.dims) + 1))


@operator("aten.squeeze")
def squeeze(op: Operation, x: View, dim: int | Sequence[int] | None = None) -> View:
    """Without dimensions of size 1."""
    rank = max(len(x.dims), 1)
    given = range(len(x.dims)) if dim is None else [dim] if isinstance(dim, int) else dim
    return op.trace.squeeze(x, [d % rank for d in given if x.dims and x.shape[d] == 1])


@operator("aten.select.int")
def select(op: Operation, x: View, dim: int, index: int) -> View:
    """What lies at one index."""
    place = dim % len(x.dims)
    return op.trace.index(x, place, index % x.shape[place])


End = int | None


def bounds(x: View, place: int, start: End, end: End) -> tuple[int, int]:
    """A range as torch reads it: from the end if negative, and cut to size."""
    low, high, _ = slice(start, end).indices(x.shape[place])
    return low, max(low, high)


@operator("aten.slice.Tensor")
def slice_(
    op: Operation, x: View, dim: int = 0, start: End = None, end: End = None, step: int = 1
) -> View:
    """A range along a dimension."""
    place = dim % len(x.dims)
    return op.trace.slice(x, place, *bounds(x, place, start, end), step)


@operator(
    "aten.split", "aten.split_with_sizes", "aten.chunk", "aten.tensor_split",
    "aten.unsafe_split", "aten.unsafe_chunk", "aten.split_copy",
)  # fmt: skip
def split(op: Operation, x: View, dim: int = 0, **_: Any) -> list[View]:
    """Parts one after another; their sizes are known."""
    place = dim % len(x.dims)
    return cut_apart(op.trace, x, place, [meta.shape[place] for meta in op.results])


@operator("aten.cat")
def cat(op: Operation, tensors: Sequence[View], dim: int = 0) -> View:
    """One after another."""
    place = dim % len(op.shape)
    parts = [op.trace.cast(t, op.dtype) for t in tensors if t.shape != (0,)]
    return op.trace.concat([t for t in parts if t.shape[place]] or parts[:1], place)


@operator("aten.stack")
def stack(op: Operation, tensors: Sequence[View], dim: int = 0) -> View:
    """One after another along a new dimension."""
    parts = [op.trace.cast(tensor, op.dtype) for tensor in tensors]
    return stacked(op.trace, parts, dim % len(op.shape))


@operator("aten.flip")
def flip(op: Operation, x: View, dims: Sequence[int]) -> View:
    """Backwards along dimensions."""
    return reversed_along(op.trace, x, [dim % len(x.dims) for dim in dims if x.dims])


@operator("aten.roll")
def roll(op: Operation, x: View, shifts: Sequence[int], dims: Sequence[int] = ()) -> View:
    """Moved along dimensions, what falls out coming in at the other end."""
    if not dims:
        flat = op.trace.reshape(x, (prod(x.shape),))
        return op.trace.reshape(roll(op, flat, shifts, (0,)), op.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        place = dim % len(x.dims)
        size = x.shape[place]
        x = moved_around(op.trace, x, place, -shift % (size or 1), size)
    return x


@operator("aten.pad", "aten.constant_pad_nd")
def pad(
    op: Operation, x: View, pad: Sequence[int], mode: str = "constant", value: Number | None = None
) -> View:
    """Numbers or the tensor's own elements all around, or less at the ends."""
    ends = zip(pad[::2], pad[1::2], strict=True)
    places = {len(x.dims) - 1 - k: own for k, own in enumerate(ends)}
    if mode == "constant":
        return padded(op.trace, x, op.array(value or 0, x.dtype), places)
    if mode == "replicate":
        by = {k: around(x.shape[k], *own, outside=CLAMP) for k, own in places.items()}
        return op.trace.seen(x, by)
    for place, (before, after) in places.items():
        n = x.shape[place]
        size = before + n + after
        if mode == "circular":
            x = moved_around(op.trace, x, place, -before, size)
        else:
            index = f"abs({n - 1} - abs({n - 1} - abs(x - {before})))"
            x = op.trace.take(x, place, op.trace.map(index, op.trace.iota(size, "int64")))
    return x


@operator("aten.diagonal")
def diagonal(op: Operation, x: View, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
    """The elements at equal indices of two dimensions, which become the last one."""
    first, second = dim1 % len(x.dims), dim2 % len(x.dims)
    for place, start in ((first, max(-offset, 0)), (second, max(offset, 0))):
        x = op.trace.slice(x, place, start, start + op.shape[-1])
    symbols = [*range(len(x.dims))]
    symbols[second] = first
    output = [k for k in range(len(x.dims)) if k not in (first, second)]
    return op.trace.einsum([Indexed(x, tuple(symbols))], [*output, first], None, None)
