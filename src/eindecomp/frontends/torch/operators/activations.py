"""Activations of neural networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.operations.accurate import expm1, log1p
from eindecomp.frontends.torch.operators.written import (
    number,
    register_fractions,
    register_maps,
)
from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from eindecomp.frontends.torch.registry import Number, Operation
    from eindecomp.frontends.views import View

register_maps({"relu": "relu(x)", "relu6": "min(relu(x), 6)"})
register_fractions(
    {
        "silu": "silu(x)",
        "hardsigmoid": "min(max(x / 6 + 0.5, 0), 1)",
        "hardswish": "x * min(max(x / 6 + 0.5, 0), 1)",
        "log_sigmoid": f"min(x, 0) - {log1p('exp(-abs(x))')}",
        "mish": f"x * tanh(max(x, 0) + {log1p('exp(-abs(x))')})",
    }
)


@operator("aten.gelu")
def gelu(op: Operation, x: View, approximate: str = "none") -> View:
    """x times the normal distribution at x, or the usual approximation of it."""
    if approximate == "none":
        return op.fraction("gelu(x)", x)
    return op.fraction("0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))", x)


@operator("aten.leaky_relu")
def leaky_relu(op: Operation, x: View, negative_slope: Number = 0.01) -> View:
    """Flatter below zero."""
    return op.map(f"where(x > 0, x, x * {number(negative_slope)})", x)


@operator("aten.prelu")
def prelu(op: Operation, x: View, weight: View) -> View:
    """Flatter below zero, by a learned slope for each channel."""
    if len(weight.dims) == 1 and weight.shape != (1,) and len(x.dims) > 1:
        weight = op.trace.reshape(weight, (*weight.shape, *(1,) * (len(x.dims) - 2)))
    return op.map("where(x > 0, x, x * y)", x, weight)


@operator("aten.elu")
def elu(
    op: Operation, x: View, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1
) -> View:
    """Exponential below zero."""
    below = expm1(f"min(x * {number(input_scale)}, 0)")
    return op.map(f"{number(scale)} * where(x > 0, x, {number(alpha)} * ({below}))", x)


@operator("aten.hardtanh")
def hardtanh(op: Operation, x: View, min_val: Number = -1, max_val: Number = 1) -> View:
    """Kept within limits."""
    return op.map(f"min(max(x, {number(min_val)}), {number(max_val)})", x)


@operator("aten.softplus")
def softplus(op: Operation, x: View, beta: Number = 1, threshold: Number = 20) -> View:
    """log(1 + exp(x)), without overflow."""
    scaled = f"(x * {number(beta)})"
    smooth = f"max({scaled}, 0) + {log1p(f'exp(-abs{scaled})')}"
    return op.map(f"where({scaled} > {number(threshold)}, x, ({smooth}) / {number(beta)})", x)


@operator("aten.threshold")
def threshold(op: Operation, x: View, threshold: Number, value: Number) -> View:
    """A value up to a threshold."""
    return op.map(f"where(x <= {number(threshold)}, {number(value)}, x)", x)


@operator("aten.glu")
def gated(op: Operation, x: View, dim: int = -1) -> View:
    """One half times the sigmoid of the other."""
    place = dim % len(x.dims)
    half = x.shape[place] // 2
    first = op.trace.slice(x, place, 0, half)
    second = op.trace.slice(x, place, half, 2 * half)
    return op.trace.map("x * sigmoid(y)", first, second, dtype=op.dtype)


@operator("aten.dropout", "aten.alpha_dropout", "aten.feature_dropout", "aten.native_dropout")
def dropout(op: Operation, x: View, p: float, train: bool) -> View:
    """Nothing, unless a module is trained."""
    if train and p:
        raise op.refuse(
            "draws random numbers, which a graph does not; set dropout to 0, or put the module in "
            "evaluation mode: module.eval()"
        )
    return x
