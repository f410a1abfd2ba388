"""The indices of gathers and scatters, one array for every dimension that is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import INT64
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.scalar import Arg, replace_args, used_args
from eindecomp.lang.scalar_types import with_casts

if TYPE_CHECKING:
    from eindecomp.frontends.jax.registry import Equation
    from eindecomp.frontends.views import View


@dataclass(frozen=True, slots=True, order=True)
class Axis:
    """A dimension by what it is: of the operand, or of the indices."""

    of_indices: bool
    place: int


def columns(op: Equation, indices: View) -> list[View]:
    """The array of indices along its last dimension, as whose parts it was put together if so."""
    last = len(indices.dims) - 1
    place, parts = op.reader.pieces.get(indices, (None, ()))
    if place == last and all(part.shape[last] == 1 for part in parts):
        return [op.trace.squeeze(part, [last]) for part in parts]
    return [op.trace.index(indices, last, k) for k in range(indices.shape[last])]


def counts_along(op: Equation, index: View) -> int | None:
    """The dimension along which an index is 0, 1, 2, … whatever the others are; None if none."""
    value = op.trace.formula(index)
    if value is None or len(used := used_args(value)) != 1:
        return None
    (along,) = used
    size = index.shape[along]
    explicit, _ = with_casts(replace_args(value, {along: Arg(0)}), [INT64], {})
    found = np.broadcast_to(compile_scalar(explicit, 1, NUMPY)(np.arange(size)), (size,))
    return along if np.array_equal(found, np.arange(size)) else None


def arranged(op: Equation, array: View, axes: list[Axis], wanted: list[Axis]) -> View:
    """An array with dimensions in the order wanted, without others, which are of size 1."""
    gone = [k for k, axis in enumerate(axes) if axis not in wanted]
    array = op.trace.squeeze(array, gone)
    left = [axis for axis in axes if axis in wanted]
    for axis in wanted:
        if axis not in left:
            left.append(axis)
            array = op.trace.unsqueeze(array, len(array.dims))
    return op.trace.transpose(array, [left.index(axis) for axis in wanted])
