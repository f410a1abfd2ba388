"""Taking inputs for engine `torch`: tensors of torch's stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from eindecomp.errors import InputError
from eindecomp.graph.arrays import to_stored
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.dtypes import kind

if TYPE_CHECKING:
    from eindecomp.graph.vertex import Vertex


def as_given(given: Any, vertex: Vertex) -> Any:
    """An array that fits an input: torch's, where it is, or what NumPy reads."""
    if not isinstance(given, torch.Tensor):
        if type(given) is np.ndarray or not _is_on_gpu(given):
            return to_stored(given, vertex)
        given = torch.from_dlpack(given)
    if given.layout != torch.strided:
        raise InputError(f"input {vertex} is sparse: make it dense first")
    if given.is_meta:
        raise InputError(f"input {vertex} is a tensor on torch's device 'meta', without numbers")
    if tuple(given.shape) != vertex.shape:
        raise InputError(f"input {vertex} has shape {vertex.shape}, got {tuple(given.shape)}")
    wanted = torch_type(vertex.dtype)
    if given.dtype == wanted:
        return given.detach().resolve_conj().resolve_neg()
    if given.device.type == "cpu":
        return to_stored(given, vertex)  # which knows what may be converted
    own = np.dtype(str(given.dtype).removeprefix("torch.").replace("bfloat16", "float16"))
    if kind(own) > kind(vertex.dtype):
        raise InputError(
            f"input {vertex} has dtype {vertex.dtype}; {given.dtype} would lose information"
        )
    return given.detach().to(wanted)


def as_tensor(given: Any) -> torch.Tensor:
    """What was given for an input, as a tensor of torch's."""
    if isinstance(given, torch.Tensor):
        return given
    return TorchLibrary("cpu").from_numpy(np.asarray(given[...]))


def _is_on_gpu(given: Any) -> bool:
    if not hasattr(given, "__dlpack__"):
        return False
    try:
        code, _ = given.__dlpack_device__()
    except Exception:  # it is for whoever reads it to say what is wrong
        return False
    return int(code) != 1
