"""Tensors seen by their labels: diagonals, alignment and windows, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from eindecomp.lang.einsum import Labels

    Box = Mapping[str, tuple[int, int]]
    """Where a window begins along a label, and how long it is."""


def distinct(x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """The diagonal along every label that stands twice, so that each stands once."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = x.diagonal(0, first, second)
            labels = (*(t for k, t in enumerate(labels) if k not in (first, second)), label)
    return x, labels


def aligned(x: Tensor, labels: Labels, space: Labels) -> Tensor:
    """A view with a dimension for each label of a space, of size 1 where the tensor has none."""
    x = x.permute([labels.index(label) for label in space if label in labels])
    for k, label in enumerate(space):
        if label not in labels:
            x = x.unsqueeze(k)
    return x


def window(x: Tensor, labels: Labels, box: Box) -> Tensor:
    """The part of a tensor that lies in a box."""
    for k, label in enumerate(labels):
        start, length = box[label]
        if length != x.shape[k]:
            x = x.narrow(k, start, length)
    return x


def expanded(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor repeated to a shape."""
    return x if tuple(x.shape) == tuple(shape) else x.expand(shape)
