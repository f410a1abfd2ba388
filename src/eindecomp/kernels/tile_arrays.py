"""The arrays of one tile: the sizes of its labels, other views, and where arrays are in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int64
from math import prod
from typing import Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Reshape
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import Array, DType, ScalarItems, Types
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import used_args


def sizes_of(labels: Sequence[Labels], arrays: Sequence[Any]) -> dict[str, int]:
    """The size of every label, refusing arrays that do not agree; None has no sizes."""
    sizes: dict[str, int] = {}
    for own, array in zip(labels, arrays, strict=True):
        if array is None:
            continue
        if len(own) != array.ndim:
            raise InputError(f"a tile of [{', '.join(own)}] has shape {tuple(array.shape)}")
        for label, size in zip(own, array.shape, strict=True):
            if sizes.setdefault(label, size) != size:
                raise InputError(f"label {label!r} has sizes {sizes[label]} and {size} in one tile")
    return sizes


EinSumArguments = tuple[EinSum, Types, DType, ScalarItems, tuple[tuple[str, int], ...]]


def einsum_arguments(graph: Graph, vertex: Vertex, op: EinSum) -> EinSumArguments:
    """What the kernel of a vertex depends on.

    The EinSum, the types of its operands, of the result and of run-time scalars, and the sizes of
    labels that occur only in inputs that are never read; these are never cut.
    """
    types = tuple(graph[name].dtype for name in vertex.inputs)
    read = len(used_args(op.join))
    lent: tuple[tuple[str, int], ...] = ()
    if read < len(op.inputs):
        seen = {*op.output, *(label for own in op.inputs[:read] for label in own)}
        sizes = graph.label_sizes(vertex)
        lent = tuple((label, sizes[label]) for label in op.labels if label not in seen)
    return op, types, vertex.dtype, tuple(graph.scalars.items()), lent


def strides_of(labels: Labels, strides: Sequence[int]) -> dict[str, int]:
    """The stride of each label; one that stands twice walks the diagonal."""
    by_label: dict[str, int] = {}
    for label, stride in zip(labels, strides, strict=True):
        by_label[label] = by_label.get(label, 0) + stride
    return by_label


def contiguous(labels: Sequence[str], sizes: Mapping[str, int], step: int) -> dict[str, int]:
    """The strides of an array whose labels lie one in another, the last one with this step."""
    strides: dict[str, int] = {}
    for label in reversed(labels):
        strides[label] = step
        step *= sizes[label]
    return strides


def distinct(x: Any, labels: Labels) -> tuple[Any, Labels]:
    """The diagonal along every label that stands twice, so that each stands once."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = x.diagonal(0, first, second)
            labels = (*(t for k, t in enumerate(labels) if k not in (first, second)), label)
    return x, labels


def reshaped(op: Reshape, source: Any, transpose: Callable[[Any, list[int]], Any]) -> Any:
    """A tile of a reshape, cut along labels that are outermost in their groups."""
    sizes = dict(op.sizes)
    for group, size in zip(op.input, source.shape, strict=True):
        if inner := prod(sizes[label] for label in group[1:]):
            sizes[group[0]] = size // inner
    before = [label for group in op.input for label in group]
    after = [label for group in op.groups for label in group]
    split = source.reshape([sizes[label] for label in before])
    turned = transpose(split, [before.index(label) for label in after])
    return turned.reshape([prod(sizes[label] for label in group) for group in op.groups])


def _told_address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def _read_address(array: Array) -> int:
    # As NumPy's own macro for C finds it, five times as fast as asking for it.
    return c_int64.from_address(id(array) + object.__basicsize__).value


_SAMPLE = np.zeros(3)[1:]
_IS_READ = sys.implementation.name == "cpython" and _read_address(_SAMPLE) == _told_address(_SAMPLE)
address = _read_address if _IS_READ else _told_address
"""A function of an array: where its first element is."""
