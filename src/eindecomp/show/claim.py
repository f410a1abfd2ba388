"""What a plan claims: how good it is, among which plans, and what its cost and time leave out."""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING

from eindecomp.planner.costs.price import may_repeat
from eindecomp.planner.space.layout_rules import read_tensors
from eindecomp.show.words import exact, is_proved, percent, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.plan import Plan
    from eindecomp.show.rows import Row

_PIECES = {"balanced": "", "even": ", in equal pieces", "ceil": ", in chunks of the ceiling"}


def claim(plan: Plan) -> str:
    """How close to optimal a plan is, and of what, in one sentence."""
    among = "; ".join(_space(plan))
    if is_proved(plan.gap):
        return f"Proved optimal among: {among}."
    return f"Proved: {bound_words(plan)}, among: {among}."


def bound_words(plan: Plan) -> str:
    """What is proved of a plan that may not be optimal; its gap is relative to its own cost."""
    bound = exact(plan.bound, plan.objective)
    return f"none costs less than {bound}, gap {percent(plan.gap)}"


def _space(plan: Plan) -> Iterator[str]:
    """What the plans have in common among which it was chosen."""
    if plan.objective == "bound":
        equal = "equal " if plan.pieces == "even" else ""
        yield f"all partitions of every vertex into as many {equal}pieces as there are devices"
    elif plan.devices > 1:
        yield f"every nested layout on this mesh{_PIECES[plan.pieces]}"
        yield "at most one extra copy per tensor"
        cut = "any number of devices" if may_repeat(plan.objective) else "all devices"
        yield f"every vertex divided among {cut}{', as far as sizes allow' * bool(repeated(plan))}"
    yield _order_words(plan)
    if plan.objective == "time" and plan.machine is not None and plan.machine.overlap:
        yield "communication beside a vertex's own computing, in equal shares, an approximation"
    limits = {
        "this strategy": plan.strategy is not None,
        "these pins": bool(plan.pin),
        "these ties": bool(plan.tie),
        "this memory limit, counted from above": plan.memory is not None,
    }
    if within := [limit for limit, is_set in limits.items() if is_set]:
        yield f"within {' and '.join(within)}"


def _order_words(plan: Plan) -> str:
    """Which contraction orders were considered."""
    if plan.orders is None or plan.orders.considered < 2:
        return "contraction order as written"
    kind = "all" if plan.orders.complete else "some"
    limit = ""
    if plan.objective != "time" and plan.work != inf:
        limit = f" of at most {plan.work:g} × the least operations"
    return f"{kind} {plan.orders.considered:,} contraction orders{limit}"


def repeated(plan: Plan) -> str:
    """Which vertices several devices compute alike because they cannot be cut further, if any."""
    names = [name for name, parts in plan.parts.items() if prod(parts.values()) < plan.devices]
    if may_repeat(plan.objective) or not names:
        return ""
    which = names[0] if len(names) == 1 else f"{len(names)} of {len(plan.parts)} vertices"
    verb = "is" if len(names) == 1 else "are"
    return (
        f"Devices repeat work: {which} {verb} not cut into {plan.devices} pieces, as the factors "
        "of that number do not fit the sizes."
    )


def not_counted(plan: Plan) -> str:
    """What the cost leaves out, if anything."""
    read = read_tensors(plan.graph)
    free = [v.name for v in plan.graph.inputs if v.name in read and v.name not in plan.given]
    if plan.devices == 1 or not free or plan.objective == "bound":
        return ""
    return "Not counted: placing free inputs where they are wanted, and the memory of their copies."


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
