"""From the name of an objective to its prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.planner.costs.bytes_moved import PriceInBytes
from eindecomp.planner.costs.seconds import PriceInSeconds

if TYPE_CHECKING:
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.space.mesh import Mesh


def price_of(objective: str, mesh: Mesh, machine: Machine | None) -> Price:
    """Seconds on the machine for objective "time", else the bytes that really move."""
    if objective == "time" and machine is not None:
        return PriceInSeconds(mesh, machine)
    return PriceInBytes(mesh)
