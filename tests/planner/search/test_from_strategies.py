"""No plan is worse, in its own objective, than a named strategy that applies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from transformer import transformer

import eindecomp as ed
from cases import FACTOR
from eindecomp.planner.space.strategy import NAMED, applicable, inside_servers

SERVERS = ed.Machine(
    flops=6e14,
    memory_bandwidth=3e12,
    bandwidth={"node": 5e10, "gpu": 4e11},
    latency={"node": 1e-5, "gpu": 3e-6},
    mesh={"node": 4, "gpu": 8},
)
SLOW = ed.Machine(
    flops=1e6,
    memory_bandwidth=1e7,
    bandwidth={"n": 1e4, "a": 1e5, "b": 1e5},
    latency={"n": 1e-4, "a": 1e-5, "b": 1e-5},
)
ROUNDING = 1 + 1e-9
ATTENTION = """
input X[b: {b}, s: {s}, a: {a}], W[a, h: {h}, d: 2], K[b, t: {s}, h, d], V[b, t, h, d]
input O[h, d, a], U[a, f: {f}], D[f, a]
Q[b,s,h,d] <- sum X[b,s,a] * W[a,h,d]
T[b,h,s,t] <- sum Q[b,s,h,d] * K[b,t,h,d]
A[b,s,h,d] <- sum T[b,h,s,t] * V[b,t,h,d]
Y[b,s,a]   <- sum A[b,s,h,d] * O[h,d,a]
G[b,s,f]   <- sum Y[b,s,a] * U[a,f]
Z[b,s,a]   <- sum G[b,s,f] * D[f,a]
output Z
"""
sizes = st.fixed_dictionaries(
    {label: st.sampled_from([1, 2, 3, 4, 6, 8]) for label in ("b", "s", "a", "h", "f")}
)
meshes = st.sampled_from([{"n": 2, "a": 2}, {"n": 3}, {"n": 2, "a": 2, "b": 2}, {"a": 4}])


def check_all(graph, objective, mesh, inputs):
    """The plan costs at most what each strategy that applies does, in the same order."""
    given = {"objective": objective, "mesh": mesh, "inputs": inputs, "machine": SLOW}
    given["time_limit"] = 5
    free = ed.plan(graph, work=None, **given)
    for name in applicable(free.graph, free.devices):
        try:
            named = ed.plan(graph, strategy=name, **given)
        except ed.PlanError:
            continue  # it cannot be cut so
        assert free.cost <= named.cost * ROUNDING, name


@pytest.mark.long
@settings(max_examples=4 * FACTOR)
@given(
    sizes=sizes,
    objective=st.sampled_from(["bytes", "time"]),
    mesh=meshes,
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_a_plan_for_attention_costs_no_more_than_any_strategy(sizes, objective, mesh, inputs):
    check_all(ed.parse(ATTENTION.format(**sizes)), objective, mesh, inputs)


@settings(max_examples=15 * FACTOR)
@given(
    seed=st.integers(0, 2**32),
    objective=st.sampled_from(["bytes", "time"]),
    mesh=meshes,
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_a_plan_for_any_graph_costs_no_more_than_any_strategy(seed, objective, mesh, inputs):
    check_all(random_graph(seed, tree=False), objective, mesh, inputs)


def test_strategies_are_tried_even_if_there_is_no_time():
    """Inside servers, too, where sequences are divided among these."""
    graph = ed.rewrite(transformer(1, 32, 512))
    given = {"objective": "time", "machine": SERVERS, "rewrite": False}
    free = ed.plan(graph, time_limit=0, **given)
    inside = [["h", "f"], ["s"], {"t": ["h"], "*": ["s"]}]
    ways = [{"labels": labels, "degrees": {"b": 4}} for labels in inside]
    for way in [*applicable(graph, 32), *ways]:
        assert free.cost <= ed.plan(graph, strategy=way, time_limit=5, **given).cost * ROUNDING


@pytest.mark.parametrize("name", ["context", "attention", "megatron"])
def test_inside_servers_sequences_are_divided_among_them(name):
    graph = transformer(1, 64)
    found = inside_servers(NAMED[name], graph, 128)
    assert found is not None
    assert found.degrees == (("b", 16),)
    assert found.labels == NAMED[name].labels
    assert inside_servers(NAMED["data"], graph, 128) is None
    assert inside_servers(NAMED[name], graph, 8) is None
