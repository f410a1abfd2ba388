"""`calibrate`: what a machine does with an engine, as a `Machine` and a few words about it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any

from eindecomp.engines.engine import find_engine
from eindecomp.errors import InputError
from eindecomp.experiments.calibrate.engine_links import moves
from eindecomp.experiments.calibrate.kernels import (
    flops_by_shape,
    memory_bandwidth,
    task_overhead,
)
from eindecomp.experiments.calibrate.links import alike_together, measured
from eindecomp.experiments.calibrate.mpi_links import MpiLinks
from eindecomp.experiments.calibrate.shared_memory import SharedMemory
from eindecomp.experiments.record import Host
from eindecomp.kernels.cores import cores
from eindecomp.planner.costs.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eindecomp.engines.engine import Engine

ENGINES = ("threads", "spmd", "ray")


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: sizes of messages in bytes, and repeats of everything."""

    sizes: tuple[int, ...]
    repeats: int

    @staticmethod
    def of(quick: bool) -> Effort:
        """A few sizes and repeats, or all of them."""
        powers = (10, 16, 20) if quick else range(10, 27, 2)
        return Effort(tuple(1 << power for power in powers), 3 if quick else 9)


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured, where, and what could not be."""

    machine: Machine
    about: dict[str, str] = field(default_factory=dict[str, str])
    is_first: bool = True
    """Whether this is the one process of all that tells what was measured."""


def calibrate(
    engine: str = "threads",
    *,
    quick: bool = False,
    mesh: Mapping[str, int] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Profile:
    """Measure this machine with an engine.

    For "spmd", every rank that MPI has started calls it; `mesh` gives their axes, by default the
    prime factors of their number.
    """
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is not one of {', '.join(ENGINES)}")
    if mesh is not None and engine != "spmd":
        raise InputError(f"a mesh is for the ranks of engine 'spmd', not for {engine!r}")
    effort = Effort.of(quick)
    if engine == "spmd":
        return _of_ranks(effort, mesh, say)
    if engine == "ray":
        return _of_runs(engine, effort, say)
    return _of_threads(effort, say)


def _of_threads(effort: Effort, say: Callable[[str], None]) -> Profile:
    """Cores that share memory: what is fetched is only read."""
    devices, repeats = cores(), effort.repeats
    say("tasks")
    overhead = task_overhead(find_engine("threads"), devices, repeats)
    transfers: Any = {}
    if devices > 1:
        with SharedMemory(devices) as links:
            curves = measured(links, effort.sizes, repeats, say)
        transfers = alike_together(curves, links.axes)
    machine = Machine(
        *_kernels(devices, repeats, overhead, say), bandwidth=inf,
        task_overhead=overhead, transfers=transfers,
    )  # fmt: skip
    return Profile(machine, _about("threads", devices))


def _of_ranks(
    effort: Effort, mesh: Mapping[str, int] | None, say: Callable[[str], None]
) -> Profile:
    """Ranks that MPI has started, each with one device."""
    links = MpiLinks(mesh)
    with links.ending_together():
        return _of_links(links, effort, mesh, say)


def _of_links(
    links: MpiLinks, effort: Effort, mesh: Mapping[str, int] | None, say: Callable[[str], None]
) -> Profile:
    """What the slowest rank takes."""
    about = _about("spmd", links.ranks)
    overhead = 0.0
    if (own := _engine("spmd")) is None:
        about["task overhead"] = "not measured: engine 'spmd' cannot be loaded here"
    else:
        overhead = links.slowest(task_overhead(own, links.ranks, effort.repeats))
    links.slowest(0.0)
    flops, bandwidth = _kernels(1, effort.repeats, 0.0, say)
    flops = {name: 1 / links.slowest(1 / rate) for name, rate in flops.items()}
    curves = measured(links, effort.sizes, effort.repeats, say)
    transfers = alike_together(curves, links.axes)
    machine = Machine(
        flops, 1 / links.slowest(1 / bandwidth), bandwidth=inf, mesh=mesh or {},
        task_overhead=overhead, overlap=links.overlap(effort.repeats), transfers=transfers,
    )  # fmt: skip
    return Profile(machine, about, is_first=links.rank == 0)


def _of_runs(name: str, effort: Effort, say: Callable[[str], None]) -> Profile:
    """An engine of which nothing is known but that it runs plans."""
    engine, devices = _engine(name), max(cores(), 2)
    if engine is None:
        raise InputError(f"engine {name!r} cannot be loaded here")
    say("tasks")
    overhead = task_overhead(engine, devices, effort.repeats, tasks=16)
    machine = Machine(
        *_kernels(cores(), effort.repeats, 0.0, say), bandwidth=inf,
        task_overhead=overhead,
        transfers=moves(engine, devices, effort.sizes, effort.repeats, overhead, say),
    )  # fmt: skip
    return Profile(machine, _about(name, devices))


def _kernels(
    devices: int, repeats: int, overhead: float, say: Callable[[str], None]
) -> tuple[dict[str, float], float]:
    """What each of some devices computes and moves to and from memory, all at once."""
    say("kernels")
    tiles = find_engine("threads", {"workers": devices, "shortcuts": False})
    flops = flops_by_shape(tiles, devices, repeats, overhead)
    return flops, memory_bandwidth(tiles, devices, repeats, overhead)


def _engine(name: str) -> Engine | None:
    """An engine, if what it needs is there."""
    with suppress(ImportError):
        return find_engine(name)
    return None


def _about(engine: str, devices: int) -> dict[str, str]:
    host = Host.here()
    return {
        "engine": engine,
        "devices": str(devices),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": host.cpu,
        "cores": str(host.cores),
        "system": host.system,
        "blas": "; ".join(host.blas),
    }
