"""Objective `time`: what a described machine makes slow is avoided."""

from __future__ import annotations

import random
from math import inf, prod

import pytest
from brute_seconds import fetched

import eindecomp as ed
from eindecomp.layout.cut import span_of
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import Dim
from eindecomp.planner.costs.price import PriceInSeconds
from eindecomp.store.plan_file import from_json, to_json

MAP = ed.parse("input X[i: 8, j: 8]\nZ[i,j] <- exp(X[i,j])\noutput Z")


def test_a_slow_link_is_avoided():
    # Heads over the slow axis and sequence within it would move data between nodes.
    graph = ed.parse(
        "input X[s: 1024, a: 512], W[a, f: 512], V[f, a]\n"
        "H[s,f] <- sum X[s,a] * W[a,f]\nY[s,a] <- sum H[s,f] * V[f,a]\noutput Y"
    )
    machine = ed.Machine(
        1e12, 1e12, bandwidth={"node": 1e6, "gpu": 1e12}, mesh={"node": 2, "gpu": 4}
    )
    plan = ed.plan(graph, objective="time", machine=machine)
    assert plan.gap < 1e-6
    assert plan.traffic.total == 0


def test_computing_twice_where_that_is_faster():
    graph = ed.parse("input X[i: 6, j: 2]\nZ[i] <- sum X[i,j]\noutput Z")
    machine = ed.Machine(flops=1e12, memory_bandwidth=1e9, bandwidth=1e12)
    plan = ed.plan(graph, objective="time", mesh={"a": 4, "b": 3, "c": 2}, machine=machine)
    assert plan.cost == pytest.approx(1.2e-8)
    assert plan.bound <= plan.cost


def test_a_machines_axes_of_one_device_are_none():
    machine = ed.Machine(1, 1, 1, mesh={"node": 1, "gpu": 2})
    plan = ed.plan(MAP, machine=machine)
    assert plan.mesh.names == ("gpu",)
    assert from_json(to_json(plan)).machine == machine


def drawn_layout(rng: random.Random, sizes: tuple[int, ...], shape: tuple[int, ...]):
    """For each dimension axes that cut it into no more pieces than it has elements."""
    while True:
        own: list[list[int]] = [[] for _ in range(len(shape) + 1)]  # the last cuts nothing
        for axis in rng.sample(range(len(sizes)), len(sizes)):
            own[rng.randrange(len(own))].append(axis)
        layout = tuple(map(tuple, own[:-1]))
        if all(prod(sizes[a] for a in o) <= n for o, n in zip(layout, shape, strict=True)):
            return layout


@pytest.mark.parametrize("seed", range(60))
def test_what_a_group_needs_comes_to_it_once(seed):
    """A fetch takes what counting elements, group by group, says."""
    rng = random.Random(seed)
    sizes = tuple(rng.choice([2, 2, 3]) for _ in range(rng.randint(1, 3)))
    shape = tuple(rng.choice([4, 6, 8, 12]) for _ in range(rng.randint(1, 2)))
    mesh = Mesh(tuple("abc"[: len(sizes)]), sizes)
    links = [{name: rng.choice(of) for name in mesh.names} for of in ([1e6, 4e6], [0, 1e-5])]
    machine = ed.Machine(1e12, 1e12, *links)
    tensor = ed.Graph().input("X", dict(zip("ij", shape, strict=False)))
    for _ in range(5):
        held, needed = (drawn_layout(rng, sizes, shape) for _ in range(2))
        cuts = [
            [tuple(span_of(Dim(None, 0, n), o) for n, o in zip(shape, layout, strict=True))]
            for layout in (held, needed)
        ]
        seconds = PriceInSeconds(mesh, machine).fetch(*cuts, 4)[0, 0]
        assert seconds == pytest.approx(fetched(mesh, machine, tensor, held, needed), rel=1e-9)


@pytest.mark.parametrize("mesh", [{"node": 8, "gpu": 8}, {"a": 2, "b": 3, "c": 2}, {"x": 2}])
def test_gathers_take_what_is_simulated(mesh):
    """Weights that lie over all devices come to every one of them, level by level."""
    text = "input X[i: 64, j: 96], W[j, k: 96]\nZ[i,k] <- sum X[i,j] * W[j,k]\noutput Z"
    rates = {name: 1e3 * 4**place for place, name in enumerate(mesh)}
    machine = ed.Machine(inf, inf, rates, mesh=mesh)
    for strategy in (["i"], ["k"]):
        made = ed.plan(ed.parse(text), None, "time", strategy=strategy, machine=machine,
                       inputs="sharded")  # fmt: skip
        assert made.traffic.total > 0
        assert made.cost == pytest.approx(ed.simulate(made, overlap=False).seconds, rel=1e-9)
