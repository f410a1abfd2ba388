"""The values of buffers that a module makes for itself, where it is on the meta device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import nn


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
