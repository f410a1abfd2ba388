"""How fast devices compute, all of them at once: products of each shape, loops, and memory."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eindecomp.api.compile import compile as compile_plan
from eindecomp.experiments.calibrate.clock import best_seconds, slope
from eindecomp.graph.text.elaborate import parse
from eindecomp.graph.work import operations
from eindecomp.planner.make import plan as make_plan

if TYPE_CHECKING:
    from eindecomp.engines.engine import Engine
    from eindecomp.graph.graph import Graph
    from eindecomp.planner.plan import Plan

_FEW, _MANY = 2, 6
"""Equal vertices in one run; what more of them take is without what a run takes by itself."""


class Shape(NamedTuple):
    """What every device computes: a vertex over `b` devices, and the sizes of its labels."""

    vertex: str
    inputs: tuple[str, ...]
    sizes: dict[str, int]


_PRODUCT = "[b,i,k] <- sum X[b,i,j] * Y[b,j,k]"
SHAPES = {
    "large": Shape(_PRODUCT, ("bij", "bjk"), {"i": 384, "j": 384, "k": 384}),
    "thin": Shape(_PRODUCT, ("bij", "bjk"), {"i": 8, "j": 512, "k": 512}),
    "vector": Shape("[b,k] <- sum X[b,j] * Y[b,j,k]", ("bj", "bjk"), {"j": 512, "k": 512}),
    "loops": Shape(
        "[b,i,k] <- max abs(X[b,i,j] - Y[b,j,k])", ("bij", "bjk"), {"i": 64, "j": 64, "k": 64}
    ),
}
"""The products have about the intensities for which a machine gives rates."""
MEMORY = Shape("[b,i] <- X[b,i] + Y[b,i]", ("bi", "bi"), {"i": 1 << 22})
TINY = Shape("[b,i] <- X[b,i] + Y[b,i]", ("bi", "bi"), {"i": 1})


def flops_by_shape(engine: Engine, devices: int, repeats: int, overhead: float) -> dict[str, float]:
    """Operations per second of one device, for each shape."""
    rates: dict[str, float] = {}
    for name, shape in SHAPES.items():
        graph = repeated(shape, devices, 1)
        work = operations(graph, graph["Z0"]) / devices
        rates[name] = work / _kernel_seconds(engine, shape, devices, repeats, overhead)
    return rates


def memory_bandwidth(engine: Engine, devices: int, repeats: int, overhead: float) -> float:
    """Bytes per second that one device reads and writes."""
    moved = 3 * 4 * prod(MEMORY.sizes.values())
    return moved / _kernel_seconds(engine, MEMORY, devices, repeats, overhead)


def task_overhead(engine: Engine, devices: int, repeats: int, tasks: int = 64) -> float:
    """Seconds that a kernel call takes beside its work: what one more tiny vertex takes."""
    few, many = tasks // 4, tasks
    seconds = [vertices_seconds(engine, TINY, devices, n, repeats) for n in (few, many)]
    return slope((few, seconds[0]), (many, seconds[1]))


def _kernel_seconds(
    engine: Engine, shape: Shape, devices: int, repeats: int, overhead: float
) -> float:
    seconds = [vertices_seconds(engine, shape, devices, n, repeats) for n in (_FEW, _MANY)]
    each = slope((_FEW, seconds[0]), (_MANY, seconds[1]))
    return each - overhead if overhead < 0.5 * each else each


def vertices_seconds(engine: Engine, shape: Shape, devices: int, count: int, repeats: int) -> float:
    """Seconds of a run that computes so many equal vertices, its inputs in place."""
    plan = plan_of(repeated(shape, devices, count), devices)
    arrays = {v.name: np.full(v.shape, 0.5, np.float32) for v in plan.graph.inputs}
    with compile_plan(plan, engine) as executable:
        placed = executable.place(arrays)
        return best_seconds(lambda: executable(placed), repeats)


def repeated(shape: Shape, devices: int, count: int) -> Graph:
    """A graph of equal vertices, Z0 and so on, that all read X and Y.

    >>> print(repeated(TINY, 2, 1))
    input X[b: 2, i: 1]
    input Y[b: 2, i: 1]
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
    pins = {v.name: {"b": devices} for v in graph.outputs} if devices > 1 else {}
    return make_plan(graph, devices, pin=pins, rewrite=False)
