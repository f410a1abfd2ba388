"""What training minimizes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from eindecomp.frontends.torch.operators.attention import log_sum_exp
from eindecomp.frontends.torch.operators.written import number
from eindecomp.frontends.torch.registry import operator
from eindecomp.lang.dtypes import Kind, kind

if TYPE_CHECKING:
    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View

NONE, MEAN = 0, 1
"""torch's numbers for reductions; 2 is the sum."""


def _reduced(op: Operation, losses: View, reduction: int) -> View:
    if reduction == NONE:
        return op.trace.cast(losses, op.dtype)
    join = f"x / {prod(losses.shape)}" if reduction == MEAN else None
    every = range(len(losses.dims))
    return op.trace.reduce(op.wide(losses), every, "sum", join=join, dtype=op.dtype)


@operator("aten.mse_loss")
def mse_loss(op: Operation, x: View, target: View, reduction: int = MEAN) -> View:
    """The square of the difference."""
    apart = op.trace.map("x - y", *op.promoted(x, target))
    return _reduced(op, op.trace.map("x * x", apart), reduction)


@operator("aten.l1_loss")
def l1_loss(op: Operation, x: View, target: View, reduction: int = MEAN) -> View:
    """The size of the difference."""
    return _reduced(op, op.trace.map("abs(x - y)", *op.promoted(x, target)), reduction)


@operator("aten.binary_cross_entropy_with_logits")
def binary_cross_entropy(
    op: Operation,
    x: View,
    target: View,
    weight: View | None = None,
    pos_weight: View | None = None,
    reduction: int = MEAN,
) -> View:
    """The cross entropy of truth values, without overflow."""
    if pos_weight is None:
        join = "max(x, 0) - x * y + log(1 + exp(-abs(x)))"
        found = op.trace.map(join, *op.promoted(x, target))
    else:
        join = "(1 - y) * x + (1 + (z - 1) * y) * (log(1 + exp(-abs(x))) + max(-x, 0))"
        found = op.trace.map(join, *op.promoted(x, target, pos_weight))
    if weight is not None:
        found = op.trace.map("x * y", *op.promoted(found, weight))
    return _reduced(op, found, reduction)


@operator("aten.cross_entropy_loss")
def cross_entropy(
    op: Operation,
    x: View,
    target: View,
    weight: View | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> View:
    """The logarithm of the sum of exponentials, less the class's own logit."""
    place = min(1, len(x.dims) - 1)
    wide, most, rest = log_sum_exp(op, x, place)
    op.trace.vote(x, tuple("v" if k == place else None for k in range(len(x.dims))))
    if kind(target.dtype) is Kind.FLOAT:
        return _of_shares(op, (wide, most, rest), target, place, weight, reduction, label_smoothing)
    largest, summed = (op.trace.squeeze(each, [place]) for each in (most, rest))
    losses = op.trace.map(
        "x + y - z", largest, summed, _picked(op, wide, target, place, ignore_index)
    )
    if label_smoothing:
        if weight is not None:
            raise op.refuse("is not imported with label_smoothing and class weights at once")
        size = x.shape[place]
        mean = op.trace.reduce(wide, [place], "sum", join=f"x / {size}")
        even = op.trace.map("x + y - z", largest, summed, mean)
        by = number(label_smoothing)
        losses = op.trace.map(f"(1 - {by}) * x + {by} * y", losses, even)
    return _weighed(op, losses, target, weight, reduction, ignore_index)


def _of_shares(
    op: Operation,
    parts: tuple[View, View, View],
    target: View,
    place: int,
    weight: View | None,
    reduction: int,
    label_smoothing: float,
) -> View:
    """The cross entropy with classes by their probabilities."""
    if weight is not None:
        raise op.refuse("is not imported with class weights and probabilities at once")
    size = target.shape[place]
    by = number(label_smoothing)
    if label_smoothing:
        target = op.trace.map(f"x * (1 - {by}) + {by} / {size}", target)
    logs = op.trace.map("x - y - z", *parts)
    losses = op.trace.reduce(op.trace.map("-x * y", logs, target), [place], "sum")
    if reduction != MEAN:
        return _reduced(op, losses, reduction)
    count = max(prod(losses.shape), 1)
    every = range(len(losses.dims))
    return op.trace.reduce(losses, every, "sum", join=f"x / {count}", dtype=op.dtype)


def _picked(op: Operation, x: View, target: View, place: int, ignore_index: int) -> View:
    """The element of each class; any, where the class is ignored."""
    safe = op.trace.map(f"where(x == ({ignore_index}), 0, x)", target)
    shared = [(k, k if k < place else k - 1) for k in range(len(x.dims)) if k != place]
    return op.trace.take_along(x, place, safe, shared)


def _weighed(
    op: Operation,
    losses: View,
    target: View,
    weight: View | None,
    reduction: int,
    ignore_index: int,
) -> View:
    """The losses of classes that are not ignored, times their weights."""
    counts = op.trace.map(f"x != ({ignore_index})", target)
    if weight is None:
        share = op.trace.cast(counts, losses.dtype)
    else:
        safe = op.trace.map(f"where(x == ({ignore_index}), 0, x)", target)
        own = op.trace.take(op.wide(weight), 0, safe)
        share = op.trace.map("where(x, y, 0)", counts, own, dtype=losses.dtype)
    # What is ignored may be infinite, and must not meet a zero.
    losses = op.trace.map("where(x, y * z, 0)", counts, losses, share)
    if reduction == NONE:
        return op.trace.cast(losses, op.dtype)
    every = range(len(losses.dims))
    total = op.trace.reduce(losses, every, "sum")
    if reduction != MEAN:
        return op.trace.cast(total, op.dtype)
    return op.trace.map("x / y", total, op.trace.reduce(share, every, "sum"), dtype=op.dtype)


@operator("aten.nll_loss", "aten.nll_loss2d", "aten.nll_loss_nd")
def nll_loss(
    op: Operation,
    x: View,
    target: View,
    weight: View | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
) -> View:
    """What is left of a logarithm of probabilities, with its sign turned."""
    place = min(1, len(x.dims) - 1)
    wide = op.wide(x)
    picked = _picked(op, wide, target, place, ignore_index)
    losses = op.trace.map("-x", picked)
    return _weighed(op, losses, target, weight, reduction, ignore_index)
