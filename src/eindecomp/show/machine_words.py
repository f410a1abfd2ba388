"""What a machine's overhead and overlap mean for a plan, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.show.words import percent, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.plan import Plan
    from eindecomp.show.rows import Row


def machine_words(plan: Plan, rows: Sequence[Row]) -> Iterator[str]:
    """Why a plan is coarser than there are devices, and what its seconds leave out."""
    machine = plan.machine
    if plan.objective != "time" or machine is None:
        return
    if machine.task_overhead:
        yield _task_words(plan, rows, machine)
    if machine.overlap:
        yield (
            f"Communication runs beside {percent(machine.overlap)} of computing: a vertex's "
            "fetches and its reduction each beside an equal share of its own kernel calls. Costs "
            "are what they take beyond that."
        )


def _task_words(plan: Plan, rows: Sequence[Row], machine: Machine) -> str:
    """How many vertices are cut into fewer pieces, which need fewer messages."""
    message = "message that was not measured" if machine.transfers else "message"
    overhead = short(machine.task_overhead, "time")
    each = f"Each kernel call and each {message} takes {overhead} more than its work"
    called = [row for row in rows if row.calls]
    total = sum(row.times for row in called)
    coarse = sum(row.times for row in called if row.pieces < plan.devices)
    if not coarse:
        return f"{each}; still every vertex is cut into as many pieces as there are devices."
    are = "is" if coarse == 1 else "are"
    return (
        f"{each}: {coarse} of {total} vertices {are} cut into fewer pieces than there are devices, "
        "which takes fewer messages; several devices compute the same piece."
    )
