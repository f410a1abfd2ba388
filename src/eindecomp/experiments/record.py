"""What an experiment measured, and on which machine, as a JSON file holds it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, cast

import orjson
from threadpoolctl import threadpool_info

from eindecomp.kernels.cores import cores

Kind = Literal["ours", "strategy", "peer", "floor"]
"""A floor is computed from measured speeds: what no contender can be faster than."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds over a number of repeats; the spread is the slowest over the fastest.

    No repeats: it was computed, or measured by a program of its own.
    """

    best: float
    median: float
    spread: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Timed:
    """One contender in one case, measured in turn with the others of that case."""

    case: str
    name: str
    kind: Kind
    devices: int | None = None
    timing: Timing | None = None
    ratio: float | None = None
    """Its best seconds over ours: more than 1 means that we are faster."""
    plan_cost: int | None = None
    bytes_counted: int | None = None
    error: float | None = None
    """The largest difference from our result, over our largest value."""
    absent: str | None = None
    """Why nothing was measured."""
    agreement: float | None = None
    """The share of rows whose largest value is where it is in ours."""


@dataclass(frozen=True, slots=True)
class Priced:
    """What the plan of one strategy moves; `eindecomp` is the plan without one."""

    case: str
    inputs: str
    devices: int
    name: str
    plan_cost: int
    bytes_counted: int
    """Counted from the program that an engine is given."""
    ratio: float
    """To EinDecomp's own plan: infinite where that moves nothing, which JSON holds as null."""
    gap: float
    planning_seconds: float
    memory: int
    """The most bytes that the fullest device holds at once."""


@dataclass(frozen=True, slots=True)
class LossCurve:
    """The losses of one contender, step by step."""

    name: str
    losses: tuple[float, ...]
    apart: float
    """The largest relative difference from ours."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What an experiment measured and counted."""

    timed: tuple[Timed, ...]
    priced: tuple[Priced, ...]
    curves: tuple[LossCurve, ...] = ()


# The machine that something was measured on: its processor, memory, BLAS and packages

_PACKAGES = (
    "eindecomp", "numpy", "scipy", "numba", "dask", "torch", "triton", "transformers",
    "accelerate", "deepspeed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Host:
    """Where something was measured."""

    system: str
    cpu: str
    cores: int
    memory: int
    """In bytes."""
    blas: tuple[str, ...]
    """Every BLAS that is loaded: name, version, and the core that its kernels are for."""
    versions: dict[str, str]

    @staticmethod
    def here() -> Host:
        """This machine."""
        import scipy.linalg  # pyright: ignore[reportUnusedImport]  # noqa: F401 - loads its BLAS
        from llvmlite import binding

        versions = {"python": platform.python_version()}
        for package in _PACKAGES:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                continue
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        system = f"{platform.system()} {platform.machine()}"
        blas: dict[str, None] = {}
        for info in cast("list[dict[str, Any]]", threadpool_info()):
            if info["user_api"] == "blas":
                told = (info["internal_api"], info.get("version"), info.get("architecture"))
                blas[" ".join(word for word in told if word)] = None
        cpu = str(binding.get_host_cpu_name())
        return Host(system, cpu, cores(), memory, tuple(blas), versions)


@dataclass(frozen=True, slots=True)
class Record:
    """A run of an experiment."""

    experiment: str
    quick: bool
    engine: str
    """The name of the engine that ours ran on."""
    date: str
    seconds: float
    machine: Host
    findings: Findings

    @staticmethod
    def of(
        experiment: str, quick: bool, seconds: float, findings: Findings, engine: str = "threads"
    ) -> Record:
        """What was measured here, just now."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return Record(experiment, quick, engine, date, seconds, Host.here(), findings)

    def json(self) -> bytes:
        """The record as JSON."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2)
