"""Machines to plan for: what a device computes per second, and what its links carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real

from eindecomp.errors import PlanError
from eindecomp.planner.space.mesh import Mesh, check_axis_name


@dataclass(frozen=True)
class Machine:
    """A machine; its links are described for all axes alike, or axis by axis, by name.

    >>> Machine(flops=1e12, memory_bandwidth=1e11, bandwidth={"node": 1e9, "gpu": 1e11})
    Machine(flops=1000000000000.0, memory_bandwidth=100000000000.0, ...
    """

    flops: float
    """Operations per second and device."""
    memory_bandwidth: float
    """Bytes per second between a device and its memory."""
    bandwidth: float | Mapping[str, float]
    """Bytes per second that a device receives along an axis."""
    latency: float | Mapping[str, float] = 0.0
    """Seconds before the first byte arrives along an axis."""
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])
    """The machine's own axes, outermost first, if it has any."""

    def __post_init__(self) -> None:
        named = [("flops", self.flops), ("memory_bandwidth", self.memory_bandwidth)]
        named += [(f"bandwidth of {n}", x) for n, x in _by_name(self.bandwidth).items()]
        for name, value in named:
            if not _is_number(value) or not value > 0:
                raise PlanError(f"a machine's {name} must be positive, not {value!r}")
        for name, value in _by_name(self.latency).items():
            if not _is_number(value) or not (value >= 0 and isfinite(value)):
                raise PlanError(f"a machine's latency of {name} must be 0 or more, not {value!r}")
        # Plain numbers, whatever types were given: they are written to files and compared.
        axes = Mesh.of_axes(self.mesh)
        plain = {name: _plain(getattr(self, name)) for name in _RATES}
        plain["mesh"] = dict(zip(axes.names, axes.sizes, strict=True))
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def bandwidth_of(self, axis: str) -> float:
        """Bytes per second along an axis."""
        return _of(self.bandwidth, axis, "bandwidth")

    def latency_of(self, axis: str) -> float:
        """Seconds of latency along an axis."""
        return _of(self.latency, axis, "latency")


_RATES = ("flops", "memory_bandwidth", "bandwidth", "latency")


def _by_name(given: float | Mapping[str, float]) -> dict[str, float]:
    if not isinstance(given, Mapping):
        return {"all axes": given}
    for name in given:
        check_axis_name(name)
    return dict(given)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)  # pyright: ignore[reportUnnecessaryIsInstance]


def _plain(given: float | Mapping[str, float]) -> float | dict[str, float]:
    if isinstance(given, Mapping):
        return {name: float(value) for name, value in given.items()}
    return float(given)


def _of(given: float | Mapping[str, float], axis: str, what: str) -> float:
    if not isinstance(given, Mapping):
        return given
    if axis not in given:
        raise PlanError(f"the machine has no {what} for mesh axis {axis!r}, only for {list(given)}")
    return given[axis]


def _server(nodes: int) -> Machine:
    """8-GPU servers (H100-like, bf16) joined by 400 Gb/s per GPU."""
    outer = [f"node{i}" for i in range(nodes.bit_length() - 1)]
    inner = ["gpu0", "gpu1", "gpu2"]
    return Machine(
        flops=600e12,
        memory_bandwidth=3.3e12,
        bandwidth=dict.fromkeys(outer, 50e9) | dict.fromkeys(inner, 400e9),
        latency=dict.fromkeys(outer, 10e-6) | dict.fromkeys(inner, 3e-6),
        mesh=dict.fromkeys([*outer, *inner], 2),
    )


PRESETS: dict[str, Machine] = {
    "cpu-cluster": Machine(flops=1.5e12, memory_bandwidth=200e9, bandwidth=12.5e9, latency=20e-6),
    "gpu-server": _server(1),
    "4-gpu-servers": _server(4),
}
"""A CPU cluster on 100 Gb/s Ethernet, an 8-GPU server with NVLink, four such servers."""


def machine_of(given: Machine | str | None) -> Machine:
    """A machine, or the preset of that name."""
    if isinstance(given, Machine):
        return given
    if isinstance(given, str) and given in PRESETS:
        return PRESETS[given]
    known = f"an ed.Machine or one of {', '.join(PRESETS)}"
    if given is None:
        raise PlanError(f"objective 'time' needs a machine (machine=, --machine): {known}")
    raise PlanError(f"a machine is {known}, not {given!r}")
