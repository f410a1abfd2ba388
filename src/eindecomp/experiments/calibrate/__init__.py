"""Measures this machine with an engine, for plans that minimize time: kernels, tasks and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from operator import itemgetter
from typing import Any

from eindecomp.engines.engine import find_engine
from eindecomp.errors import InputError
from eindecomp.experiments.calibrate.kernels import Say, TurnTimer, kernel_rates, task_overhead
from eindecomp.experiments.calibrate.links import RankLinks, adding, alike_together, measured
from eindecomp.experiments.record import Host
from eindecomp.kernels.cores import cores
from eindecomp.planner.costs.machine import Machine

ENGINES = ("threads", "spmd")
QUIET = 1.5
"""How many times the best turn the median may be on a machine on which nothing else runs."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured, where, and how far repeated turns were apart."""

    machine: Machine
    about: dict[str, str] = field(default_factory=dict[str, str])
    noisiest: str = ""
    """What was measured least alike from turn to turn."""
    spread: float = 1.0
    """The median of its turns over the best."""
    is_first: bool = True
    """Whether this process is the one that reports what was measured."""

    @property
    def is_quiet(self) -> bool:
        """Whether turns were so much alike that nothing else can have run meanwhile."""
        return self.spread <= QUIET


def calibrate(
    engine: str = "threads",
    *,
    quick: bool = False,
    mesh: Mapping[str, int] | None = None,
    say: Say = lambda _: None,
) -> Profile:
    """Measure this machine with an engine.

    For "spmd", every rank of the job calls it; `mesh` gives their axes, by default the prime
    factors of their number.
    """
    if engine not in ENGINES:
        raise InputError(f"engine {engine!r} is not one of {', '.join(ENGINES)}")
    if mesh is not None and engine != "spmd":
        raise InputError(f"a mesh is for the ranks of engine 'spmd', not for {engine!r}")
    powers = (10, 16, 20) if quick else range(10, 27, 2)
    sizes, repeats = tuple(1 << power for power in powers), 3 if quick else 9
    if engine == "spmd":
        return _of_ranks(sizes, repeats, mesh, say)
    return _of_threads(sizes, repeats, say)


def _of_threads(sizes: Sequence[int], repeats: int, say: Say) -> Profile:
    """The threads of this machine, which only read what they fetch."""
    devices, timer = cores(), TurnTimer(repeats)
    say("tasks")
    overhead = task_overhead(find_engine("threads"), devices, timer)
    transfers: Any = {}
    if devices > 1:
        with ThreadPoolExecutor(devices) as pool:
            links = {"reduce_scatter": adding(pool, devices)}
            curves = measured(links, ("threads",), sizes, timer, say)
        transfers = alike_together(curves, ("threads",))
    say("kernels")
    one_tile_each = find_engine("threads", {"workers": cores(), "shortcuts": False})
    rates = kernel_rates(one_tile_each, devices, timer, overhead)
    machine = Machine(*rates, bandwidth=inf, task_overhead=overhead, transfers=transfers)
    return _profile(machine, "threads", devices, timer)


def _of_ranks(
    sizes: Sequence[int], repeats: int, mesh: Mapping[str, int] | None, say: Say
) -> Profile:
    """The ranks of a job, each with one device: what the slowest of them takes."""
    engine: Any = find_engine("spmd")
    links = RankLinks(engine.transport, mesh)
    timer = TurnTimer(repeats, links.turn)
    with links.ending_together():
        say("tasks")
        overhead = task_overhead(engine, links.ranks, timer)
        say("kernels")
        rates = kernel_rates(engine, links.ranks, timer, overhead)
        curves = measured(links.collectives, links.axes, sizes, timer, say)
        say("overlap")
        overlap = links.overlap(timer)
    machine = Machine(
        *rates, bandwidth=inf, mesh=mesh or {}, task_overhead=overhead, overlap=overlap,
        transfers=alike_together(curves, links.axes),
    )  # fmt: skip
    transport = {"transport": links.transport.name}
    return _profile(machine, "spmd", links.ranks, timer, transport, is_first=links.rank == 0)


def _profile(
    machine: Machine,
    engine: str,
    devices: int,
    timer: TurnTimer,
    more: Mapping[str, str] | None = None,
    *,
    is_first: bool = True,
) -> Profile:
    noisiest, spread = max(timer.spreads.items(), key=itemgetter(1))
    host = Host.here()
    about = {
        "engine": engine,
        "devices": str(devices),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": host.cpu,
        "cores": str(host.cores),
        "system": host.system,
        "blas": "; ".join(host.blas),
        **(more or {}),
        "spread": f"{spread:.2f} ({noisiest})",
    }
    return Profile(machine, about, noisiest, spread, is_first)
