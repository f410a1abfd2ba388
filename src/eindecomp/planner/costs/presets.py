"""Machines known by name, for any number of devices; `docs/times.md` says where figures come from.

GPU servers fit a mesh if its innermost axes are the GPUs of a server. Axes called `node…` and
`gpu…` say so themselves; among others, a server has as many GPUs as its size allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import NamedTuple

from eindecomp.errors import PlanError
from eindecomp.layout.mesh import Mesh, prime_factors
from eindecomp.planner.costs.machine import Machine

NODE, GPU = "node", "gpu"


class Link(NamedTuple):
    """What a device receives along an axis: bytes per second, after a latency in seconds."""

    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Servers:
    """Servers of GPUs, as many as are asked for.

    >>> PRESETS["h100-servers"].machine(devices=16).mesh
    {'node0': 2, 'gpu0': 2, 'gpu1': 2, 'gpu2': 2}
    """

    flops: float
    memory_bandwidth: float
    inside: Link
    """Between the GPUs of a server."""
    between: Link
    """Between the servers, for each GPU."""
    gpus: int = 8
    """The most GPUs of a server."""
    usual: int = 1
    """The servers where neither devices nor a mesh are given."""

    def machine(self, devices: int | None = None, axes: Mapping[str, int] | None = None) -> Machine:
        """The machine of a mesh, or of a number of devices.

        Raises:
            PlanError: The mesh does not fit servers; the message has one that does.
        """
        if axes is None:
            axes = self.axes(self.usual * self.gpus if devices is None else devices)
        mesh = Mesh.of_axes(axes)
        links: dict[str, Link] = {}
        border = self._border(mesh)
        for axis, name in enumerate(mesh.names):
            links[name] = self.between if axis < border else self.inside
        return Machine(
            flops=self.flops,
            memory_bandwidth=self.memory_bandwidth,
            bandwidth={name: link.bandwidth for name, link in links.items()},
            latency={name: link.latency for name, link in links.items()},
            mesh=mesh.axes,
        )

    def axes(self, devices: int) -> dict[str, int]:
        """Axes for so many devices: servers outermost, then the GPUs of each, by prime factors."""
        gpus = self._gpus_of(Mesh.of_devices(devices).devices)
        counts = ((NODE, devices // gpus), (GPU, gpus))
        return {
            f"{kind}{i}": factor
            for kind, count in counts
            for i, factor in enumerate(prime_factors(count))
        }

    def _gpus_of(self, devices: int) -> int:
        """The GPUs of each of equal servers: as many as possible."""
        return max(n for n in range(1, self.gpus + 1) if devices % n == 0)

    def _border(self, mesh: Mesh) -> int:
        """The number of axes that lie between servers; those after them lie inside."""
        kinds = [next((k for k in (NODE, GPU) if n.startswith(k)), "") for n in mesh.names]
        if all(kinds) and kinds == sorted(kinds, reverse=True):
            border = kinds.count(NODE)
            if prod(mesh.sizes[border:]) > self.gpus:
                raise self._misfit(mesh, self.axes(mesh.devices))
            return border
        wanted, border = self._gpus_of(mesh.devices), len(mesh.sizes)
        while wanted > 1:
            border -= 1
            size = mesh.sizes[border]
            if wanted % size:
                raise self._misfit(mesh, self._split(mesh, border, wanted))
            wanted //= size
        return border

    def _split(self, mesh: Mesh, axis: int, wanted: int) -> dict[str, int]:
        """A mesh that fits: with one axis in two, of which `wanted` devices are inside a server."""
        if mesh.sizes[axis] % wanted:
            return self.axes(mesh.devices)
        name, size = mesh.names[axis], mesh.sizes[axis]
        halves = [(f"{name}_{NODE}", size // wanted), (f"{name}_{GPU}", wanted)]
        own = list(zip(mesh.names, mesh.sizes, strict=True))
        return dict([*own[:axis], *halves, *own[axis + 1 :]])

    def _misfit(self, mesh: Mesh, fitting: Mapping[str, int]) -> PlanError:
        given = mesh.axes
        return PlanError(
            f"the mesh {given} does not fit servers of {self.gpus} GPUs, whose axes must be the "
            f"innermost: write mesh={dict(fitting)}"
        )


_ROUND = Servers(600e12, 3.3e12, inside=Link(400e9, 3e-6), between=Link(50e9, 10e-6))
PRESETS: dict[str, Machine | Servers] = {
    "cpu-cluster": Machine(flops=1.5e12, memory_bandwidth=200e9, bandwidth=12.5e9, latency=20e-6),
    "gpu-server": _ROUND,
    "4-gpu-servers": replace(_ROUND, usual=4),
    "a100-servers": Servers(200e12, 2.0e12, Link(230e9, 3.4e-6), Link(25e9, 14e-6)),
    "h100-servers": Servers(600e12, 3.35e12, Link(370e9, 3.4e-6), Link(50e9, 14e-6)),
}
"""A CPU cluster on 100 Gb/s Ethernet; servers of 8 GPUs in round figures, one unless more are asked
for, or four; servers of 8 A100 or H100 as NCCL finds them, joined by InfiniBand.
"""


def machine_of(
    given: Machine | str | Path | None,
    devices: int | None = None,
    axes: Mapping[str, int] | None = None,
) -> Machine:
    """A machine, a preset on a mesh or with so many devices, or that of a `calibrate` file."""
    if isinstance(given, Machine):
        return given
    if isinstance(given, str) and given in PRESETS:
        preset = PRESETS[given]
        return preset if isinstance(preset, Machine) else preset.machine(devices, axes)
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".json")):
        return Machine.load(given)
    known = f"an ed.Machine, a .json file that has one, or one of {', '.join(PRESETS)}"
    if given is None:
        raise PlanError(f"objective 'time' needs a machine (machine=, --machine): {known}")
    raise PlanError(f"a machine is {known}, not {given!r}")
