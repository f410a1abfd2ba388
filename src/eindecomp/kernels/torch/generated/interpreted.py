"""The functions of libdevice that kernels call, for Triton's interpreter, which has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
from scipy import special
from triton.runtime.interpreter import TensorHandle

if TYPE_CHECKING:
    from collections.abc import Callable


def _by(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's, over tensors of the interpreter."""

    def computed(*tensors: Any) -> Any:
        arrays = [tensor.handle.data for tensor in tensors]
        with np.errstate(all="ignore"):
            found = np.asarray(function(*arrays)).astype(arrays[0].dtype)
        of = max((tensor.type for tensor in tensors), key=lambda t: t.is_block())
        if of.is_block():
            of = tl.block_type(of.scalar, list(found.shape))
        make: Any = tl.tensor
        return make(TensorHandle(found, tensors[0].handle.dtype), of)

    return computed


_special: Any = special
exp, log, sqrt, sin, cos, tanh = map(_by, (np.exp, np.log, np.sqrt, np.sin, np.cos, np.tanh))
erf, normcdf = _by(_special.erf), _by(_special.ndtr)
pow = _by(np.power)  # noqa: A001 - as libdevice calls it
fmod, copysign = _by(np.fmod), _by(np.copysign)
