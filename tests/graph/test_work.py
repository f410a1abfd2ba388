"""Operations are counted once: per point, by distinct calls."""

from __future__ import annotations

import pytest

import eindecomp as ed
from eindecomp.graph.work import operations, operations_per_point

HEAD = "input X[i: 10, k: 30], Y[j: 20, k], n[i] int32\n"
TABLE = [
    ("Z[i,j] <- sum X[i,k] * Y[j,k]", 2, 12_000),
    ("Z[i,j] <- max abs(X[i,k] - Y[j,k])", 3, 18_000),
    ("Z[i,j] <- sum (X[i,k] - Y[j,k]) * (X[i,k] - Y[j,k])", 3, 18_000),  # one difference
    ("Z[i] <- sum X[i,k]", 1, 300),
    ("Z[k,i] <- X[i,k]", 0, 0),
    ("Z[i,k] <- Y[n[i], k]", 0, 0),
    ("Z[v: 5 = n[i], k] <- sum X[i,k]", 1, 300),
    ("Z[i,k] <- concat[i](X[i,k], X[i,k])", 0, 0),
]


@pytest.mark.parametrize(("text", "each", "total"), TABLE)
def test_operations_are_points_times_calls(text: str, each: int, total: int) -> None:
    graph = ed.parse(f"{HEAD}{text}\noutput Z")
    vertex = graph["Z"]
    assert operations_per_point(vertex.op) == each
    assert operations(graph, vertex) == total


def test_the_time_objective_predicts_the_operations_that_a_run_reports() -> None:
    text = """
    input Q[s: 16, a: 8], K[t: 16, a], V[t, a]
    S[s,t] <- sum Q[s,a] * K[t,a]
    P[s,t] <- softmax[t] S[s,t]
    O[s,a] <- sum P[s,t] * V[t,a]
    Z[s,a] <- O[s,a] + abs(Q[s,a])
    output Z
    """
    machine = ed.Machine(flops=1, memory_bandwidth=1e30, bandwidth=1)
    plan = ed.plan(ed.parse(text), devices=1, objective="time", machine=machine)
    inputs = {vertex.name: [[0.5] * 8] * 16 for vertex in plan.graph.inputs}
    assert ed.run(plan, inputs).stats.flops == plan.cost
