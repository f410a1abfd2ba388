"""How fast devices compute, all of them at once: products of each shape, loops, and memory.

The timer tells how long something takes, and how far repeats are apart.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from statistics import median
from time import perf_counter
from typing import NamedTuple

import numpy as np

from eindecomp.api.compile import compile as compile_plan
from eindecomp.engines.engine import Engine
from eindecomp.graph.graph import Graph
from eindecomp.graph.text.elaborate import parse
from eindecomp.graph.work import operations
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan

Way = Callable[[], object]
"""Does once what is measured."""
Say = Callable[[str], None]
_TURN = 1e-3  # seconds that a turn takes at least, if it need not be of too many calls
_MOST = 100  # calls in one turn


def seconds_each(way: Way, times: int = 1) -> float:
    """The seconds of one of several calls in a row."""
    start = perf_counter()
    for _ in range(times):
        way()
    return (perf_counter() - start) / times


class TurnTimer:
    """Times everything in several turns, and notes how far these are apart.

    `turn` gives the seconds of one of several calls in a row. Where several devices take part, it
    gives all of them the same.
    """

    def __init__(self, repeats: int, turn: Callable[[Way, int], float] = seconds_each) -> None:
        self._repeats, self._turn = repeats, turn
        self.spreads: dict[str, float] = {}
        """For each thing that was timed, the median of its turns over the best."""

    def best(self, what: str, way: Way) -> float:
        """The least seconds of a call over all turns: what other load adds is left out.

        What is brief is called many times in a row, so that a turn's beginning hardly counts.

        >>> timer = TurnTimer(3)
        >>> timer.best("nothing", lambda: None) < 1
        True
        >>> timer.spreads["nothing"] >= 1
        True
        """
        self._turn(way, 1)  # compiles and connects
        times = min(max(round(_TURN / max(self._turn(way, 1), 1e-9)), 1), _MOST)
        turns = [self._turn(way, times) for _ in range(self._repeats)]
        self.spreads[what] = median(turns) / min(turns)
        return min(turns)


def slope(few: tuple[int, float], many: tuple[int, float]) -> float:
    """What one more of something takes, from the seconds of few and of many; never nothing.

    >>> slope((2, 5.0), (4, 9.0)), slope((2, 5.0), (4, 5.0))
    (2.0, 1.25)
    """
    (n, short), (m, long) = few, many
    more = (long - short) / (m - n)
    return more if more > 0 else long / m


class Shape(NamedTuple):
    """What every device computes: a vertex over `b` devices, and the sizes of its labels."""

    vertex: str
    inputs: tuple[str, ...]
    sizes: dict[str, int]
    counts: tuple[int, int] = (2, 6)
    """Equal vertices in two runs; what more of them take is without what a run takes by itself."""


_PRODUCT = "[b,i,k] <- sum X[b,i,j] * Y[b,j,k]"
SHAPES = {
    "huge": Shape(_PRODUCT, ("bij", "bjk"), {"i": 1024, "j": 1024, "k": 1024}, (1, 3)),
    "large": Shape(_PRODUCT, ("bij", "bjk"), {"i": 384, "j": 384, "k": 384}),
    "thin": Shape(_PRODUCT, ("bij", "bjk"), {"i": 8, "j": 512, "k": 512}),
    "vector": Shape("[b,k] <- sum X[b,j] * Y[b,j,k]", ("bj", "bjk"), {"j": 512, "k": 512}),
    "loops": Shape(
        "[b,i,k] <- max abs(X[b,i,j] - Y[b,j,k])", ("bij", "bjk"), {"i": 64, "j": 64, "k": 64}
    ),
}
"""The products have about the intensities for which a machine gives rates."""
FUNCTIONS = Shape("[b,i] <- exp(X[b,i] - Y[b,i])", ("bi", "bi"), {"i": 1 << 16})
MEMORY = Shape("[b,i] <- X[b,i] + Y[b,i]", ("bi", "bi"), {"i": 1 << 22})


def kernel_rates(
    engine: Engine, devices: int, timer: TurnTimer, overhead: float
) -> tuple[dict[str, float], float]:
    """What one device does per second: operations for each shape, and bytes of memory."""
    rates: dict[str, float] = {}
    for name, shape in {**SHAPES, "functions": FUNCTIONS, "memory": MEMORY}.items():
        few, many = (
            run_seconds(engine, plan_of(repeated(shape, devices, n), devices), timer, f"{n} {name}")
            for n in shape.counts
        )
        each = slope((shape.counts[0], few), (shape.counts[1], many))
        seconds = each - overhead if overhead < 0.5 * each else each
        graph = repeated(shape, devices, 1)
        elements = prod(shape.sizes.values())
        work = operations(graph, graph["Z0"]) / devices if name in SHAPES else elements
        rates[name] = work / seconds
    return rates, 3 * 4 * rates.pop("memory")  # two elements are read and one is written


def task_overhead(engine: Engine, devices: int, timer: TurnTimer) -> float:
    """Seconds that a kernel call takes beside its work: what one more tiny vertex takes.

    Each vertex reads the one before and is freed after the next, as in most graphs.
    """
    counts = 16, 64
    few, many = (
        run_seconds(engine, plan_of(chain(n, devices), devices), timer, f"{n} tiny vertices")
        for n in counts
    )
    return slope((counts[0], few), (counts[1], many))


def run_seconds(engine: Engine, plan: Plan, timer: TurnTimer, what: str) -> float:
    """Seconds of a run of a plan, its inputs in place."""
    arrays = {v.name: np.full(v.shape, 0.5, np.float32) for v in plan.graph.inputs}
    with compile_plan(plan, engine) as executable:
        placed = executable.place(arrays)
        return timer.best(what, lambda: executable(placed))


def chain(count: int, devices: int) -> Graph:
    """A graph of tiny vertices, each of which reads the one before it.

    >>> print(chain(2, 4))
    input X[b: 4]
    input Y[b: 4]
    Z0[b] <- X[b] + Y[b]
    Z1[b] <- Z0[b] + Y[b]
    output Z1
    """
    lines = ["Z0[b] <- X[b] + Y[b]"]
    lines += [f"Z{n}[b] <- Z{n - 1}[b] + Y[b]" for n in range(1, count)]
    text = [f"input X[b: {devices}], Y[b: {devices}]", *lines, f"output Z{count - 1}"]
    return parse("\n".join(text), "calibrate")


def repeated(shape: Shape, devices: int, count: int) -> Graph:
    """A graph of equal vertices, Z0 and so on, that all read X and Y.

    >>> print(repeated(MEMORY, 2, 1))
    input X[b: 2, i: 4194304]
    input Y[b: 2, i: 4194304]
    Z0[b,i] <- X[b,i] + Y[b,i]
    output Z0
    """
    sizes = {"b": devices, **shape.sizes}
    given = [
        f"{name}[{', '.join(f'{label}: {sizes[label]}' for label in labels)}]"
        for name, labels in zip("XY", shape.inputs, strict=True)
    ]
    vertices = [f"Z{n}{shape.vertex}" for n in range(count)]
    made = ", ".join(f"Z{n}" for n in range(count))
    return parse("\n".join([f"input {', '.join(given)}", *vertices, f"output {made}"]), "calibrate")


def plan_of(graph: Graph, devices: int) -> Plan:
    """The plan in which every device computes one item of `b`."""
    computed = [name for name, vertex in graph.vertices.items() if vertex.inputs]
    pins = {name: {"b": devices} for name in computed} if devices > 1 else {}
    return make_plan(graph, devices, pin=pins, rewrite=False, keep_on_interrupt=False)
