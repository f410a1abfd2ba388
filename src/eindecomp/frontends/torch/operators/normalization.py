"""Normalizations, computed in float32 where tensors are of low precision, as torch does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.frontends.torch.operators.aggregations import mean_of, variance_of
from eindecomp.frontends.torch.registry import number, operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View


def _exponentials(op: Operation, x: View, place: int) -> tuple[View, View, View, View]:
    """A tensor, its maximum along a dimension, exponentials of it less that, and their sum."""
    wide = op.wide(x)
    most = op.trace.reduce(wide, [place], "max", keep=True)
    powers = op.trace.map("exp(x - y)", wide, most)
    return wide, most, powers, op.trace.reduce(powers, [place], "sum", keep=True)


def softmax_of(op: Operation, x: View, place: int, dtype: object) -> View:
    """A softmax along a dimension, computed in float32 if x is of low precision."""
    _, _, powers, summed = _exponentials(op, x, place)
    return op.trace.map("x / y", powers, summed, dtype=dtype)


@operator("aten.softmax", "aten._softmax")
def softmax(op: Operation, x: View, dim: int, **_: Any) -> View:
    """Exponentials over their sum."""
    if not x.dims:
        return op.trace.number(1, op.dtype)
    return softmax_of(op, op.trace.cast(x, op.dtype), dim % len(x.dims), op.dtype)


@operator("aten.log_softmax", "aten._log_softmax")
def log_softmax(op: Operation, x: View, dim: int, **_: Any) -> View:
    """The logarithm of a softmax."""
    if not x.dims:
        return op.trace.number(0, op.dtype)
    given, place = op.trace.cast(x, op.dtype), dim % len(x.dims)
    wide, most, _powers, summed = _exponentials(op, given, place)
    logs = op.trace.map("log(x)", summed)
    return op.trace.map("x - y - z", wide, most, logs, dtype=op.dtype)


def _scaled(op: Operation, found: View, weight: View | None, bias: View | None) -> View:
    """What is normalized times a weight plus a bias, in the type of the result."""
    given = [op.wide(each) for each in (weight, bias) if each is not None]
    if not given:
        return op.trace.cast(found, op.dtype)
    join = "x * y + z" if len(given) == 2 else "x * y" if weight is not None else "x + y"
    return op.trace.map(join, found, *given, dtype=op.dtype)


def _standardized(op: Operation, x: View, at: Sequence[int], eps: float) -> View:
    """A tensor of mean 0 and variance 1."""
    wide = op.wide(x)
    variance, mean = variance_of(op, wide, at, True)
    return _by_statistics(op, wide, mean, variance, eps)


def _by_statistics(op: Operation, x: View, mean: View, variance: View, eps: float) -> View:
    scale = op.trace.map(f"rsqrt(x + {number(eps)})", variance)
    return op.trace.map("(x - y) * z", x, mean, scale)


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
    return _scaled(op, _standardized(op, x, at, eps), weight, bias)


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
    found = _standardized(op, groups, range(2, len(groups.dims)), eps)
    whole = op.trace.reshape(found, x.shape)
    return _scaled(op, whole, _per_channel(op, x, weight), _per_channel(op, x, bias))


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
    """Normalized by running statistics, or by those of the batch where none are kept."""
    del momentum
    mean, variance = _per_channel(op, x, running_mean), _per_channel(op, x, running_var)
    if training and mean is not None:
        raise op.refuse(
            "changes running statistics, which a graph cannot; put the module in evaluation mode: "
            "module.eval()"
        )
    if mean is None or variance is None:
        found = _standardized(op, x, [k for k in range(len(x.dims)) if k != 1], eps)
    else:
        found = _by_statistics(op, op.wide(x), mean, variance, eps)
    return _scaled(op, found, _per_channel(op, x, weight), _per_channel(op, x, bias))
