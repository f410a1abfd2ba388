"""Objective `time`: what a described machine makes slow is avoided."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.errors import UnsolvedError
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import planned_views
from eindecomp.planner.costs import collectives
from eindecomp.planner.costs.price import PriceInSeconds
from eindecomp.planner.search.search import Search
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


def test_a_table_of_uneven_pieces_ends_with_time_and_is_the_same_in_portions(monkeypatch):
    graph = ed.parse("input X[i: 9, j: 9], Y[j, k: 9]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
    machine = ed.Machine(1e9, 1e9, {"a": 1e8, "b": 1e9, "c": 1e9, "d": 1e9}, 1e-8)
    price = PriceInSeconds(Mesh(tuple("abcd"), (2, 2, 2, 2)), machine)
    (_, view), *_ = planned_views(graph)
    own = Search(graph, price, any_order=True).every_choice(graph["Z"], view)
    held, needed = own.homes, own.reads[0].cuts
    assert len(held) * len(needed) > collectives._SMALL
    whole = price.fetch(held, needed, 4)
    monkeypatch.setattr(collectives, "_CELLS", 7 * len(needed) * price.mesh.devices)
    np.testing.assert_array_equal(price.fetch(held, needed, 4), whole)
    with pytest.raises(UnsolvedError, match="time is up"):
        PriceInSeconds(price.mesh, machine, deadline=0).fetch(held, needed, 4)
