"""Taking inputs for engine `torch`: tensors of torch's stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from eindecomp.engines.tensor import Tensor
from eindecomp.errors import InputError
from eindecomp.graph.arrays import to_stored
from eindecomp.graph.ops import Gather, ScatterAdd
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.dtypes import kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex


def as_given(given: Any, vertex: Vertex) -> Any:
    """An array that fits an input: torch's, where it is, or what NumPy reads."""
    if not isinstance(given, torch.Tensor):
        on_gpu = hasattr(given, "__dlpack__") and _is_on_gpu(given)
        if not on_gpu:
            return to_stored(given, vertex)
        given = torch.from_dlpack(given)
    if tuple(given.shape) != vertex.shape:
        raise InputError(f"input {vertex} has shape {vertex.shape}, got {tuple(given.shape)}")
    wanted = torch_type(vertex.dtype)
    if given.dtype == wanted:
        return given.detach()
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
    try:
        code, _ = given.__dlpack_device__()
    except Exception:  # it is for whoever reads it to say what is wrong
        return False
    return int(code) != 1


def check_indices(graph: Graph, inputs: Mapping[str, Any]) -> None:
    """Refuse indices out of range among the inputs: a GPU could only stop for good."""
    for vertex in graph.vertices.values():
        if not isinstance(vertex.op, Gather | ScatterAdd):
            continue
        name = vertex.inputs[1]
        if name not in inputs or isinstance(inputs[name], Tensor):
            continue
        table = graph[vertex.inputs[0]] if isinstance(vertex.op, Gather) else vertex
        size, given = table.shape[vertex.op.axis], inputs[name]
        given = given if isinstance(given, torch.Tensor) else np.asarray(given[...])
        if 0 in given.shape:
            continue
        for bad in (int(given.min()), int(given.max())):
            if not 0 <= bad < size:
                raise InputError(f"{vertex}: index {bad} is outside 0 to {size - 1}")
