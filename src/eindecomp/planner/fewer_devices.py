"""A smaller number of devices that suits a graph better: a prime number can cut only one label.

Bytes are compared by device, because fewer devices always move less together: on 11 devices, each
receives more than twice what each of 8 does. Seconds are compared as they are. It takes
milliseconds for a few vertices; of larger graphs, only another plan could say so much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eindecomp.errors import EinDecompError
from eindecomp.layout.mesh import Mesh, prime_factors
from eindecomp.planner import budgets
from eindecomp.planner.comparison import Fewer
from eindecomp.planner.costs.machine import Machine
from eindecomp.planner.costs.presets import PRESETS, Servers
from eindecomp.planner.costs.price import may_repeat, price_of
from eindecomp.planner.plan import Plan
from eindecomp.planner.search.follow import follow
from eindecomp.planner.search.relaxation import relaxed_of
from eindecomp.planner.search.search import Search
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.solve.clock import planning_time


def fewer_devices(plan: Plan) -> Fewer | None:
    """The smaller number of devices that is best, if it is better than the plan's; else None.

    None, too, for graphs of many vertices, under pins, ties, strategies and memory limits,
    on a mesh or machine that is not told for other numbers, and for powers of two.
    """
    if not plan.cost or not _is_asked(plan):
        return None
    found = [each for n in _numbers(plan.devices) if (each := _on(plan, n)) is not None]
    best = min(found, key=lambda each: (_weight(plan, each), -each.devices), default=None)
    if best is None or _weight(plan, best) > (1 - budgets.FEWER_GAIN) * _weight(plan, plan):
        return None
    return best


def _weight(plan: Plan, of: Plan | Fewer) -> float:
    """What is compared: bytes by device, or seconds."""
    return of.cost / of.devices if plan.objective == "bytes" else float(of.cost)


def _is_asked(plan: Plan) -> bool:
    is_plain = not (plan.pin or plan.tie or plan.strategy is not None or plan.memory is not None)
    factors = prime_factors(plan.devices)
    return (
        is_plain
        and plan.objective in ("bytes", "time")
        and len(set(factors) - {2}) > 0
        and sorted(plan.mesh.sizes) == sorted(factors)
        and len(plan.graph.vertices) <= budgets.FEWER_VERTICES
    )


def _numbers(devices: int) -> list[int]:
    """Numbers of more than half as many devices, those with the smallest prime factors.

    >>> _numbers(11)
    [8, 9, 6, 10, 7]
    """
    smaller = range(devices // 2 + 1, devices)
    smooth = sorted(smaller, key=lambda n: (prime_factors(n)[-1], -n))
    return smooth[: budgets.FEWER_NUMBERS]


def _on(plan: Plan, devices: int) -> Fewer | None:
    """The plan on so many devices that is found in milliseconds."""
    machine = None
    if plan.objective == "time":
        machine = next(_machines(plan, devices), None)
        if machine is None:
            return None
    axes = None if machine is None or not machine.mesh else machine.mesh
    mesh = Mesh.of_devices(devices) if axes is None else Mesh.of_axes(axes)
    mesh = replace(mesh, pieces=plan.pieces)
    search = Search(
        plan.graph, price_of(plan.objective, mesh, machine), LayoutRules(plan.inputs),
        redundant=may_repeat(plan.objective), deadline=planning_time() + budgets.FEWER_SECONDS,
    )  # fmt: skip
    try:
        outcome = follow(search, relaxed_of(search, budgets.FEWER_SECONDS))
    except EinDecompError:
        return None
    return None if outcome is None else Fewer(devices, outcome.cost)


def _machines(plan: Plan, devices: int) -> Iterator[Machine]:
    """The machine of a plan with another number of devices, where that is told."""
    machine = plan.machine
    if machine is None:
        return
    if not machine.mesh and not isinstance(machine.bandwidth, Mapping):
        yield machine
    for preset in PRESETS.values():
        if isinstance(preset, Servers) and preset.machine(plan.devices) == machine:
            yield preset.machine(devices)
