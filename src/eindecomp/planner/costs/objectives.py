"""Objectives: what plans minimize, from their names or as the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.costs.seconds import PriceInSeconds

if TYPE_CHECKING:
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.costs.price import Price

OBJECTIVES = ("bytes", "bound", "time")


@dataclass(frozen=True, repr=False)
class Objective:
    """An objective of the user's own: a name, the prices on a mesh, and their unit.

    Args:
        name: What it is called, such as `"energy"`.
        price: Makes the prices on a mesh, such as `lambda mesh: Joules(mesh)`; see "write an
            objective" in the documentation.
        unit: What costs are shown in, such as `"J"`.
        redundant: Whether several devices may compute the same piece, `True` only if computing has
            a price.

    Raises:
        PlanError: The name is that of a built-in objective.

    Examples:
        >>> from eindecomp.planner.costs.price import PriceInBytes
        >>> Objective("traffic", PriceInBytes, unit="bytes")
        <Objective 'traffic' in bytes>
    """

    name: str
    price: Callable[[Mesh], Price]
    unit: str = ""
    redundant: bool = False

    def __post_init__(self) -> None:
        if self.name in OBJECTIVES:
            raise PlanError(f"objective {self.name!r} is built in: give yours another name")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Objective {self.name!r}{f' in {self.unit}' if self.unit else ''}>"


def price_of(objective: str | Objective, mesh: Mesh, machine: Machine | None) -> Price:
    """Seconds on the machine for "time", the user's own prices, else the bytes that really move."""
    if isinstance(objective, Objective):
        return objective.price(mesh)
    if objective == "time" and machine is not None:
        return PriceInSeconds(mesh, machine)
    return PriceInBytes(mesh)


def may_repeat(objective: str | Objective) -> bool:
    """Whether plans may compute the same piece on several devices."""
    return objective.redundant if isinstance(objective, Objective) else objective == "time"
