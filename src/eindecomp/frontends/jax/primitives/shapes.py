"""The same elements in another shape, order or number, and arrays made from nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.jax.registry import Equation, primitive

if TYPE_CHECKING:
    from eindecomp.frontends.views import View


@primitive("broadcast_in_dim")
def _broadcast_in_dim(op: Equation, x: View, *_: View) -> View:
    return placed(op, x, [int(place) for place in op.params["broadcast_dimensions"]], op.shape)


def placed(op: Equation, x: View, places: list[int], shape: tuple[int, ...]) -> View:
    """An array whose dimensions are at these places of a shape, repeated along all others."""
    for place in range(len(shape)):
        if place not in places:
            x = op.trace.unsqueeze(x, place)
    return op.trace.expand(x, shape)


@primitive("reshape")
def _reshape(op: Equation, x: View, *_: View) -> View:
    order = op.params.get("dimensions")
    x = x if order is None else op.trace.transpose(x, [int(k) for k in order])
    return op.trace.reshape(x, op.shape)


@primitive("transpose")
def _transpose(op: Equation, x: View) -> View:
    return op.trace.transpose(x, [int(k) for k in op.params["permutation"]])


@primitive("squeeze")
def _squeeze(op: Equation, x: View) -> View:
    return op.trace.squeeze(x, [int(k) % len(x.dims) for k in op.params["dimensions"]])


@primitive("expand_dims")
def _expand_dims(op: Equation, x: View) -> View:
    return op.trace.reshape(x, op.shape)


@primitive("iota")
def _iota(op: Equation, *_: View) -> View:
    place = int(op.params["dimension"])
    return placed(op, op.trace.iota(op.shape[place], op.dtype), [place], op.shape)


@primitive("empty", "empty2")
def _empty(op: Equation, *_: View) -> View:
    return op.trace.number(0, op.dtype, op.shape)
