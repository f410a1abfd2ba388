"""Which of JAX's devices a plan runs on."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
from jax.sharding import Mesh as JaxMesh

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.layout.mesh import Mesh

ONE = "device"
"""The axis of a mesh of one device, which a plan's mesh does not have."""


def ask_for_cpu_devices(count: int) -> None:
    """Let JAX have so many virtual devices on the CPU, which it must be told before it starts."""
    if not isinstance(count, int) or count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"cpu_devices is a number of devices, not {count!r}")
    asked: int = getattr(jax.config, "jax_num_cpu_devices", -1)
    if asked >= count:
        return
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        found = len(_devices("cpu"))
        if found < count:
            raise InputError(
                f"JAX has started with {found} CPU devices and cannot have {count} now: "
                f'call jax.config.update("jax_num_cpu_devices", {count}) before its first use'
            ) from None


def devices_of(platform: str | None, devices: Sequence[Any] | None) -> list[Any]:
    """The devices that were named, or all that JAX has."""
    return _devices(platform) if devices is None else [*devices]


def mesh_of_devices(
    mesh: Mesh, platform: str | None = None, devices: Sequence[Any] | None = None
) -> JaxMesh:
    """The plan's mesh, of the first devices that JAX has or of those that were named.

    If JAX has not started, and nobody has said how many devices a CPU has, it has enough of them.
    """
    if devices is None and platform in (None, "cpu") and not _is_cpu_count_given():
        with suppress(RuntimeError):  # of JAX, which has started
            jax.config.update("jax_num_cpu_devices", mesh.devices)
    found = devices_of(platform, devices)
    if len(found) < mesh.devices:
        raise InputError(
            f"the plan is for {mesh.devices} devices, and JAX has {len(found)}"
            f"{'' if platform is None else f' of platform {platform!r}'}. On a CPU it has as many "
            f'as you say: jax.config.update("jax_num_cpu_devices", {mesh.devices}), or '
            f'XLA_FLAGS="--xla_force_host_platform_device_count={mesh.devices}", before its '
            f"first use; or the engine's option cpu_devices={mesh.devices}"
        )
    names, sizes = (mesh.names, mesh.sizes) if mesh.names else ((ONE,), (1,))
    chosen: Any = np.empty(mesh.devices, object)
    chosen[:] = found[: mesh.devices]
    return JaxMesh(chosen.reshape(sizes), names)


def _is_cpu_count_given() -> bool:
    """Whether somebody has said how many devices a CPU has, or other processes have some, too."""
    asked: int = getattr(jax.config, "jax_num_cpu_devices", -1)
    in_flags = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    return asked >= 0 or in_flags or jax.distributed.is_initialized()


def _devices(platform: str | None) -> list[Any]:
    try:
        return [*cast("list[Any]", jax.devices(platform))]
    except RuntimeError as error:
        raise InputError(f"JAX has no devices of platform {platform!r}: {error}") from error
