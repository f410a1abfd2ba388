"""The links of a machine: levels of mesh axes, and how collectives use them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.costs.machine import Machine

GATHERS = ("ring", "doubling", "direct")
REDUCES = ("direct", "ring", "doubling")
CARDS = ("device", "node")


@dataclass(frozen=True, slots=True)
class Network:
    """How collectives are made, and who shares a link."""

    gather: str = "ring"
    """All-gathers: level by level from the outermost in, or all messages side by side.

    On a level of n devices, a ring has n - 1 rounds; doubling what everybody has takes log2 n.
    """
    reduce: str = "direct"
    """Reductions: every block straight to who combines it, in the plan's order, or by levels.

    The latter are all-gathers backwards; they combine in an order of their own.
    """
    cards: str = "device"
    """Whether each device has its own links, or those between nodes are shared by a node's devices.

    A shared link carries as much as those of all devices together.
    """

    def __post_init__(self) -> None:
        for what, given, known in (
            ("gather", self.gather, GATHERS),
            ("reduce", self.reduce, REDUCES),
            ("cards", self.cards, CARDS),
        ):
            if given not in known:
                raise InputError(f"{what} {given!r} is not one of {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Level:
    """Neighbouring axes with links that are alike."""

    axes: tuple[int, ...]
    names: tuple[str, ...]
    bandwidth: float
    latency: float

    def __str__(self) -> str:
        ends = dict.fromkeys((self.names[0], self.names[-1]))
        return "…".join(ends)


def levels_of(mesh: Mesh, machine: Machine) -> tuple[Level, ...]:
    """The levels of a mesh, outermost first.

    >>> from eindecomp.planner.costs.machine import PRESETS
    >>> from eindecomp.layout.mesh import Mesh
    >>> machine = PRESETS["4-gpu-servers"]
    >>> [str(level) for level in levels_of(Mesh.of_axes(machine.mesh), machine)]
    ['node0…node1', 'gpu0…gpu2']
    """
    rates = [(machine.bandwidth_of(name), machine.latency_of(name)) for name in mesh.names]
    found: list[Level] = []
    for (bandwidth, latency), run in groupby(range(len(rates)), key=rates.__getitem__):
        axes = tuple(run)
        found.append(Level(axes, tuple(mesh.names[a] for a in axes), bandwidth, latency))
    return tuple(found)
