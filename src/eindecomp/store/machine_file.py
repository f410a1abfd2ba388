"""Machines as JSON files, which `eindecomp calibrate` writes: profiles of what was measured."""

from __future__ import annotations

from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.errors import PlanError
from eindecomp.layout.mesh import Mesh
from eindecomp.planner.costs.machine import MOST_POINTS, Curve, Machine
from eindecomp.store.field import Field, FileFormat
from eindecomp.store.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

MACHINE_FILE = FileFormat("machine", "eindecomp machine", 1, ("about", "machine"), 4 << 20)
_ALWAYS = ("flops", "memory_bandwidth", "bandwidth", "latency", "mesh")
_OPTIONAL = ("task_overhead", "overlap", "transfers")


def save(machine: Machine, path: str | Path, about: Mapping[str, str] | None = None) -> None:
    """Write a machine to a file, completely or not at all."""
    write_whole(Path(path), to_json(machine, about))


def to_json(machine: Machine, about: Mapping[str, str] | None = None) -> bytes:
    """A machine as JSON, with a few words on where it comes from."""
    own = {"about": dict(about or {}), "machine": machine_json(machine)}
    return orjson.dumps(MACHINE_FILE.head() | own, option=orjson.OPT_INDENT_2)


def machine_json(machine: Machine) -> dict[str, Any]:
    """A machine as an object of a JSON file; what says nothing is left out."""
    rates = ("flops", "memory_bandwidth", "bandwidth", "latency")
    content: dict[str, Any] = {name: _number_json(getattr(machine, name)) for name in rates}
    content["mesh"] = list(machine.mesh.items())
    for name in ("task_overhead", "overlap"):
        if getattr(machine, name):
            content[name] = getattr(machine, name)
    if machine.transfers:
        content["transfers"] = {
            collective: {axis: curve.points for axis, curve in curves.items()}
            for collective, curves in machine.transfers.items()
        }
    return content


def _number_json(given: float | Mapping[str, float]) -> Any:
    if isinstance(given, int | float):
        return "inf" if isinf(given) else given
    return {name: _number_json(value) for name, value in given.items()}


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
    """The machine that an object of a JSON file describes."""
    field.check_names(_ALWAYS, optional=_OPTIONAL)
    mesh = read_mesh(field["mesh"])
    more: dict[str, Any] = {
        name: float(field[name].number()) for name in ("task_overhead", "overlap") if name in field
    }
    if "transfers" in field:
        more["transfers"] = _transfers(field["transfers"])
    rates = _by_name(field["flops"]), field["memory_bandwidth"].number_or_inf()
    links = _by_name(field["bandwidth"]), _by_name(field["latency"])
    axes = dict(zip(mesh.names, mesh.sizes, strict=True))
    try:
        return Machine(*rates, *links, axes, **more)
    except PlanError as error:
        raise field.wrong(str(error)) from None


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
        pair = point.items()
        if len(pair) != 2:
            raise point.wrong("must be bytes and seconds")
        points.append((float(pair[0].number()), float(pair[1].number())))
    try:
        return Curve(tuple(points))
    except PlanError as error:
        raise field.wrong(str(error)) from None


def read_mesh(field: Field) -> Mesh:
    """The axes that a list of names and sizes describes."""
    axes: dict[str, int] = {}
    for axis in field.items():
        pair = axis.items()
        if len(pair) != 2:
            raise axis.wrong("must be a name and a size")
        name = pair[0].text()
        if name in axes:
            raise axis.wrong(f"axis {name!r} is there twice")
        axes[name] = pair[1].whole(2)
    try:
        return Mesh.of_axes(axes)
    except PlanError as error:
        raise field.wrong(str(error)) from None
