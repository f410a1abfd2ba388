"""The values of a module's parameters and buffers, as inputs of its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from eindecomp.errors import InputError
from eindecomp.frontends.input_names import input_name
from eindecomp.lang.dtypes import BFLOAT16

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from eindecomp.graph.graph import Graph

CONSTANTS: WeakKeyDictionary[nn.Module, dict[str, torch.Tensor]] = WeakKeyDictionary()
"""The tensors that the code of an imported module holds, by the names of their inputs."""


def torch_weights(module: nn.Module, graph: Graph) -> dict[str, Any]:
    """The arrays for the inputs of an imported graph that are parameters and buffers of a module.

    They share the module's memory; a module that was imported without values, on the meta device,
    can be filled by another of the same kind.

    Args:
        module: What was imported, such as `model`.
        graph: What `ed.from_torch` made of it, such as `ed.from_torch(model, x)`.

    Raises:
        InputError: A parameter has no values: it is on the meta device.

    Examples:
        >>> import torch, eindecomp as ed
        >>> module = torch.nn.Linear(3, 2)
        >>> graph = ed.from_torch(module, torch.zeros(4, 3))
        >>> sorted(torch_weights(module, graph))
        ['bias', 'weight']
    """
    known = {input_name(name): tensor for name, tensor in named_tensors(module)}
    known |= CONSTANTS.get(module, {})
    found: dict[str, Any] = {}
    for vertex in graph.inputs:
        if vertex.name in known:
            tensor = known[vertex.name]
            if tensor.device.type == "meta":
                raise InputError(
                    f"{vertex.name!r} has no values: it is on the meta device; load the module "
                    "onto a device first"
                )
            found[vertex.name] = to_numpy(tensor)
    return found


def named_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """All parameters and buffers under all their names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def first_names(module: nn.Module) -> Mapping[int, str]:
    """The first name of every parameter and buffer, by its identity."""
    found: dict[int, str] = {}
    for name, tensor in named_tensors(module):
        found.setdefault(id(tensor), name)
    return found


def to_numpy(tensor: torch.Tensor) -> Any:
    """A tensor's own memory as a NumPy array, where NumPy can see it."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BFLOAT16)
    return tensor.numpy()


def rebuilt_buffers(module: nn.Module) -> dict[str, torch.Tensor]:
    """Buffers on the meta device that are no part of a checkpoint, with their values.

    Parts without parameters that are made from a configuration alone, as the rotary embeddings of
    Hugging Face's models are, are made once more, on the CPU.
    """
    found: dict[str, torch.Tensor] = {}
    parts: list[tuple[str, Any]] = [*module.named_modules()]
    for path, part in parts:
        own: dict[str, torch.Tensor] = dict(part.named_buffers(recurse=False))
        on_meta = [name for name, buffer in own.items() if buffer.device.type == "meta"]
        config: Any = getattr(part, "config", None)
        if config is None or not on_meta or [*part.parameters()]:
            continue
        try:
            with torch.device("cpu"), torch.random.fork_rng(devices=[]):
                again: dict[str, torch.Tensor] = dict(
                    type(part)(config).named_buffers(recurse=False)
                )
        except Exception:  # noqa: S112 - it takes more than a configuration
            continue
        for name in on_meta:
            buffer = again.get(name)
            if buffer is not None and buffer.shape == own[name].shape:
                found[f"{path}.{name}" if path else name] = buffer.to(own[name].dtype)
    return found
