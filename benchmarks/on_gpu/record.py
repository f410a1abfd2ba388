"""What was measured on a GPU, as a JSON file holds it; read back to draw it on another machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
from peers.race import Raced

from eindecomp.errors import InputError
from eindecomp.experiments.record import Host, LossCurve, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a GPU: what may be taken, and what was."""

    limit: int
    peak: int
    """The most that tensors took at once."""
    reserved: int
    """The most that torch had taken from the card for them."""


@dataclass(frozen=True, slots=True)
class Row(Raced):
    """A contender in a table."""

    table: str = ""
    predicted: float | None = None
    """The seconds that were expected."""
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a part of the machine is, measured in this run."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What the cases of tables have given so far."""

    rows: tuple[Row, ...] = ()
    curves: tuple[LossCurve, ...] = ()
    speeds: tuple[Speed, ...] = ()
    notes: tuple[str, ...] = ()
    """What must be known to read the figures."""

    def __add__(self, other: Measured) -> Measured:
        mine = {each.name: getattr(self, each.name) for each in fields(self)}
        return Measured(**{name: part + getattr(other, name) for name, part in mine.items()})


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """A run of the tables."""

    quick: bool
    device: str
    """What was computed on, such as a card by its name."""
    date: str
    seconds: float
    machine: Host
    measured: Measured

    @staticmethod
    def of(quick: bool, device: str, seconds: float, measured: Measured) -> GpuRecord:
        """What was measured here, just now."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return GpuRecord(quick, device, date, seconds, Host.here(), measured)

    def json(self) -> bytes:
        """The record as JSON."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2)


def read_records(paths: Sequence[Path]) -> GpuRecord:
    """Former runs as one: the machine and the date are those of the first."""
    first, *others = [_read_record(path) for path in paths]
    for other in others:
        seconds, measured = first.seconds + other.seconds, first.measured + other.measured
        first = replace(first, seconds=seconds, measured=measured)
    return first


def _read_record(path: Path) -> GpuRecord:
    try:
        given: Fields = orjson.loads(path.read_bytes())
        host = given["machine"] | {"blas": tuple(given["machine"]["blas"])}
        return GpuRecord(
            **given | {"machine": Host(**host), "measured": _measured(given["measured"])}
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is no record of a GPU: {error}") from None


def _measured(given: Fields) -> Measured:
    return Measured(
        tuple(_row(row) for row in given["rows"]),
        tuple(
            LossCurve(row["name"], tuple(row["losses"]), row["apart"]) for row in given["curves"]
        ),
        tuple(Speed(**row) for row in given["speeds"]),
        tuple(given["notes"]),
    )


def _row(given: Fields) -> Row:
    timing, memory = given["timing"], given["memory"]
    made: Fields = {
        "timing": None if timing is None else Timing(**timing),
        "memory": None if memory is None else Memory(**memory),
    }
    return Row(**given | made)
