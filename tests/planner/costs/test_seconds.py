"""Objective `time`: what a described machine makes slow is avoided."""

from __future__ import annotations

import pytest

import eindecomp as ed
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
