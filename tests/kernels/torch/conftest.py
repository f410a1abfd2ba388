"""Triton's interpreter, which runs generated kernels on machines without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module, reload
from typing import Any

import numpy as np
import pytest
from scipy import special

_OF_NUMPY = ("exp", "log", "sqrt", "sin", "cos", "tanh", "fmod", "copysign")
_LIBDEVICE = {
    **{name: getattr(np, name) for name in _OF_NUMPY},
    "erf": special.erf,
    "normcdf": special.ndtr,
    "pow": np.power,
}


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's over tensors of the interpreter, which has no libdevice."""
    tl = import_module("triton.language")
    handle = import_module("triton.runtime.interpreter").TensorHandle

    def computed(*tensors: Any) -> Any:
        arrays = [tensor.handle.data for tensor in tensors]
        with np.errstate(all="ignore"):
            values = np.asarray(function(*arrays)).astype(arrays[0].dtype)
        of = max((tensor.type for tensor in tensors), key=lambda t: t.is_block())
        if of.is_block():
            of = tl.block_type(of.scalar, list(values.shape))
        return tl.tensor(handle(values, tensors[0].handle.dtype), of)

    return computed


@pytest.fixture(scope="module")
def interpreter() -> Iterator[None]:
    """Let Triton's interpreter run kernels where there is no GPU.

    A `triton.jit` function belongs to what was chosen when it was made, so all are made again.
    """
    import torch

    from eindecomp.kernels.torch.generated import functions, launch

    if torch.cuda.is_available():
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        libdevice = import_module("triton.language.extra.libdevice")
        for name, function in _LIBDEVICE.items():
            patch.setattr(libdevice, name, interpreted(function))
        reload(functions)
        launch.compiled.cache_clear()
        yield
    reload(functions)
    launch.compiled.cache_clear()
