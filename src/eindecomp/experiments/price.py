"""The bytes that EinDecomp's plan and the usual strategies move, on 2 to 64 devices."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from eindecomp.experiments.record import Priced
from eindecomp.graph.rewrites.rewrite import rewrite
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.space.strategy import applicable
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.planner.space.strategy import GivenStrategy

DEVICES = (2, 4, 8, 16, 32, 64)
FEW = DEVICES[:3]
OURS = "eindecomp"
_TIME_LIMIT = 20
"""Seconds for each plan; only the largest need more than one."""


def price(
    case: str,
    graph: Graph,
    inputs: Sequence[str] = ("free", "sharded"),
    devices: Sequence[int] = DEVICES,
    more: Mapping[str, GivenStrategy] | None = None,
    tie: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Priced]:
    """Plan a graph under strategies that its labels allow, and `more` of them.

    `tie` are the inputs that a step leaves for the next one.
    """
    ready = rewrite(graph)
    rows: list[Priced] = []
    for placed in inputs:
        for count in devices:
            ours = 0
            named = applicable(ready, count, stateful=bool(tie))
            strategies: dict[str, GivenStrategy | None] = {OURS: None, **named, **(more or {})}
            for name, strategy in strategies.items():
                say(f"{case}, inputs {placed}: planning {name} for {count} devices")
                plan = make_plan(
                    ready, count, strategy=strategy, inputs=placed, rewrite=False,
                    tie=tie, time_limit=_TIME_LIMIT,
                )  # fmt: skip
                program = program_of(plan)
                moved = program.moved
                ours = moved if name == OURS else ours
                row = Priced(
                    case, placed, count, name, int(plan.cost), moved, _ratio(moved, ours),
                    plan.gap, plan.seconds, fullest(program).bytes,
                )  # fmt: skip
                rows.append(row)
    return rows


def _ratio(moved: int, ours: int) -> float:
    if ours:
        return moved / ours
    return inf if moved else 1.0
