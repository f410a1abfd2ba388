"""A model's random weights in one block of memory, layer after layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.torch.paged_memory import Pin
from eindecomp.models.llama.weights import weights_of

if TYPE_CHECKING:
    from eindecomp.models.llama.config import Config
    from eindecomp.models.llama.weights import Weight


@dataclass(frozen=True)
class WeightBlock:
    """Weights side by side, in the order of `weights_of`: a layer is one piece of the memory."""

    config: Config
    memory: torch.Tensor
    pin: Any = None
    """Keeps the memory pinned."""

    @staticmethod
    def random(config: Config, device: torch.device) -> WeightBlock:
        """Random weights in host memory, pinned where there is a GPU, which draws the numbers."""
        count = sum(prod(weight.shape) for weight in weights_of(config))
        # Zeros are written by all cores: pages that are there are pinned much faster.
        memory = torch.zeros(count, dtype=getattr(torch, config.dtype))
        block = WeightBlock(config, memory, Pin(memory) if device.type == "cuda" else None)
        generator = torch.Generator(device).manual_seed(0)
        for weight, place in block.tensors.values():
            if len(weight.shape) == 1:
                place.fill_(1.0)
            else:
                drawn = torch.empty(weight.shape, dtype=memory.dtype, device=device)
                place.copy_(drawn.normal_(0, weight.shape[-1] ** -0.5, generator=generator))
        return block

    @cached_property
    def tensors(self) -> dict[str, tuple[Weight, torch.Tensor]]:
        """Each weight with its part of the memory, in the shape that files have it in."""
        found: dict[str, tuple[Weight, torch.Tensor]] = {}
        start = 0
        for weight in weights_of(self.config):
            end = start + prod(weight.shape)
            found[weight.name] = weight, self.memory[start:end].view(weight.shape)
            start = end
        return found

    @property
    def by_input(self) -> dict[str, torch.Tensor]:
        """The weights as inputs of our graphs."""
        return {name: part.view(weight.seen) for name, (weight, part) in self.tensors.items()}

    @property
    def by_file_name(self) -> dict[str, torch.Tensor]:
        """The weights as Hugging Face names them."""
        return {weight.stored: part for weight, part in self.tensors.values()}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name][1]

    @property
    def layers(self) -> list[torch.Tensor]:
        """The part of the memory that each layer has."""
        tables = prod(self.tensors["E"][0].shape)
        size = self.layer_size
        return [
            self.memory[tables + k * size : tables + (k + 1) * size]
            for k in range(self.config.layers)
        ]

    @property
    def layer_size(self) -> int:
        """The number of weights of a layer."""
        return sum(map(prod, layer_shapes(self.config)))

    @property
    def read_bytes(self) -> int:
        """The bytes that every run reads: all weights but the embedding table."""
        return (self.memory.numel() - self["E"].numel()) * self.memory.itemsize

    @cached_property
    def pageable(self) -> WeightBlock:
        """The same weights in memory that is not pinned, as most users have them."""
        return self.copy(torch.device("cpu"))

    def copy(self, device: torch.device) -> WeightBlock:
        """The same weights in memory of a device; in that of the host, it is not pinned."""
        return WeightBlock(self.config, self.memory.detach().to(device, copy=True))


def layer_shapes(config: Config) -> list[tuple[int, ...]]:
    """The shapes of a layer's weights, in the order in which they lie in memory."""
    return [
        weight.shape for weight in weights_of(config) if weight.stored.startswith("model.layers.0.")
    ]
