"""Measures contenders in turn, so that other load on the machine slows all of them alike.

Beside times there are bytes: what EinDecomp's plan and the usual strategies move, on 2 to 64
devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

from eindecomp.api.compile import engine_of
from eindecomp.engines.engine import Engine, device_count
from eindecomp.experiments.record import OURS, Kind, Priced, Timed, Timing
from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.rewrite import rewrite
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.strategy import GivenStrategy, applicable
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

DEVICES = (2, 4, 8, 16, 32, 64)
FEW = DEVICES[:3]
_TIME_LIMIT = 20
"""Seconds for each plan; only the largest need more than one."""
_PAUSE = 0.05
"""Seconds before a turn: the threads of the library before may still spin on the cores."""

Way = Callable[[], object]
"""One way to compute something: gives the result, or a `Lapse`."""


@dataclass(frozen=True, slots=True)
class Lapse:
    """A result and its time, from a way that reads the clock itself, as in other processes."""

    seconds: float
    result: object


@dataclass(frozen=True, slots=True)
class Contender:
    """One of those who take turns: one of our plans, or a peer, which has no plan."""

    name: str
    kind: Kind
    way: Way
    plan: Plan | None = None

    def row(self, case: str, timing: Timing, ours: Timing, error: float) -> Timed:
        """What was measured of it, compared with the time of ours."""
        plan, ratio = self.plan, timing.best / ours.best
        if plan is None:
            return Timed(case, self.name, self.kind, None, timing, ratio, error=error)
        cost, moved = int(plan.cost), program_of(plan).moved
        return Timed(case, self.name, self.kind, plan.devices, timing, ratio, cost, moved, error)


Race = Callable[[str, Sequence[Contender], int, tuple[Any, ...]], list[Timed]]
"""Times contenders of a case in so many turns; what a benchmark makes peers from comes last."""


def devices_for(engine: str | Engine) -> int:
    """On how many devices an engine is measured: those that it has."""
    return device_count(engine_of(engine))


def race(case: str, contenders: Sequence[Contender], repeats: int, _given: object) -> list[Timed]:
    """Measure contenders in turn; the first is what the others are compared with."""
    ways = {contender.name: contender.way for contender in contenders}
    timings, firsts = take_turns(ways, repeats)
    ours = contenders[0].name
    return [
        each.row(case, timings[each.name], timings[ours], apart(firsts[each.name], firsts[ours]))
        for each in contenders
    ]


def take_turns(
    ways: Mapping[str, Way], repeats: int, warm_up: bool = True
) -> tuple[dict[str, Timing], dict[str, object]]:
    """The timings and the first results.

    Calls to warm up, which compile and load, are not timed. Every second turn goes
    backwards: what comes after processes that have just ended is slower.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    firsts: dict[str, object] = {}
    names = list(ways)
    for turn in range(repeats + warm_up):
        for name in reversed(names) if turn % 2 else names:
            sleep(_PAUSE)
            start = perf_counter()
            result = ways[name]()
            spent = perf_counter() - start
            if isinstance(result, Lapse):
                spent, result = result.seconds, result.result
            if turn >= warm_up:
                seconds[name].append(spent)
            firsts.setdefault(name, result)
    return {name: timing(spent) for name, spent in seconds.items()}, firsts


def timing(seconds: Sequence[float]) -> Timing:
    """What repeats took.

    >>> timing([2.0, 4.0, 3.0])
    Timing(best=2.0, median=3.0, spread=2.0, repeats=3)
    """
    best = min(seconds)
    return Timing(best, median(seconds), max(seconds) / best, len(seconds))


def apart(result: object, wanted: object) -> float:
    """The largest difference, over the largest value that is wanted."""
    left: np.ndarray[Any, Any] = np.asarray(result, np.float64)
    right: np.ndarray[Any, Any] = np.asarray(wanted, np.float64)
    return float(np.abs(left - right).max() / np.abs(right).max())


def price(
    case: str,
    graph: Graph,
    devices: Sequence[int],
    more: Mapping[str, GivenStrategy] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Priced]:
    """Plan a graph under strategies that its labels allow, and `more` of them."""
    ready = rewrite(graph)
    rows: list[Priced] = []
    for placed in ("free", "sharded"):
        for count in devices:
            ours = 0
            named = applicable(ready, count, stateful=bool(ready.ties))
            strategies: dict[str, GivenStrategy | None] = {OURS: None, **named, **(more or {})}
            for name, strategy in strategies.items():
                say(f"{case}, inputs {placed}: planning {name} for {count} devices")
                plan = make_plan(
                    ready, count, strategy=strategy, inputs=placed, rewrite=False,
                    time_limit=_TIME_LIMIT, keep_on_interrupt=False,
                )  # fmt: skip
                program = program_of(plan)
                moved = program.moved
                ours = moved if name == OURS else ours
                ratio = moved / ours if ours else inf if moved else 1.0
                row = Priced(
                    case, placed, count, name, int(plan.cost), moved, ratio,
                    plan.gap, plan.seconds, fullest(program).bytes,
                )  # fmt: skip
                rows.append(row)
    return rows
