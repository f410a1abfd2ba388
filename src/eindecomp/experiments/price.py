"""The bytes that EinDecomp's plan and the usual strategies move, on 2 to 64 devices."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from eindecomp.experiments.record import Priced
from eindecomp.graph.rewrites.rewrite import rewrite
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.space.strategy import applicable
from eindecomp.tra.program.make import program_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eindecomp.graph.graph import Graph

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
    more: Mapping[str, Sequence[str]] | None = None,
    without: Collection[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> list[Priced]:
    """Plan a graph under strategies that its labels allow, `more` of them or `without` some."""
    ready = rewrite(graph)
    strategies = {OURS: None, **applicable(ready, without), **(more or {})}
    rows: list[Priced] = []
    for placed in inputs:
        for count in devices:
            ours = 0
            for name, strategy in strategies.items():
                say(f"{case}, inputs {placed}: planning {name} for {count} devices")
                plan = make_plan(
                    ready, count, strategy=strategy, inputs=placed, rewrite=False,
                    time_limit=_TIME_LIMIT,
                )  # fmt: skip
                moved = program_of(plan).moved
                ours = moved if name == OURS else ours
                row = Priced(
                    case, placed, count, name, int(plan.cost), moved, _ratio(moved, ours),
                    plan.gap, plan.seconds,
                )  # fmt: skip
                rows.append(row)
    return rows


def _ratio(moved: int, ours: int) -> float:
    if ours:
        return moved / ours
    return inf if moved else 1.0
