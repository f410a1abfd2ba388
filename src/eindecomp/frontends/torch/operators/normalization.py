"""Normalizations, computed in float32 where tensors are of low precision, as torch does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.frontends.torch.operators.reductions import mean_of, variance_of
from eindecomp.frontends.torch.operators.written import number
from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View


def _scaled(op: Operation, found: View, weight: View | None, bias: View | None) -> View:
    """What is normalized times a weight plus a bias, in the type of the result."""
    if weight is not None and bias is not None:
        return op.trace.map("x * y + z", found, op.wide(weight), op.wide(bias), dtype=op.dtype)
    if weight is not None:
        return op.trace.map("x * y", found, op.wide(weight), dtype=op.dtype)
    if bias is not None:
        return op.trace.map("x + y", found, op.wide(bias), dtype=op.dtype)
    return op.trace.cast(found, op.dtype)


def _standardized(op: Operation, x: View, at: Sequence[int], eps: float) -> tuple[View, View, View]:
    """A tensor of mean 0 and variance 1, its mean, and one over its deviation."""
    wide = op.wide(x)
    variance, mean = variance_of(op, wide, at, True)
    scale = op.trace.map(f"rsqrt(x + {number(eps)})", variance)
    return op.trace.map("(x - y) * z", wide, mean, scale), mean, scale


@operator("aten.layer_norm")
def layer_norm(
    op: Operation,
    x: View,
    normalized_shape: Sequence[int],
    weight: View | None = None,
    bias: View | None = None,
    eps: float = 1e-5,
    **_: Any,
) -> View:
    """Normalized over the last dimensions."""
    at = [len(x.dims) - 1 - k for k in range(len(normalized_shape))]
    return _scaled(op, _standardized(op, x, at, eps)[0], weight, bias)


@operator("aten.native_layer_norm")
def native_layer_norm(
    op: Operation,
    x: View,
    normalized_shape: Sequence[int],
    weight: View | None,
    bias: View | None,
    eps: float,
) -> list[View]:
    """Normalized over the last dimensions, with the mean and one over the deviation."""
    at = [len(x.dims) - 1 - k for k in range(len(normalized_shape))]
    found, mean, scale = _standardized(op, x, at, eps)
    return [_scaled(op, found, weight, bias), mean, scale]


@operator("aten.rms_norm")
def rms_norm(
    op: Operation,
    x: View,
    normalized_shape: Sequence[int],
    weight: View | None = None,
    eps: float | None = None,
) -> View:
    """Divided by the root of the mean square over the last dimensions."""
    at = [len(x.dims) - 1 - k for k in range(len(normalized_shape))]
    wide = op.wide(x)
    least = float(np.finfo(wide.dtype.name).eps) if eps is None else eps
    squares = mean_of(op, op.trace.map("x * x", wide), at, True)
    found = op.trace.map(f"x * rsqrt(y + {number(least)})", wide, squares)
    return _scaled(op, found, weight, None)


def _per_channel(op: Operation, x: View, given: View | None) -> View | None:
    """A vector of channels, shaped to go with dimension 1."""
    if given is None:
        return None
    return op.trace.reshape(op.wide(given), (*given.shape, *(1,) * (len(x.dims) - 2)))


@operator("aten.group_norm")
def group_norm(
    op: Operation,
    x: View,
    num_groups: int,
    weight: View | None = None,
    bias: View | None = None,
    eps: float = 1e-5,
    **_: Any,
) -> View:
    """Normalized over groups of channels and all that comes after."""
    batch, channels, *rest = x.shape
    groups = op.trace.reshape(x, (batch, num_groups, channels // num_groups, *rest))
    found = _standardized(op, groups, range(2, len(groups.dims)), eps)[0]
    whole = op.trace.reshape(found, x.shape)
    return _scaled(op, whole, _per_channel(op, x, weight), _per_channel(op, x, bias))


@operator("aten.instance_norm")
def instance_norm(
    op: Operation,
    x: View,
    weight: View | None,
    bias: View | None,
    running_mean: View | None,
    running_var: View | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    **_: Any,
) -> View:
    """Normalized over all that comes after the channels."""
    del momentum
    if not use_input_stats:
        return _known(op, x, weight, bias, running_mean, running_var, eps)
    found = _standardized(op, x, range(2, len(x.dims)), eps)[0]
    return _scaled(op, found, _per_channel(op, x, weight), _per_channel(op, x, bias))


def _known(
    op: Operation,
    x: View,
    weight: View | None,
    bias: View | None,
    mean: View | None,
    variance: View | None,
    eps: float,
) -> View:
    """Normalized by a mean and a variance that are known."""
    means, variances = _per_channel(op, x, mean), _per_channel(op, x, variance)
    if means is None or variances is None:
        raise op.refuse("needs running statistics, which the module does not keep")
    scale = op.trace.map(f"rsqrt(x + {number(eps)})", variances)
    found = op.trace.map("(x - y) * z", op.wide(x), means, scale)
    return _scaled(op, found, _per_channel(op, x, weight), _per_channel(op, x, bias))


@operator("aten.batch_norm")
def batch_norm(
    op: Operation,
    x: View,
    weight: View | None,
    bias: View | None,
    running_mean: View | None,
    running_var: View | None,
    training: bool,
    momentum: float,
    eps: float,
    **_: Any,
) -> View:
    """Normalized by running statistics."""
    del momentum
    if training and running_mean is not None:
        raise op.refuse(
            "changes running statistics, which a graph cannot; put the module in evaluation mode: "
            "module.eval()"
        )
    if training:
        at = [k for k in range(len(x.dims)) if k != 1]
        found = _standardized(op, x, at, eps)[0]
        return _scaled(op, found, _per_channel(op, x, weight), _per_channel(op, x, bias))
    return _known(op, x, weight, bias, running_mean, running_var, eps)


@operator("aten._native_batch_norm_legit_no_training")
def native_batch_norm(
    op: Operation,
    x: View,
    weight: View | None,
    bias: View | None,
    running_mean: View,
    running_var: View,
    eps: float,
    **_: Any,
) -> list[View]:
    """Normalized by running statistics; there are no others to return."""
    found = _known(op, x, weight, bias, running_mean, running_var, eps)
    none = op.trace.number(0, "float32", (0,))
    return [found, none, none]
