"""Which of JAX's devices a plan runs on, and how blocks of a tensor lie in an array over them.

Where a tiling cuts all of a tensor into equal blocks, the array is the tensor itself, sharded by
the mesh's axes. Any other tiling (unequal or overlapping blocks, windows, shares) is an array with
one dimension more, along which every device has its block, padded to the largest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding, PartitionSpec

from eindecomp.engines.jax.moves import lying
from eindecomp.engines.tensor import block_of
from eindecomp.errors import InputError
from eindecomp.lang.dtypes import Array, DType
from eindecomp.layout.boxes import Box, shape_of, volume
from eindecomp.layout.cut import is_plain, pieces_by
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling

ONE = "device"
"""The axis of a mesh of one device, which a plan's mesh does not have."""


def devices_of(platform: str | None, devices: Sequence[Any] | None) -> list[Any]:
    """The devices that were named, or all that JAX has."""
    return _devices(platform) if devices is None else [*devices]


def mesh_of_devices(
    mesh: Mesh, platform: str | None = None, devices: Sequence[Any] | None = None
) -> JaxMesh:
    """The plan's mesh, of the first devices that JAX has or of those that were named.

    If JAX has not started, and nobody has said how many devices a CPU has, it has enough of them.
    """
    asked: int = getattr(jax.config, "jax_num_cpu_devices", -1)
    in_flags = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    is_count_given = asked >= 0 or in_flags or jax.distributed.is_initialized()
    if devices is None and platform in (None, "cpu") and not is_count_given:
        with suppress(RuntimeError):  # of JAX, which has started
            jax.config.update("jax_num_cpu_devices", mesh.devices)
    there = devices_of(platform, devices)
    if len(there) < mesh.devices:
        raise InputError(
            f"the plan is for {mesh.devices} devices, and JAX has {len(there)}"
            f"{'' if platform is None else f' of platform {platform!r}'}. On a CPU it has as many "
            f'as you say: jax.config.update("jax_num_cpu_devices", {mesh.devices}), or '
            f'XLA_FLAGS="--xla_force_host_platform_device_count={mesh.devices}", before its '
            "first use"
        )
    names, sizes = (mesh.names, mesh.sizes) if mesh.names else ((ONE,), (1,))
    chosen: Any = np.empty(mesh.devices, object)
    chosen[:] = there[: mesh.devices]
    return JaxMesh(chosen.reshape(sizes), names)


def _devices(platform: str | None) -> list[Any]:
    try:
        return [*cast("list[Any]", jax.devices(platform))]
    except RuntimeError as error:
        raise InputError(f"JAX has no devices of platform {platform!r}: {error}") from error


# Layouts


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """One tiling of a tensor of a shape, as an array over the devices of a mesh."""

    mesh: Mesh
    devices: JaxMesh
    tiling: Tiling
    shape: tuple[int, ...]
    dtype: DType

    @property
    def is_natural(self) -> bool:
        """Whether the array is the tensor itself."""
        cut = self.tiling.cut
        if self.tiling.split or not (self.tiling.has_all(self.shape) and is_plain(cut)):
            return False
        return all(span.units % pieces_by(self.mesh, span.axes) == 0 for span in cut)

    @property
    def spec(self) -> PartitionSpec:
        """Which axes cut which dimension of the array."""
        names = self.mesh.names
        if self.is_natural:
            axes = (tuple(names[a] for a in span.axes) for span in self.tiling.cut)
            return PartitionSpec(*(own or None for own in axes))
        return PartitionSpec(names or None)

    @property
    def sharding(self) -> NamedSharding:
        """How the array is sharded."""
        return NamedSharding(self.devices, self.spec)

    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        if self.is_natural:
            return self.shape
        return (self.mesh.devices, *lying(self.mesh, self.tiling).shape)

    @property
    def traced(self) -> jax.ShapeDtypeStruct:
        """The array without its elements."""
        return jax.ShapeDtypeStruct(self.array_shape, self.dtype, sharding=self.sharding)

    def block(self, array: jax.Array) -> jax.Array:
        """A device's block, of its part of the array."""
        return array if self.is_natural else array.squeeze(0)

    def part(self, block: jax.Array) -> jax.Array:
        """A device's part of the array, of its block."""
        return block if self.is_natural else block[None]

    def put(self, given: Any) -> jax.Array:
        """The array of what was given for a tensor: NumPy's or JAX's, or stored and sliced."""
        with jax.enable_x64(True):
            alone = jax.process_count() == 1
            if self.is_natural and alone and isinstance(given, np.ndarray | jax.Array):
                return jax.device_put(given, self.sharding)
            if isinstance(given, jax.Array):
                given = gathered(given)
            cut = self._natural_block if self.is_natural else self._stacked_block
            return jax.make_array_from_callback(
                self.array_shape, self.sharding, lambda index: cut(given, index), dtype=self.dtype
            )

    def _natural_block(self, given: Any, index: Any) -> Array:
        sizes = zip(index, self.shape, strict=True)
        return block_of(given, tuple(own.indices(size)[:2] for own, size in sizes))

    def _stacked_block(self, given: Any, index: Any) -> Array:
        device: int = index[0].indices(self.mesh.devices)[0]
        own = lying(self.mesh, self.tiling)
        block = np.zeros(own.shape, self.dtype)
        box: Box = own.boxes[device]
        if volume(box):
            block[tuple(slice(0, size) for size in shape_of(box))] = block_of(given, box)
        return block[None]

    def gather(self, array: jax.Array) -> Array:
        """The whole tensor as one array of NumPy's."""
        elements = gathered(array)
        if self.is_natural:
            return elements
        whole = np.empty(self.shape, self.dtype)
        for block, box in zip(elements, lying(self.mesh, self.tiling).boxes, strict=True):
            if volume(box):
                inside = tuple(slice(0, size) for size in shape_of(box))
                whole[tuple(slice(low, high) for low, high in box)] = block[inside]
        return whole


def gathered(array: jax.Array) -> Array:
    """All elements of an array; of one that other processes have parts of, all must ask."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    with jax.enable_x64(True):
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))
