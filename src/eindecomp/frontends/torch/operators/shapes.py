"""The same elements in other shapes and places."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Number, Operation
    from eindecomp.frontends.views import View


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


@operator("aten.permute")
def permute(op: Operation, x: View, dims: Sequence[int]) -> View:
    """Dimensions in another order."""
    return op.trace.transpose(x, [dim % len(x.dims) for dim in dims])


@operator("aten.transpose", "aten.swapaxes", "aten.swapdims")
def transpose(op: Operation, x: View, **dims: int) -> View:
    """Two dimensions in each other's place."""
    if not x.dims:
        return x
    first, second = (dim % len(x.dims) for dim in dims.values())
    order = [*range(len(x.dims))]
    order[first], order[second] = second, first
    return op.trace.transpose(x, order)


@operator("aten.t", "aten.numpy_T", "aten.mT", "aten.matrix_H")
def transposed(op: Operation, x: View) -> View:
    """A matrix transposed."""
    if len(x.dims) < 2:
        return x
    if op.name.startswith("aten.numpy_T"):
        return op.trace.transpose(x, [*reversed(range(len(x.dims)))])
    last = len(x.dims)
    return op.trace.transpose(x, [*range(last - 2), last - 1, last - 2])


@operator("aten.movedim", "aten.moveaxis")
def movedim(op: Operation, x: View, source: Any, destination: Any) -> View:
    """Dimensions moved to other places."""
    given = [[d] if isinstance(d, int) else [*d] for d in (source, destination)]
    rank = len(x.dims)
    fro, to = ([d % rank for d in each] for each in given)
    rest = iter(k for k in range(rank) if k not in fro)
    order = [fro[to.index(k)] if k in to else next(rest) for k in range(rank)]
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


def bounds(x: View, place: int, start: int | None, end: int | None) -> tuple[int, int]:
    """A range as torch reads it: from the end if negative, and cut to size."""
    size = x.shape[place]
    found = [
        default if given is None else min(max(given + size if given < 0 else given, 0), size)
        for given, default in ((start, 0), (end, size))
    ]
    return found[0], max(found)


@operator("aten.slice.Tensor")
def slice_(
    op: Operation,
    x: View,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> View:
    """A range along a dimension."""
    place = dim % len(x.dims)
    low, high = bounds(x, place, start, end)
    return op.trace.slice(x, place, low, high, step)


@operator("aten.narrow")
def narrow(op: Operation, x: View, dim: int, start: int, length: int) -> View:
    """A range along a dimension."""
    place = dim % len(x.dims)
    low = start % x.shape[place] if start < 0 else start
    return op.trace.slice(x, place, low, low + length)


@operator(
    "aten.split", "aten.split_with_sizes", "aten.chunk", "aten.tensor_split",
    "aten.unsafe_split", "aten.unsafe_chunk", "aten.split_copy",
)  # fmt: skip
def split(op: Operation, x: View, dim: int = 0, **_: Any) -> list[View]:
    """Parts one after another; their sizes are known."""
    place = dim % len(x.dims)
    found: list[View] = []
    start = 0
    for meta in op.results:
        found.append(op.trace.slice(x, place, start, start + meta.shape[place]))
        start += meta.shape[place]
    return found


@operator("aten.unbind")
def unbind(op: Operation, x: View, dim: int = 0) -> list[View]:
    """All that lies along a dimension, one by one."""
    place = dim % len(x.dims)
    return [op.trace.index(x, place, k) for k in range(x.shape[place])]


@operator("aten.cat", "aten.concat")
def cat(op: Operation, tensors: Sequence[View], dim: int = 0) -> View:
    """One after another."""
    place = dim % len(op.shape)
    parts = [op.trace.cast(t, op.dtype) for t in tensors if t.shape != (0,)]
    return op.trace.concat([t for t in parts if t.shape[place]] or parts[:1], place)


@operator("aten.stack")
def stack(op: Operation, tensors: Sequence[View], dim: int = 0) -> View:
    """One after another along a new dimension."""
    place = dim % len(op.shape)
    return op.trace.concat(
        [op.trace.unsqueeze(op.trace.cast(t, op.dtype), place) for t in tensors], place
    )


@operator("aten.repeat", "aten.tile")
def repeat(op: Operation, x: View, repeats: Sequence[int] = (), dims: Sequence[int] = ()) -> View:
    """The whole again and again along every dimension."""
    times = [*(repeats or dims)]
    times = [*(1,) * (len(x.dims) - len(times)), *times]
    shape = [*(1,) * (len(times) - len(x.dims)), *x.shape]
    apart = op.trace.reshape(x, [size for n in shape for size in (1, n)])
    pairs = zip(times, shape, strict=True)
    many = op.trace.expand(apart, [size for pair in pairs for size in pair])
    return op.trace.reshape(many, op.shape)


@operator("aten.repeat_interleave.self_int")
def repeat_interleave(
    op: Operation, x: View, repeats: int, dim: int | None = None, **_: Any
) -> View:
    """Every element again and again."""
    if dim is None:
        x, dim = op.trace.reshape(x, (prod(x.shape),)), 0
    place = dim % len(x.dims)
    wide = op.trace.unsqueeze(x, place + 1)
    shape = (*x.shape[: place + 1], repeats, *x.shape[place + 1 :])
    return op.trace.reshape(op.trace.expand(wide, shape), op.shape)


@operator("aten.flip")
def flip(op: Operation, x: View, dims: Sequence[int]) -> View:
    """Backwards along dimensions."""
    for dim in dims if x.dims else ():
        place = dim % len(x.dims)
        x = op.trace.slice(x, place, x.shape[place] - 1, -1, -1)
    return x


@operator("aten.roll")
def roll(op: Operation, x: View, shifts: Sequence[int], dims: Sequence[int] = ()) -> View:
    """Moved along dimensions, what falls out coming in at the other end."""
    if not dims:
        flat = op.trace.reshape(x, (prod(x.shape),))
        return op.trace.reshape(roll(op, flat, shifts, (0,)), op.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        place = dim % len(x.dims)
        size = x.shape[place]
        if at := -shift % size:
            ends = [op.trace.slice(x, place, at, size), op.trace.slice(x, place, 0, at)]
            x = op.trace.concat(ends, place)
    return x


@operator("aten.constant_pad_nd")
def pad_constant(op: Operation, x: View, pad: Sequence[int], value: Number = 0) -> View:
    """A number all around, or less at the ends."""
    for k, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        place = len(x.dims) - 1 - k
        low, high = max(-before, 0), x.shape[place] - max(-after, 0)
        parts = [op.trace.slice(x, place, low, high)]
        for n, at in ((before, 0), (after, len(parts) + (before > 0))):
            if n > 0:
                shape = (*x.shape[:place], n, *x.shape[place + 1 :])
                parts.insert(at, op.trace.number(value, x.dtype, shape))
        x = op.trace.concat(parts, place)
    return x


_REFLECTED = {
    "reflect": "abs(({n} - 1) - abs(({n} - 1) - abs(x - {before})))",
    "replicate": "min(max(x - {before}, 0), {n} - 1)",
    "circular": "(x - {before}) % {n}",
}


@operator("aten.pad")
def pad(
    op: Operation,
    x: View,
    pad: Sequence[int],
    mode: str = "constant",
    value: Number | None = None,
) -> View:
    """Numbers or the tensor's own elements all around."""
    if mode == "constant":
        return pad_constant(op, x, pad, value or 0)
    for k, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        place = len(x.dims) - 1 - k
        n = x.shape[place]
        places = op.trace.iota(before + n + after, "int64")
        index = op.trace.map(_REFLECTED[mode].format(n=n, before=f"({before})"), places)
        x = op.trace.take(x, place, index)
    return x


@operator("aten.diagonal")
def diagonal(op: Operation, x: View, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
    """The elements at equal indices of two dimensions, which become the last one."""
    from eindecomp.frontends.join import Read

    first, second = dim1 % len(x.dims), dim2 % len(x.dims)
    size = op.shape[-1]
    x = op.trace.slice(x, first, max(-offset, 0), max(-offset, 0) + size)
    x = op.trace.slice(x, second, max(offset, 0), max(offset, 0) + size)
    symbols = [*range(len(x.dims))]
    symbols[second] = first
    output = [k for k in range(len(x.dims)) if k not in (first, second)]
    return op.trace.einsum([Read(x, tuple(symbols))], [*output, first], None, None)


@operator("aten.diff")
def diff(
    op: Operation,
    x: View,
    n: int = 1,
    dim: int = -1,
    prepend: View | None = None,
    append: View | None = None,
) -> View:
    """Differences of neighbours."""
    place = dim % len(x.dims)
    parts = [op.trace.cast(p, x.dtype) for p in (prepend, x, append) if p is not None]
    x = op.trace.concat(parts, place) if len(parts) > 1 else x
    join = "x != y" if x.dtype.name == "bool" else "x - y"
    for _ in range(n):
        size = x.shape[place]
        after, before = op.trace.slice(x, place, 1, size), op.trace.slice(x, place, 0, size - 1)
        x = op.trace.map(join, after, before)
    return x
