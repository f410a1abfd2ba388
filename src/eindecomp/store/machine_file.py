"""Machines as JSON files, which `eindecomp calibrate` writes: profiles of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isinf
from pathlib import Path
from typing import Any, cast

import orjson

from eindecomp.engines.whole_files import write_whole
from eindecomp.layout.mesh import Mesh
from eindecomp.planner.costs.machine import MOST_POINTS, Curve, Machine
from eindecomp.store.field import Field, FileFormat

MACHINE_FILE = FileFormat("machine", "eindecomp machine", 1, ("about", "machine"), 4 << 20)


def save(machine: Machine, path: str | Path, about: Mapping[str, str] | None = None) -> None:
    """Write a machine to a file, completely or not at all."""
    write_whole(Path(path), to_json(machine, about))


def to_json(machine: Machine, about: Mapping[str, str] | None = None) -> bytes:
    """A machine as JSON, with a few words on where it comes from."""
    own = {"about": dict(about or {}), "machine": machine_json(machine)}
    return orjson.dumps(MACHINE_FILE.head() | own, option=orjson.OPT_INDENT_2)


def machine_json(machine: Machine) -> dict[str, Any]:
    """A machine as a JSON object; empty fields are left out."""
    content = {name: plain_json(getattr(machine, name)) for name in _READ_BY}
    content["mesh"] = list(machine.mesh.items())
    return {name: value for name, value in content.items() if value or name in _ALWAYS}


def plain_json(value: Any) -> Any:
    """Numbers, curves and mappings as JSON values; infinity becomes "inf"."""
    match value:
        case Curve():
            return value.points
        case Mapping():
            named = cast("Mapping[str, Any]", value)
            return {name: plain_json(each) for name, each in named.items()}
        case float() if isinf(value):
            return "inf"
        case _:
            return value


def load(path: str | Path) -> Machine:
    """Read a machine from a file, checking all of it."""
    return MACHINE_FILE.load(path, _machine)


def from_json(data: bytes, name: str = "machine") -> Machine:
    """Read a machine from JSON; `name` is what errors call it."""
    return MACHINE_FILE.read(data, name, _machine)


def _machine(root: Field) -> Machine:
    for _, words in root["about"].members():
        words.text()
    return read_machine(root["machine"])


def read_machine(field: Field) -> Machine:
    """The machine that a JSON object describes."""
    field.check_names(_ALWAYS, optional=tuple(_READ_BY))
    given = {name: _READ_BY[name](value) for name, value in field.members()}
    with field.named():
        return Machine(**given)


def _by_name(own: Field) -> float | dict[str, float]:
    if not isinstance(own.value, dict):
        return own.number_or_inf()
    return {name: value.number_or_inf() for name, value in own.members()}


def _transfers(field: Field) -> dict[str, dict[str, Curve]]:
    return {
        collective: {axis: _curve(curve) for axis, curve in curves.members()}
        for collective, curves in field.members()
    }


def _curve(field: Field) -> Curve:
    points: list[tuple[float, float]] = []
    for point in field.items()[: MOST_POINTS + 1]:
        size, seconds = point.items(2, "bytes and seconds")
        points.append((float(size.number()), float(seconds.number())))
    with field.named():
        return Curve(tuple(points))


def read_axes(field: Field) -> dict[str, int]:
    """The axes of a mesh, from a list of names and sizes."""
    axes: dict[str, int] = {}
    for axis in field.items():
        name, size = axis.items(2, "a name and a size")
        if name.text() in axes:
            raise axis.wrong(f"axis {name.value!r} is there twice")
        axes[name.text()] = size.whole(2)
    with field.named():
        Mesh.of_axes(axes)
    return axes


_READ_BY: dict[str, Callable[[Field], Any]] = {
    "flops": _by_name,
    "memory_bandwidth": Field.number_or_inf,
    "bandwidth": _by_name,
    "latency": _by_name,
    "mesh": read_axes,
    "task_overhead": Field.number,
    "overlap": Field.number,
    "transfers": _transfers,
    "rounds": Field.text,
}
"""For each field of a machine, the function that reads it."""
_ALWAYS = ("flops", "memory_bandwidth", "bandwidth", "latency", "mesh")
