"""Tensors that are made from their own indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import INT64
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.scalar import used_scalars
from eindecomp.lang.scalar_types import with_casts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.ops import Fill
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]


def fill(op: Fill, out: Array, scalars: Mapping[str, Any], types: Mapping[str, DType]) -> None:
    """Make the whole tensor."""
    index: list[Array] = [
        np.arange(size).reshape([-1 if k == axis else 1 for k in range(out.ndim)])
        for axis, size in enumerate(out.shape)
    ]
    explicit, _ = with_casts(op.value, [INT64] * len(index), types)
    names = used_scalars(explicit)
    value = compile_scalar(explicit, len(index), NUMPY, names)
    with np.errstate(all="ignore"):
        out[...] = np.asarray(value(*index, *(scalars[name] for name in names))).astype(out.dtype)
