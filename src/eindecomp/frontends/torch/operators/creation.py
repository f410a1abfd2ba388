"""Tensors from nothing: constants, ranges, triangles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Number, Operation
    from eindecomp.frontends.views import View


@operator("aten.full", "aten.full_like", "aten.new_full")
def full(op: Operation, fill_value: Number, **_: Any) -> View:
    """One number."""
    return op.trace.number(fill_value, op.dtype, op.shape)


@operator("aten.scalar_tensor")
def scalar_tensor(op: Operation, s: Number, **_: Any) -> View:
    """One number."""
    return op.trace.number(s, op.dtype, op.shape)


@operator("aten.fill")
def fill(op: Operation, value: Number | View, **_: Any) -> View:
    """One number in the place of all."""
    return op.trace.expand(op.array(value, op.dtype), op.shape)


@operator(
    "aten.zeros", "aten.zeros_like", "aten.new_zeros", "aten.zero",
    "aten.empty", "aten.empty_like", "aten.new_empty", "aten.empty_strided",
)  # fmt: skip
def zeros(op: Operation, **_: Any) -> View:
    """Zeros."""
    return op.trace.number(0, op.dtype, op.shape)


@operator("aten.ones", "aten.ones_like", "aten.new_ones")
def ones(op: Operation, **_: Any) -> View:
    """Ones."""
    return op.trace.number(1, op.dtype, op.shape)


@operator("aten.arange")
def arange(op: Operation, end: Number, start: Number = 0, step: Number = 1, **_: Any) -> View:
    """Numbers in steps; how many is known."""
    del end
    return op.trace.iota(op.shape[0], op.dtype, start, step)


@operator("aten.linspace")
def linspace(op: Operation, start: Number, end: Number, steps: int, **_: Any) -> View:
    """Numbers from one to another."""
    if steps == 1:
        return op.trace.number(start, op.dtype, (1,))
    step = (end - start) / (steps - 1)
    return op.trace.iota(steps, op.dtype, start, step)


@operator("aten.meshgrid")
def meshgrid(op: Operation, tensors: Sequence[View], indexing: str = "ij") -> list[View]:
    """Each of several vectors along its own dimension; with `xy`, the first two change places."""
    places = [*range(len(tensors))]
    if indexing == "xy" and len(places) > 1:
        places[:2] = [1, 0]
    found: list[View] = []
    for place, vector in zip(places, tensors, strict=True):
        shape = [1] * len(tensors)
        shape[place] = vector.shape[0] if vector.dims else 1
        found.append(op.trace.expand(op.trace.reshape(vector, shape), op.shape))
    return found


@operator("aten.eye")
def eye(op: Operation, **_: Any) -> View:
    """Ones on the diagonal."""
    rows, columns = (op.trace.iota(size, "int64") for size in op.shape)
    return op.trace.map("x == y", op.trace.unsqueeze(rows, 1), columns, dtype=op.dtype)


def _triangle(op: Operation, x: View, join: str) -> View:
    rows, columns = (op.trace.iota(size, "int64") for size in x.shape[-2:])
    inside = op.trace.map(join, op.trace.unsqueeze(rows, 1), columns)
    return op.trace.map("where(y, x, z)", x, inside, op.array(0, op.dtype), dtype=op.dtype)


@operator("aten.tril")
def lower(op: Operation, x: View, diagonal: int = 0) -> View:
    """What is on and below a diagonal."""
    return _triangle(op, x, f"y <= x + ({diagonal})")


@operator("aten.triu")
def upper(op: Operation, x: View, diagonal: int = 0) -> View:
    """What is on and above a diagonal."""
    return _triangle(op, x, f"y >= x + ({diagonal})")


@operator(
    "aten.to",
    "aten._to_copy",
    "aten.type_as",
    "aten._autocast_to_reduced_precision",
    "aten._autocast_to_full_precision",
    "prims.convert_element_type",
)
def converted(op: Operation, x: View | None = None, a: View | None = None, **_: Any) -> View:
    """The same values in another type."""
    given = x if x is not None else a
    assert given is not None  # noqa: S101 - one of the names is in every schema
    return op.trace.cast(given, op.dtype)


@operator(
    "aten.detach", "aten.detach_", "aten.alias", "aten.clone", "aten.contiguous", "aten.lift",
    "aten.lift_fresh", "aten.lift_fresh_copy", "aten.view_copy", "aten.cpu", "aten.cuda",
    "aten.resolve_conj", "aten.resolve_neg", "aten.requires_grad_",
)  # fmt: skip
def same(op: Operation, x: View, **_: Any) -> View:
    """The same."""
    del op
    return x


@operator("aten.copy")
def copied(op: Operation, src: View, **_: Any) -> View:
    """What is written over another tensor."""
    return op.trace.expand(op.trace.cast(src, op.dtype), op.shape)
