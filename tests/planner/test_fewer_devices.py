"""Smaller numbers of devices that suit a product better: what is told is what planning finds."""

from __future__ import annotations

import pytest

import eindecomp as ed
from eindecomp.planner.budgets import FEWER_GAIN
from eindecomp.planner.comparison import Fewer

CUBE = "input A[i: 1000, k: 1000], B[k, j: 1000]\nC[i,j] <- sum A[i,k] * B[k,j]\noutput C"


@pytest.mark.parametrize("devices", [5, 6, 7, 9, 11, 12, 13, 14])
def test_fewer_devices_are_the_best_of_all_smaller_numbers(devices: int) -> None:
    """Those of more than half as many, by bytes for each device."""
    graph = ed.parse(CUBE)
    numbers = range(devices // 2 + 1, devices + 1)
    costs = {n: ed.plan(graph, n, inputs="sharded").cost for n in numbers}
    best = min(numbers, key=lambda n: (costs[n] / n, -n))
    gains = costs[best] / best <= (1 - FEWER_GAIN) * costs[devices] / devices
    told = ed.plan(graph, devices, inputs="sharded").fewer_devices
    assert told == (Fewer(best, costs[best]) if gains else None)


def test_eleven_devices_are_told_of_eight() -> None:
    plan = ed.plan(ed.parse(CUBE), 11, inputs="sharded")
    assert (plan.cost, plan.fewer_devices) == (40_000_000, Fewer(8, 12_000_000))
    sentence = "8 move 11.4 MiB, each 1.43 MiB; these 11 move 38.1 MiB, each 3.47 MiB."
    assert sentence in plan.explain(200)
    assert sentence in str(plan)
    assert plan.compare({}).fewer == plan.fewer_devices
    assert "Fewer devices would do better: 8" in str(plan.compare({}))


@pytest.mark.parametrize("machine", ["cpu-cluster", "h100-servers"])
def test_fewer_devices_are_faster_by_the_objective(machine: str) -> None:
    graph = ed.parse(CUBE)
    plan = ed.plan(graph, 11, "time", machine=machine, inputs="sharded")
    fewer = plan.fewer_devices
    assert fewer is not None
    assert fewer.cost < plan.cost
    found = ed.plan(graph, fewer.devices, "time", machine=machine, inputs="sharded")
    assert found.cost <= fewer.cost * (1 + 1e-9)
    assert f"{fewer.devices} take" in str(plan)


def test_nothing_is_told_where_nothing_is_known() -> None:
    graph = ed.parse(CUBE)
    for options in ({"pin": {"A": {"i": 11}}}, {"memory": "1GB"}, {"mesh": {"a": 22}}):
        devices = None if "mesh" in options else 11
        plan = ed.plan(graph, devices, inputs="sharded", **options)  # pyright: ignore[reportArgumentType]
        assert plan.fewer_devices is None
    longer = [f"C{k + 1}[i,j] <- exp(C{k}[i,j])" for k in range(16)]
    chain = CUBE.replace("C[", "C0[").replace("output C", "\n".join([*longer, "output C16"]))
    for text, count in ((chain, 11), (CUBE, 8), (CUBE, 1)):
        plan = ed.plan(ed.parse(text), count, inputs="sharded", rewrite=False)
        assert plan.fewer_devices is None
