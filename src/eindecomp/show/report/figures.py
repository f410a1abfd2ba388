"""The few figures at the top of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.show.explain import meaning
from eindecomp.show.words import exact, is_proved, percent, short
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.planner.plan import Plan

_QUICK = 1 << 15  # vertices on devices whose memory is worked out in a few seconds


def figures(plan: Plan, strategies: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """What is told first: cost, gap, bytes, memory, each with a word of explanation."""
    found = [
        _figure("cost", short(plan.cost, plan.objective), _in_full(plan)),
        _gap(plan),
    ]
    if plan.objective != "bytes":
        moved = plan.traffic.total
        found.append(_figure("bytes that move", short(moved, "bytes"), "received by all devices"))
    found.append(_memory(plan, strategies))
    computed = len(plan.parts)
    found.append(
        _figure("devices", f"{plan.devices:,}", f"{computed:,} vertices are computed on them")
    )
    return found


def _figure(name: str, value: str, note: str) -> dict[str, str]:
    return {"name": name, "value": value, "note": note}


def _in_full(plan: Plan) -> str:
    return f"{plan.cost:,} bytes {meaning(plan)}" if plan.objective == "bytes" else meaning(plan)


def _gap(plan: Plan) -> dict[str, str]:
    bound = exact(plan.bound, plan.objective)
    if is_proved(plan.gap):
        return _figure("gap", "0 %", f"proved optimal: no such plan costs less than {bound}")
    return _figure("gap", percent(plan.gap), f"no such plan costs less than {bound}")


def memory_of(plan: Plan) -> int | None:
    """The bytes that the fullest device holds; None where that is not known soon, or at all."""
    if plan.objective == "bound" or plan.devices * len(plan.graph.vertices) > _QUICK:
        return None
    return fullest(program_of(plan)).bytes


def _memory(plan: Plan, strategies: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What the fullest device holds."""
    if plan.objective == "bound":
        return _figure("memory", "–", "the paper's bound does not say where pieces lie")
    most = strategies[0]["memory"] if strategies else memory_of(plan)
    if most is None:
        return _figure("memory", "–", "not computed")
    return _figure("memory", short(most, "bytes"), "held at once by the fullest device")
