"""What an experiment found, and on which machine, as a JSON file holds it."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from math import isinf
from pathlib import Path
from typing import Any, Literal

import orjson

from eindecomp.experiments.blas import loaded_blas
from eindecomp.kernels.cores import cores

Kind = Literal["ours", "strategy", "peer", "floor"]
"""A floor is computed from measured speeds: what no contender can be faster than."""
_PACKAGES = (
    "eindecomp", "numpy", "scipy", "numba", "dask", "torch", "triton", "transformers",
    "accelerate", "deepspeed",
)  # fmt: skip


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
class Memory:
    """Bytes of a GPU: what may be taken, and what was."""

    limit: int
    peak: int
    """The most that tensors took at once."""
    reserved: int
    """The most that torch had taken from the card for them."""


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
    table: str = ""
    """The table that the case belongs to, where an experiment has several."""
    agreement: float | None = None
    """The share of rows whose largest value is where it is in ours."""
    predicted: float | None = None
    """The seconds that were expected."""
    memory: Memory | None = None


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
class Speed:
    """How fast a part of the machine is, measured in this run."""

    name: str
    value: float
    unit: str


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
    speeds: tuple[Speed, ...] = ()
    notes: tuple[str, ...] = ()
    """What must be known to read the figures."""

    def __add__(self, other: Findings) -> Findings:
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return Findings(**{name: part + getattr(other, name) for name, part in parts.items()})


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
    device: str | None = None
    """What an engine that has devices of its own computed on, such as a card by its name."""

    @staticmethod
    def of(
        experiment: str,
        quick: bool,
        seconds: float,
        findings: Findings,
        engine: str = "threads",
        device: str | None = None,
    ) -> Record:
        """What was found here and now."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return Record(experiment, quick, engine, date, seconds, Host.here(), findings, device)

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
