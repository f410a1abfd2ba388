"""What an experiment measured, and on which machine: as a JSON file holds it, and as tables."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, cast

import orjson
from rich.table import Table
from rich.text import Text
from threadpoolctl import threadpool_info

from eindecomp.kernels.cores import cores
from eindecomp.show.words import ratio, render, short, table

OURS = "eindecomp"
Kind = Literal["ours", "strategy", "peer", "floor"]
"""A floor is a time that no contender can beat, computed from measured speeds."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds over a number of repeats; the spread is the slowest over the fastest.

    Zero repeats mean that the time was computed, or measured by another program.
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


# A record as tables

Columns = Mapping[str, Callable[[Any], str]]
"""For each column, what a row has in it."""

WIDTH = 160
FREE = (
    "Free inputs lie wherever they are read: placing them there is not counted, and the copies "
    "that this needs are in memory.\n"
)


def show(record: Record, width: int = WIDTH) -> str:
    """The tables of a record, as text."""
    findings = record.findings
    head = heading(f"{record.experiment} on {record.engine}", record.date, record.machine)
    parts: list[Text | Table] = [Text(head)]
    parts += times(findings.timed, TIME_COLUMNS, "Time, and bytes that moved")
    for (case, inputs), rows in grouped(findings.priced).items():
        title = "Bytes that plans move, how many times as much as ours, and memory per device: "
        parts += [Text(f"{title}{case}, inputs {inputs}"), _moves(rows)]
        parts += [Text(FREE)] if inputs == "free" else []
    if findings.curves:
        parts += [Text("Losses"), losses(findings.curves)]
    return render(width, *parts)


def heading(what: str, date: str, machine: Host) -> str:
    """What was measured, when, and on which machine."""
    memory, blas = short(machine.memory, "bytes"), "; ".join(machine.blas)
    where = f"{machine.cores} cores, {machine.cpu}, {machine.system}, {memory}, BLAS: {blas}"
    return f"{what}, {date}\n{where}\n"


def grouped(rows: tuple[Priced, ...]) -> dict[tuple[str, str], list[Priced]]:
    """Rows by case and by where inputs lie."""
    groups: dict[tuple[str, str], list[Priced]] = {}
    for row in rows:
        groups.setdefault((row.case, row.inputs), []).append(row)
    return groups


def times(rows: Sequence[Timed], columns: Columns, title: str) -> list[Text | Table]:
    """A table of times, with the columns that some row has anything in, and who is absent."""
    filled = [(name, cell) for name, cell in columns.items() if any(map(cell, rows))]
    shown = table("who", *(name for name, _ in filled))
    case = ""
    for row in rows:
        if row.case != case:
            case = row.case
            shown.add_section()
            shown.add_row(Text(case, style="bold"))
        cells = ["", "absent"] if row.timing is None else [cell(row) for _, cell in filled]
        shown.add_row(Text("  " + row.name), *map(Text, cells))
    reasons = dict.fromkeys((row.name, row.absent) for row in rows if row.absent is not None)
    absent = [Text(f"{name} is absent: {reason}") for name, reason in reasons]
    return [Text(title), shown, *absent, Text("")]


def _amount(known: float | None, of: str) -> str:
    return "" if known is None else short(known, of)


TIME_COLUMNS: Columns = {
    "devices": lambda row: "" if row.devices is None else str(row.devices),
    "best": lambda row: _amount(row.timing and row.timing.best, "time"),
    "median": lambda row: _amount(row.timing and row.timing.median, "time"),
    "spread": lambda row: f"{row.timing.spread:.2f}" if row.timing and row.timing.repeats else "",
    "its time / ours": lambda row: "" if row.ratio is None else f"{row.ratio:.3f}",
    "plan cost": lambda row: _amount(row.plan_cost, "bytes"),
    "counted": lambda row: _amount(row.bytes_counted, "bytes"),
    "error": lambda row: "" if row.error is None else f"{row.error:.1e}",
}


def _moves(rows: list[Priced]) -> Table:
    names = list(dict.fromkeys(row.name for row in rows))
    shown = table("devices", *names)
    for devices in dict.fromkeys(row.devices for row in rows):
        cells = dict.fromkeys(names, "")
        for row in rows:
            if row.devices == devices:
                again = "" if row.name == OURS else f" ({ratio(row.ratio)})"
                sizes = [short(size, "bytes") for size in (row.bytes_counted, row.memory)]
                cells[row.name] = f"{sizes[0]}{again}, {sizes[1]}"
        shown.add_row(str(devices), *map(Text, cells.values()))
    return shown


def losses(curves: Sequence[LossCurve]) -> Table:
    """The first and the last loss of everybody."""
    shown = table("who", "steps", "first", "last", "apart from ours")
    for curve in curves:
        first, last = curve.losses[0], curve.losses[-1]
        cells = (str(len(curve.losses)), f"{first:.5f}", f"{last:.5f}", f"{curve.apart:.1e}")
        shown.add_row(Text(curve.name), *map(Text, cells))
    return shown
