"""Measures contenders in turn, so that other load on the machine slows all of them alike.

Beside times there are bytes: what EinDecomp's plan and the usual strategies move, on 2 to 64
devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from math import inf
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

from eindecomp.api.compile import engine_of
from eindecomp.engines.engine import Engine, Ranks, device_count
from eindecomp.engines.engine import ranks_of as engine_ranks
from eindecomp.experiments.record import Kind, Priced, Timed, Timing
from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.rewrite import rewrite
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.strategy import GivenStrategy, applicable
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

DEVICES = (2, 4, 8, 16, 32, 64)
FEW = DEVICES[:3]
OURS = "eindecomp"
_TIME_LIMIT = 20
"""Seconds for each plan; only the largest need more than one."""


_PAUSE = 0.05
"""Seconds before a turn: the threads of the library before may still spin on the cores."""

Way = Callable[[], object]
"""One way to compute something: gives the result, or a `Lapse`."""
Peer = Callable[[], AbstractContextManager[Way]]
"""Sets a way up and tears it down again; raises `Absent` if that is impossible."""


class Absent(Exception):  # noqa: N818 - not an error: a peer that is not there
    """A peer that cannot be measured here, and why."""


@dataclass(frozen=True, slots=True)
class Lapse:
    """The result of a way that reads the clock itself, as one in other processes does."""

    seconds: float
    result: object


@dataclass(frozen=True, slots=True)
class Contender:
    """One of our plans, and how it is run."""

    name: str
    kind: Kind
    way: Way
    plan: Plan


def ranks_of(engine: str | Engine) -> int | None:
    """How many ranks an engine runs as; None if it runs in one process."""
    ranks = engine_ranks(engine)
    return None if type(ranks) is Ranks else ranks.size


def devices_for(engine: str | Engine) -> int:
    """On how many devices an engine is measured: those that it has."""
    return device_count(engine_of(engine))


def peers_beside(engine: str | Engine, peers: Mapping[str, Peer]) -> Mapping[str, Peer]:
    """Those that can be measured beside an engine: none where all ranks of a job would start."""
    return {} if ranks_of(engine) else peers


def race(
    case: str,
    ours: Sequence[Contender],
    peers: Mapping[str, Peer],
    repeats: int,
    warm_up: bool = True,
    *,
    compare_rows: bool = False,
) -> list[Timed]:
    """Measure our plans and peers in turn; the first is what the others are compared with.

    With `compare_rows` also by where the largest value of each row is, as of logits.
    """
    absent: dict[str, str] = {}
    ways = {contender.name: contender.way for contender in ours}
    with ExitStack() as stack:
        for name, peer in peers.items():
            try:
                ways[name] = stack.enter_context(peer())
            except Absent as reason:
                absent[name] = str(reason)
            except Exception as error:
                absent[name] = failure(error)
        for name in [name for name in ways if name in peers]:
            ways[name] = _guarded(name, ways[name], absent)
        timings, firsts = take_turns(ways, repeats, warm_up)
    reference = ours[0].name
    rows: list[Timed] = []
    plans = {contender.name: contender for contender in ours}
    for name in [*plans, *peers]:
        if name in absent:
            rows.append(Timed(case, name, "peer", absent=absent[name]))
            continue
        found = plans.get(name)
        row = Timed(
            case,
            name,
            "peer" if found is None else found.kind,
            None if found is None else found.plan.devices,
            timings[name],
            timings[name].best / timings[reference].best,
            None if found is None else int(found.plan.cost),
            None if found is None else program_of(found.plan).moved,
            apart(firsts[name], firsts[reference]),
            agreement=same_largest(firsts[name], firsts[reference]) if compare_rows else None,
        )
        rows.append(row)
    return rows


def _guarded(name: str, way: Way, absent: dict[str, str]) -> Way:
    """A peer that fails once is out of the race; what was measured of the others is kept."""

    def turn() -> object:
        if name in absent:
            return None
        try:
            return way()
        except Exception as error:
            absent[name] = failure(error)
            return None

    return turn


def failure(error: Exception) -> str:
    """Why something was not measured that should have been."""
    return f"it failed: {error or type(error).__name__}"


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


def apart(found: object, wanted: object) -> float:
    """The largest difference, over the largest value that is wanted."""
    left: np.ndarray[Any, Any] = np.asarray(found, np.float64)
    right: np.ndarray[Any, Any] = np.asarray(wanted, np.float64)
    return float(np.abs(left - right).max() / np.abs(right).max())


def same_largest(found: object, wanted: object) -> float:
    """The share of rows whose largest value is at the place where it is wanted.

    >>> same_largest([[1, 2], [4, 3]], [[0, 9], [7, 8]])
    0.5
    """
    left, right = (np.asarray(each, np.float64).argmax(-1) for each in (found, wanted))
    return float((left == right).mean())


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
                ratio = moved / ours if ours else inf if moved else 1.0
                row = Priced(
                    case, placed, count, name, int(plan.cost), moved, ratio,
                    plan.gap, plan.seconds, fullest(program).bytes,
                )  # fmt: skip
                rows.append(row)
    return rows
