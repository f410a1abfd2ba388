"""How fast devices compute, all of them at once: products of each shape, loops, and memory."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eindecomp.api.compile import compile as compile_plan
from eindecomp.experiments.calibrate.clock import slope
from eindecomp.graph.text.elaborate import parse
from eindecomp.graph.work import operations
from eindecomp.planner.make import plan as make_plan

if TYPE_CHECKING:
    from eindecomp.engines.engine import Engine
    from eindecomp.experiments.calibrate.clock import Clock
    from eindecomp.graph.graph import Graph
    from eindecomp.planner.plan import Plan


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


def flops_by_shape(engine: Engine, devices: int, clock: Clock, overhead: float) -> dict[str, float]:
    """Operations per second of one device, for each shape."""
    rates: dict[str, float] = {}
    for name, shape in SHAPES.items():
        graph = repeated(shape, devices, 1)
        work = operations(graph, graph["Z0"]) / devices
        rates[name] = work / _kernel_seconds(engine, name, shape, devices, clock, overhead)
    return rates


def function_rate(engine: Engine, devices: int, clock: Clock, overhead: float) -> float:
    """Elementary functions that one device calls per second."""
    seconds = _kernel_seconds(engine, "functions", FUNCTIONS, devices, clock, overhead)
    return prod(FUNCTIONS.sizes.values()) / seconds


def memory_bandwidth(engine: Engine, devices: int, clock: Clock, overhead: float) -> float:
    """Bytes per second that one device reads and writes."""
    moved = 3 * 4 * prod(MEMORY.sizes.values())
    return moved / _kernel_seconds(engine, "memory", MEMORY, devices, clock, overhead)


def task_overhead(engine: Engine, devices: int, clock: Clock, tasks: int = 64) -> float:
    """Seconds that a kernel call takes beside its work: what one more tiny vertex takes.

    Each reads what the one before has made, and is let go of behind the next, as in most graphs.
    """
    counts = tasks // 4, tasks
    few, many = (
        run_seconds(engine, chain(n, devices), devices, clock, f"{n} tiny vertices") for n in counts
    )
    return slope((counts[0], few), (counts[1], many))


def _kernel_seconds(
    engine: Engine, name: str, shape: Shape, devices: int, clock: Clock, overhead: float
) -> float:
    few, many = (
        run_seconds(engine, repeated(shape, devices, n), devices, clock, f"{name}, {n} vertices")
        for n in shape.counts
    )
    each = slope((shape.counts[0], few), (shape.counts[1], many))
    return each - overhead if overhead < 0.5 * each else each


def run_seconds(engine: Engine, graph: Graph, devices: int, clock: Clock, what: str) -> float:
    """Seconds of a run of a graph, its inputs in place."""
    plan = plan_of(graph, devices)
    arrays = {v.name: np.full(v.shape, 0.5, np.float32) for v in plan.graph.inputs}
    with compile_plan(plan, engine) as executable:
        placed = executable.place(arrays)
        return clock.best(what, lambda: executable(placed))


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
    pins = (
        {name: {"b": devices} for name, v in graph.vertices.items() if v.inputs}
        if devices > 1
        else {}
    )
    return make_plan(graph, devices, pin=pins, rewrite=False)
