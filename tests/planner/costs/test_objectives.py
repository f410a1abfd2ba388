"""Objectives of the user's own: they plan, explain, compare and run as the built-in ones do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.layout.mesh import Mesh
from eindecomp.planner.costs.price import Objective, PriceInBytes, PriceInSeconds

MATMUL = "input X[i: 8, j: 8], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


@dataclass(frozen=True)
class Tripled:
    """Three times the bytes that move, as floats."""

    mesh: Mesh

    def on(self, mesh):
        return Tripled(mesh)

    def fetch(self, held, needed, item):
        return 3.0 * PriceInBytes(self.mesh).fetch(held, needed, item)

    def reduce_scatter(self, choices, elements, partial, item):
        return 3.0 * PriceInBytes(self.mesh).reduce_scatter(choices, elements, partial, item)

    def compute(self, vertex, choices, items):
        return 3.0 * PriceInBytes(self.mesh).compute(vertex, choices, items)

    def held(self, cuts, item):
        return PriceInBytes(self.mesh).held(cuts, item)


TRIPLED = Objective("tripled", Tripled, "thirds of bytes")


@given(
    seed=st.integers(0, 2**32),
    devices=st.integers(1, 8),
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_own_prices_are_minimized(seed, devices, inputs):
    graph = random_graph(seed, tree=False)
    usual = ed.plan(graph, devices, inputs=inputs)
    own = ed.plan(graph, devices, TRIPLED, inputs=inputs)
    assert own.bound <= own.cost
    assert own.cost == 3 * own.traffic.total
    if own.gap == usual.gap == 0:
        assert own.cost == 3 * usual.cost


@given(seed=st.integers(0, 2**32), devices=st.sampled_from([2, 4, 6]))
def test_a_price_for_computing_may_be_paid_twice(seed, devices):
    graph = random_graph(seed, tree=False, most=3)
    machine = ed.Machine(flops=1e9, memory_bandwidth=1e9, bandwidth=1e8, latency=1e-6)
    usual = ed.plan(graph, devices, "time", machine=machine)
    seconds = Objective("seconds", lambda mesh: PriceInSeconds(mesh, machine), "s", redundant=True)
    own = ed.plan(graph, devices, seconds)
    if own.gap == usual.gap == 0:
        assert own.cost == pytest.approx(usual.cost)


def test_it_is_explained_compared_and_run(tmp_path):
    graph = ed.parse(MATMUL)
    plan = ed.plan(graph, 2, TRIPLED, inputs="sharded")
    text = plan.explain(width=100)
    assert "objective tripled" in text
    assert "thirds of bytes at the given prices" in text
    assert "compute" in text
    assert [row.ratio >= 1 for row in plan.compare({"rows": ["i"]})] == [True, True]
    cost = ed.cost(plan.graph, plan.parts, 2, TRIPLED, inputs="sharded")
    assert cost.total == plan.cost
    arrays = {"X": np.ones((8, 8), np.float32), "Y": np.ones((8, 8), np.float32)}
    result = ed.run(plan, arrays, "apart")
    assert result.stats.bytes_moved == plan.traffic.total
    with pytest.raises(ed.PlanError, match="objective 'tripled' cannot be saved"):
        plan.save(tmp_path / "plan.json")


def test_built_in_names_are_taken():
    with pytest.raises(ed.PlanError, match="objective 'bytes' is built in"):
        Objective("bytes", Tripled)
    with pytest.raises(ed.PlanError, match="objective 'bits' is not one of bytes, bound, time"):
        ed.plan(ed.parse(MATMUL), 2, "bits")
