"""What an experiment found, and on which machine, as a JSON file holds it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from math import isinf
from pathlib import Path
from typing import Any, Literal

import orjson

from eindecomp.experiments.blas import loaded_blas
from eindecomp.kernels.cores import cores

Kind = Literal["ours", "strategy", "peer"]
_PACKAGES = ("eindecomp", "numpy", "scipy", "numba", "torch", "dask", "transformers")


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds over a number of repeats; the spread is the slowest over the fastest."""

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
    """To EinDecomp's own plan: infinite where that moves nothing."""
    gap: float
    planning_seconds: float
    memory: int
    """The most bytes that the fullest device holds at once."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The losses of one contender, step by step."""

    name: str
    losses: tuple[float, ...]
    apart: float
    """The largest relative difference from ours."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where it was measured."""

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
        found = {"python": platform.python_version()}
        for package in _PACKAGES:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        system = f"{platform.system()} {platform.machine()}"
        return Host(system, _cpu(), cores(), memory, _blas(), found)


@dataclass(frozen=True, slots=True)
class Findings:
    """What an experiment measured and counted."""

    timed: tuple[Timed, ...]
    priced: tuple[Priced, ...]
    curves: tuple[Curve, ...] = ()


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
        """What was found here and now."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return Record(experiment, quick, engine, date, seconds, Host.here(), findings)

    def json(self) -> bytes:
        """The record as JSON, infinite ratios as "inf"."""
        return orjson.dumps(_plain(asdict(self)), option=orjson.OPT_INDENT_2)


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    match value:
        case dict():
            return {name: _plain(part) for name, part in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [_plain(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
        case float() if isinf(value):
            return "inf"
        case _:
            return value


def _cpu() -> str:
    """The name that the system gives, or on those that give none, the compiler's."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, model = line.partition(":")
            if name.strip() == "model name" and model.strip():
                return model.strip()
    except OSError:
        pass
    from llvmlite import binding

    return str(binding.get_host_cpu_name())


def _blas() -> tuple[str, ...]:
    import scipy.linalg  # pyright: ignore[reportUnusedImport]  # noqa: F401 - loads its BLAS

    return tuple(dict.fromkeys(map(str, loaded_blas())))
