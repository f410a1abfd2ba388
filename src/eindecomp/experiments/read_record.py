"""Reads a record back from its JSON file, as to draw it on another machine."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.errors import InputError
from eindecomp.experiments.record import (
    Curve,
    Findings,
    Host,
    Memory,
    Priced,
    Record,
    Speed,
    Timed,
    Timing,
)

if TYPE_CHECKING:
    from pathlib import Path

    Fields = dict[str, Any]


def read_record(path: Path) -> Record:
    """The record that was written to a file."""
    try:
        return _record(orjson.loads(path.read_bytes()))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is no record of an experiment: {error}") from None


def _record(given: Fields) -> Record:
    made: Fields = {"findings": _findings(given["findings"]), "machine": _host(given["machine"])}
    return Record(**(given | made))


def _host(given: Fields) -> Host:
    made: Fields = {"blas": tuple(given["blas"])}
    return Host(**(given | made))


def _findings(given: Fields) -> Findings:
    return Findings(
        tuple(_timed(row) for row in given["timed"]),
        tuple(_priced(row) for row in given["priced"]),
        tuple(Curve(row["name"], tuple(row["losses"]), row["apart"]) for row in given["curves"]),
        tuple(Speed(**row) for row in given["speeds"]),
        tuple(given["notes"]),
    )


def _priced(row: Fields) -> Priced:
    made: Fields = {"ratio": inf if row["ratio"] == "inf" else row["ratio"]}
    return Priced(**(row | made))


def _timed(row: Fields) -> Timed:
    timing, memory = row["timing"], row["memory"]
    made: Fields = {
        "timing": None if timing is None else Timing(**timing),
        "memory": None if memory is None else Memory(**memory),
    }
    return Timed(**(row | made))
