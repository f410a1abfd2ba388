"""The arrays of one tile: the sizes of its labels, and where arrays are in memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from ctypes import c_int64
from typing import Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.graph.graph import Graph
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import Array
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import used_args


def sizes_of(labels: Sequence[Labels], arrays: Sequence[Any]) -> dict[str, int]:
    """The size of every label, refusing arrays that do not agree; None has no sizes."""
    found: dict[str, int] = {}
    for own, array in zip(labels, arrays, strict=True):
        if array is None:
            continue
        if len(own) != array.ndim:
            raise InputError(f"a tile of [{', '.join(own)}] has shape {tuple(array.shape)}")
        for label, size in zip(own, array.shape, strict=True):
            if found.setdefault(label, size) != size:
                raise InputError(f"label {label!r} has sizes {found[label]} and {size} in one tile")
    return found


def lent_sizes(graph: Graph, vertex: Vertex, op: EinSum) -> tuple[tuple[str, int], ...]:
    """The sizes of labels that occur only in inputs that are never read; these are never cut."""
    read = len(used_args(op.join))
    if read == len(op.inputs):
        return ()
    seen = {*op.output, *(label for own in op.inputs[:read] for label in own)}
    sizes = graph.label_sizes(vertex)
    return tuple((label, sizes[label]) for label in op.labels if label not in seen)


def _told_address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def _read_address(array: Array) -> int:
    # As NumPy's own macro for C finds it, five times as fast as asking for it.
    return c_int64.from_address(id(array) + object.__basicsize__).value


def _is_told() -> bool:
    sample = np.zeros(3)[1:]
    return sys.implementation.name != "cpython" or _read_address(sample) != _told_address(sample)


address = _told_address if _is_told() else _read_address
"""A function of an array: where its first element is."""
