"""Links of an engine that only runs plans: what a run takes longer that also moves a tensor.

One repartition, from rows to columns, stands for every way to fetch and to reduce.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.api.compile import compile as compile_plan
from eindecomp.experiments.calibrate.links import ascending
from eindecomp.graph.text.elaborate import parse
from eindecomp.planner.costs.machine import ANY_AXIS, COLLECTIVES
from eindecomp.planner.make import plan as make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.engine import Engine
    from eindecomp.experiments.calibrate.clock import Clock
    from eindecomp.planner.costs.rates import Curve

_LEAST = 1e-7


def moves(
    engine: Engine,
    devices: int,
    sizes: Sequence[int],
    clock: Clock,
    say: Callable[[str], None],
) -> dict[str, dict[str, Curve]]:
    """The seconds of a repartition, by the bytes that each device receives, for all collectives."""
    points: dict[int, float] = {}
    for size in sizes:
        say(f"repartition of {size} bytes on each device")
        # Of n × n elements in rows, a device lacks (p - 1) of the p squares of its columns.
        side = devices * max(isqrt(size // 4 * devices * devices // (devices - 1)) // devices, 1)
        moving, staying = (_seconds(engine, devices, side, cut, clock) for cut in "ji")
        received = 4 * side * side // devices * (devices - 1) // devices
        points[received] = max(moving - staying, _LEAST)
    curve = ascending(points)
    return {collective: {ANY_AXIS: curve} for collective in COLLECTIVES}


def _seconds(engine: Engine, devices: int, side: int, cut: str, clock: Clock) -> float:
    """A run that makes a tensor in rows, and another of it in rows or in columns."""
    graph = parse(
        f"input X[i: {side}, j: {side}]\nY[i,j] <- X[i,j] + 1\nZ[i,j] <- Y[i,j] * 2\noutput Z",
        "calibrate",
    )
    pins = {"X": {"i": devices}, "Y": {"i": devices}, "Z": {cut: devices}}
    plan = make_plan(graph, devices, pin=pins, rewrite=False)
    with compile_plan(plan, engine) as executable:
        placed = executable.place({"X": np.ones((side, side), np.float32)})
        return clock.best(f"{side} x {side} to {cut}", lambda: executable(placed))
