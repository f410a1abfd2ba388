"""Vertices that choose alike: who they are, and what it costs if they do."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph
from simulate import simulate

import eindecomp as ed
from eindecomp.errors import PlanError
from eindecomp.layout.mesh import Mesh
from eindecomp.planner import budgets
from eindecomp.planner.costs.cost import decided_cost
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.search.blocks import choose_block
from eindecomp.planner.search.search import Search, all_axes
from eindecomp.planner.search.smallest_plan import within_memory
from eindecomp.planner.space.layout_rules import LayoutRules, alike_vertices
from eindecomp.planner.space.strategy import applicable

LAYER = """
input W{l}[a: 8, c: 8]
Y{l}[b,c] <- sum X{l}[b,a] * W{l}[a,c]
X{n}[b,a] <- relu(Y{l}[b,a]) + X{l}[b,a]
new_W{l}[a,c] <- sum W{l}[a,c] - 0.1 * X{l}[b,a] * Y{l}[b,c]
"""


def layers(count: int) -> ed.Graph:
    """Equal layers, each of which leaves its weights for the next run."""
    text = [LAYER.format(l=k, n=k + 1) for k in range(count)]
    ends = [f"output new_W{k}\ntie W{k} <- new_W{k}" for k in range(count)]
    return ed.parse("\n".join(["input X0[b: 16, a: 8]", *text, *ends, f"output X{count}"]))


def search_of(graph: ed.Graph, sizes: tuple[int, ...], inputs: str = "free") -> Search:
    mesh = Mesh(tuple("abc"[: len(sizes)]), sizes)
    return Search(graph, PriceInBytes(mesh), LayoutRules(inputs, tie=graph.ties))


def chosen(search: Search):
    return choose_block(search, all_axes(search), {})


def test_the_inner_layers_are_alike() -> None:
    graph = layers(6)
    alike = alike_vertices(graph, LayoutRules(tie=graph.ties), 1)
    assert alike["Y3"] == alike["Y2"] != alike["Y0"]
    assert alike["W3"] == alike["W2"] != alike["new_W3"] == alike["new_W2"]
    assert len({alike[f"X{k}"] for k in range(7)}) > len({alike[f"X{k}"] for k in range(2, 5)})


def test_what_is_pinned_is_like_nothing_else() -> None:
    graph = layers(6)
    pinned = LayoutRules(pinned={"Y3": ((),)})
    assert alike_vertices(graph, pinned, 1)["Y3"] == "Y3"


@given(st.integers(0, 2**32), st.sampled_from([(2,), (2, 2), (3, 2)]), st.integers(1, 3))
def test_random_graphs_cost_what_their_decisions_cost(seed, sizes, far):
    graph = random_graph(seed, tree=False)
    search = search_of(graph, sizes, "sharded")
    alike = alike_vertices(graph, search.rules, far)
    outcome = chosen(replace(search, alike=alike))
    assert outcome.bound == 0
    check(search, outcome, alike)
    assert chosen(search).cost <= outcome.cost


@pytest.mark.parametrize("far", [1, 2])
@pytest.mark.parametrize("pairs", [False, True])
def test_layers_cost_what_their_decisions_cost(far, pairs):
    search = search_of(layers(6), (2, 2))
    alike = alike_vertices(search.graph, search.rules, far)
    together = replace(search, alike=alike)
    outcome = choose_block(together, all_axes(search), {}, pairs=pairs)
    check(search, outcome, alike)
    assert chosen(search).cost <= outcome.cost


def check(search, outcome, alike) -> None:
    """Those that are alike choose alike, and the cost is that of all of them."""
    planned = {n: d for n, d in outcome.decisions.items() if search.graph[n].inputs}
    assert decided_cost(search.graph, search.price, planned, outcome.given).total == outcome.cost
    for name, decision in outcome.decisions.items():
        assert decision == outcome.decisions.get(alike[name], decision)


@pytest.mark.parametrize("memory", [2400, 6400])
def test_the_memory_of_all_that_are_alike_is_counted(memory):
    """What fits if layers choose alike fits with the same choice of each."""
    search = replace(search_of(layers(4), (2,)), memory=memory, deadline=monotonic() + 5)
    alike = alike_vertices(search.graph, search.rules, 1)
    together = chosen(replace(search, alike=alike))
    apart = within_memory(replace(search, deadline=monotonic() + 60), together)
    assert apart is not None
    assert apart.cost <= together.cost


@pytest.mark.one_in(2)
@pytest.mark.parametrize("memory", [None, "10KB"])
@pytest.mark.parametrize("devices", [4, 6])
def test_large_graphs_start_from_layers_that_choose_alike(monkeypatch, devices, memory):
    graph = layers(6)
    monkeypatch.setattr(budgets, "SMALL_GRAPH", 5)
    monkeypatch.setattr(budgets, "LARGE_GRAPH", 10)
    plan = ed.plan(graph, devices, memory=memory, rewrite=False, time_limit=60)
    assert plan.bound <= plan.cost
    assert simulate(plan).total == plan.cost
    for name in applicable(graph, devices, stateful=True):
        other = ed.plan(graph, devices, strategy=name, memory=memory, rewrite=False, time_limit=60)
        assert plan.cost <= other.cost, name


def test_a_limit_that_no_plan_meets_is_refused_at_once() -> None:
    with pytest.raises(PlanError, match=r"every plan needs .* or more; least found"):
        ed.plan(layers(6), 4, memory=100, rewrite=False)
