"""`Here`: what traced code knows of the device on which it will run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import jax

    from eindecomp.engines.jax.copies import Place
    from eindecomp.layout.mesh import Mesh


@dataclass
class Here:
    """The device that traces stand for: one number for all, where devices do not differ."""

    mesh: Mesh

    @cached_property
    def device(self) -> Any:
        """The device's number."""
        return lax.axis_index(self.mesh.names) if self.mesh.names else 0

    def names(self, axes: Sequence[int]) -> tuple[str, ...]:
        """Axes of the mesh by name."""
        return tuple(self.mesh.names[axis] for axis in axes)

    def pick(self, values: Sequence[int]) -> Any:
        """One of these, by the device's number."""
        if len(set(values)) == 1:
            return values[0]
        return jnp.asarray(np.array(values, np.int32))[self.device]

    def place(self, places: Mapping[int, Place], rank: int) -> list[Any]:
        """Where a block begins on this device; it does not matter on devices without a place."""
        anywhere = next(iter(places.values()))
        every = [places.get(device, anywhere) for device in range(self.mesh.devices)]
        return [self.pick([place[d] for place in every]) for d in range(rank)]

    def taken(self, x: jax.Array, start: Sequence[Any], shape: Sequence[int]) -> jax.Array:
        """A block of an array."""
        if tuple(shape) == x.shape:
            return x
        if all(isinstance(low, int) for low in start):
            ends = [low + size for low, size in zip(start, shape, strict=True)]
            return lax.slice(x, list(start), ends)
        return lax.dynamic_slice(x, _numbers(start), tuple(shape))

    def put(self, into: jax.Array, x: jax.Array, start: Sequence[Any], on: Sequence[int]) -> Any:
        """An array with a block replaced on some devices."""
        everywhere = len(on) == self.mesh.devices
        if everywhere and x.shape == into.shape:
            return x
        if not everywhere:
            chosen = self.pick([int(device in on) for device in range(self.mesh.devices)]) == 1
            x = jnp.where(chosen, x, self.taken(into, start, x.shape))
        return lax.dynamic_update_slice(into, x, _numbers(start))


def _numbers(start: Sequence[Any]) -> list[Any]:
    return [jnp.asarray(low, np.int32) for low in start]


def padded(x: jax.Array, shape: Sequence[int]) -> jax.Array:
    """An array with room behind it."""
    if x.shape == tuple(shape):
        return x
    room = [(0, size - own, 0) for own, size in zip(x.shape, shape, strict=True)]
    return lax.pad(x, np.zeros((), x.dtype), room)
