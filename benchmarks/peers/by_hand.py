"""LLaMA's prefill by hand: plain torch, one compiled function for all layers.

Weights lie on the device, in pinned memory of the host, or in files: then a layer at a time comes
to one of two slots while the layer before it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import prod
from os import SEEK_END
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from on_gpu.weight_block import WeightBlock, layer_shapes

from eindecomp.engines.torch.paged_memory import HostMemory
from eindecomp.engines.torch.replay import Lane
from eindecomp.models.llama.config import frequencies
from peers.frameworks import compiled
from peers.race import Absent

if TYPE_CHECKING:
    from pathlib import Path

    from eindecomp.experiments.measure import Way
    from eindecomp.models.llama.config import Config

    Tensor = torch.Tensor

_SLOTS = 2


@contextmanager
def resident(weights: WeightBlock, ids: Tensor) -> Generator[Way]:
    """All weights are copied to the device once, before anything is measured."""
    own = weights.copy(ids.device)
    model = _Model(own, ids)
    yield lambda: model.read(iter(own.layers))


@contextmanager
def streamed(weights: WeightBlock, ids: Tensor) -> Generator[Way]:
    """Layers are copied from the host in every run; the tables lie on the device."""
    model, slots = _Model(weights, ids), _Slots(weights.layers[0], ids.device)
    layers = weights.layers
    yield lambda: model.read(slots.arriving(len(layers), layers.__getitem__))


@contextmanager
def from_files(weights: WeightBlock, ids: Tensor, files: Sequence[Path]) -> Generator[Way]:
    """A thread reads a layer from its file while the one before it goes to the device.

    A file ends with a layer as it lies in memory; `weights` are the tables and one layer.
    """
    model, slots = _Model(weights, ids), _Slots(weights.layers[0], ids.device)
    nbytes = weights.layers[0].nbytes
    memory = [HostMemory(ids.device.type == "cuda").empty(nbytes) for _ in range(_SLOTS)]

    def read(layer: int, emptied: Any) -> Tensor:
        if emptied is not None:
            emptied.synchronize()
        own = memory[layer % _SLOTS]
        with files[layer].open("rb", buffering=0) as file:
            file.seek(-nbytes, SEEK_END)
            room = own.numpy().data
            while room and (count := file.readinto(room)):
                room = room[count:]
        return own.view(weights.memory.dtype)

    with ThreadPoolExecutor(1) as reader:

        def run() -> Tensor:
            reads = [reader.submit(read, layer, None) for layer in range(_SLOTS)]

            def sent(layer: int, mark: Any) -> None:
                if layer + _SLOTS < len(files):
                    reads.append(reader.submit(read, layer + _SLOTS, mark))

            source = slots.arriving(len(files), lambda layer: reads[layer].result(), sent)
            return model.read(source)

        model.read(iter(slots.memory[:1]))  # compiles
        yield run


class _Slots:
    """Memory of the device that layers come to while the ones before them are computed."""

    def __init__(self, layer: Tensor, device: torch.device) -> None:
        self.memory = [torch.empty_like(layer, device=device) for _ in range(_SLOTS)]
        self.copying, self.computing = Lane(device), Lane(device, current=True)

    def arriving(
        self,
        count: int,
        source: Callable[[int], Tensor],
        sent: Callable[[int, Any], None] = lambda _layer, _mark: None,
    ) -> Iterator[Tensor]:
        """Each layer when it has come; a slot is filled again when its layer was computed.

        `sent` hears of every copy that was begun, with a mark behind it.
        """
        free: list[Any] = [self.computing.mark()] * _SLOTS
        came: list[Any] = [None] * _SLOTS

        def fetch(layer: int) -> None:
            slot = layer % _SLOTS
            found = source(layer)
            self.copying.wait(free[slot])
            with self.copying.work():
                self.memory[slot].copy_(found, non_blocking=True)
            came[slot] = self.copying.mark()
            sent(layer, came[slot])

        for layer in range(min(_SLOTS, count)):
            fetch(layer)
        for layer in range(count):
            slot = layer % _SLOTS
            self.computing.wait(came[slot])
            yield self.memory[slot]
            free[slot] = self.computing.mark()
            if layer + _SLOTS < count:
                fetch(layer + _SLOTS)


class _Model:
    """What lies on the device in any case, and the function of a layer."""

    def __init__(self, weights: WeightBlock, ids: Tensor) -> None:
        self.config = config = weights.config
        if config.heads != config.kv_heads or config.scaling is not None:
            raise Absent("it is written for models with as many heads of keys as of queries")
        self.ids = ids
        self.table, self.head, self.norm = (weights[name].to(ids.device) for name in "EHN")
        self.cos, self.sin = _rotation(config, ids)
        self.shapes = layer_shapes(config)
        self.layer = compiled(_layer, ids.device.type)

    @torch.no_grad()
    def read(self, layers: Iterator[Tensor]) -> Tensor:
        """The logits after the last token of each sequence."""
        config, x = self.config, self.table[self.ids]
        for weights in layers:
            parts: tuple[Tensor, ...] = torch.split(weights, [*map(prod, self.shapes)])
            views = [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]
            x = self.layer(x, self.cos, self.sin, config.heads, config.epsilon, *views)
        return F.linear(F.rms_norm(x[:, -1], self.norm.shape, self.norm, config.epsilon), self.head)


def _rotation(config: Config, ids: Tensor) -> tuple[Tensor, Tensor]:
    speed = torch.from_numpy(frequencies(config)).to(ids.device, torch.float32)
    angles = torch.arange(ids.shape[1], device=ids.device)[:, None] * speed
    dtype = getattr(torch, config.dtype)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _layer(
    x: Tensor, cos: Tensor, sin: Tensor, heads: int, epsilon: float,
    norm: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor,
    feed_norm: Tensor, gate: Tensor, up: Tensor, down: Tensor,
) -> Tensor:  # fmt: skip
    def by_head(matrix: Tensor) -> Tensor:
        return F.linear(y, matrix).view(*x.shape[:2], heads, -1).transpose(1, 2)

    def rotated(z: Tensor) -> Tensor:
        left, right = z.chunk(2, -1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)

    y = F.rms_norm(x, norm.shape, norm, epsilon)
    attended = F.scaled_dot_product_attention(
        rotated(by_head(q)), rotated(by_head(k)), by_head(v), is_causal=True
    )
    x = x + F.linear(attended.transpose(1, 2).flatten(2), o)
    y = F.rms_norm(x, feed_norm.shape, feed_norm, epsilon)
    return x + F.linear(F.silu(F.linear(y, gate)) * F.linear(y, up), down)
