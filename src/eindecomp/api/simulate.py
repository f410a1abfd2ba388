"""`simulate`: how long a plan takes on a machine that need not be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import InputError
from eindecomp.planner.costs.machine import machine_of
from eindecomp.planner.plan import Plan
from eindecomp.tra.program.make import program_of
from eindecomp.tra.simulation.network import Network
from eindecomp.tra.simulation.simulate import simulate_program

if TYPE_CHECKING:
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.tra.simulation.run import SimulatedRun


def simulate(
    plan: Plan,
    machine: Machine | str | None = None,
    *,
    gather: str = "ring",
    reduce: str = "direct",
    cards: str = "device",
    overlap: bool = True,
) -> SimulatedRun:
    """Simulate a run of a plan: kernels in order, communication beside them, links in turn.

    Communication begins and is waited for where engine spmd does so.

    Args:
        plan: What `ed.plan` made, such as `ed.plan(graph, 4)`.
        machine: An `ed.Machine` or a preset such as `"cpu-cluster"`; by default that of the plan.
        gather: All-gathers are a `"ring"` on each level of the mesh, or `"doubling"` there, or all
            messages at once, `"direct"`.
        reduce: Reductions send every block to who combines it, `"direct"`, or go by levels too:
            `"ring"`, `"doubling"`.
        cards: Whether every `"device"` has its own links to other nodes, or those of a `"node"`
            share theirs.
        overlap: Whether communication runs beside computing; `False`: one step follows another.

    Returns:
        The seconds, and where they go.

    Examples:
        >>> import eindecomp as ed
        >>> text = "input X[i: 64, j: 64], Y[j, k: 64]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z"
        >>> plan = ed.plan(ed.parse(text), 4, inputs="sharded")
        >>> found = ed.simulate(plan, "cpu-cluster")
        >>> bool(found.seconds > found.computing.max()), found.bytes_moved == plan.cost
        (True, True)
    """
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"simulate takes a Plan, as ed.plan makes it, not {type(plan).__name__}")
    if machine is None and plan.machine is None:
        raise InputError("simulate needs a machine: the plan was made for none (machine=)")
    described = machine_of(plan.machine if machine is None else machine)
    network = Network(gather, reduce, cards)
    return simulate_program(program_of(plan), described, network, overlap=overlap)
