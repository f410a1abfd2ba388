"""Tensors that are made from their own indices."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import INT64
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.scalar import used_scalars
from eindecomp.lang.scalar_types import with_casts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.ops import Fill
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]


def fill_box(
    op: Fill,
    out: Array,
    box: Sequence[tuple[int, int]],
    scalars: Mapping[str, Any],
    types: Mapping[str, DType],
) -> None:
    """Make a box of the tensor: along each dimension the indices from low to high."""
    index: list[Array] = [
        np.arange(low, high).reshape([-1 if k == axis else 1 for k in range(len(box))])
        for axis, (low, high) in enumerate(box)
    ]
    value, names = _compiled(op, tuple(types.items()))
    with np.errstate(all="ignore"):
        out[...] = np.asarray(value(*index, *(scalars[name] for name in names))).astype(out.dtype)


@lru_cache(maxsize=256)
def _compiled(op: Fill, types: tuple[tuple[str, DType], ...]) -> tuple[Any, Sequence[str]]:
    """The function of indices, then scalars, and which scalars those are."""
    explicit, _ = with_casts(op.value, [INT64] * len(op.output), dict(types))
    names = used_scalars(explicit)
    return compile_scalar(explicit, len(op.output), NUMPY, names), names
