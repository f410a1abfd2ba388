"""Which of torch's devices an engine runs on, and inputs: torch's tensors stay where they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from eindecomp.errors import InputError
from eindecomp.graph.arrays import to_stored
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.kernels.torch.tensors import torch_type
from eindecomp.lang.dtypes import kind


def devices_of(given: str | Sequence[str] | None) -> tuple[torch.device, ...]:
    """The devices that were asked for: by default all GPUs, or the CPU where there is none."""
    if given is None:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return tuple(torch.device("cuda", k) for k in range(count)) or (torch.device("cpu"),)
    names: Any = given.split(",") if isinstance(given, str) else given
    names = [*names] if isinstance(names, Iterable) else [names]
    if not names:
        raise InputError("device is one of torch's devices or several, not none")
    return tuple(device_of(name, "torch") for name in names)


def check_memory(device: torch.device, limit: int) -> None:
    """Refuse a memory limit above what the GPU has."""
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        if limit > total:
            raise InputError(f"gpu_memory is {limit:,} bytes, but {device} has {total:,}")


def start_measuring(libraries: Sequence[TorchLibrary]) -> None:
    """Begin to measure how much of each GPU is taken."""
    for library in libraries:
        if library.device.type == "cuda":
            torch.cuda.init()  # nothing may have used CUDA yet, and then there are no statistics
            torch.cuda.reset_peak_memory_stats(library.device)


def measured_peak(libraries: Sequence[TorchLibrary]) -> int | None:
    """The most bytes that were taken of a GPU since then; None where there is none."""
    gpus = [library.device for library in libraries if library.device.type == "cuda"]
    # `max_memory_allocated` looks up one of hundreds of figures, which takes longer than all else.
    stats: Any = torch.cuda.memory_stats_as_nested_dict
    return max((stats(each)["allocated_bytes"]["all"]["peak"] for each in gpus), default=None)


def device_of(name: object, engine: str) -> torch.device:
    """The device of a name, on which an engine is to run."""
    if not isinstance(name, str | torch.device):
        raise InputError(f"a device has a name such as 'cuda:0' or 'cpu', not {name!r}")
    name = str(name).strip()
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"{name!r} is not a device of torch's: {error}") from None
    if device.type == "cpu" and not device.index:
        return torch.device("cpu")
    if device.type != "cuda":
        raise InputError(f"engine {engine!r} runs on 'cuda' and 'cpu', not {name!r}")
    if not torch.cuda.is_available():
        raise InputError(f"{name!r} was asked for, and torch finds no GPU here")
    index = device.index if ":" in name else torch.cuda.current_device()
    if index >= torch.cuda.device_count():
        raise InputError(f"{name!r} was asked for; there are {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", index)


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
