"""Strategies: what they cut, and that no plan is worse than any of them."""

from __future__ import annotations

from itertools import combinations

import pytest
from brute_bound import viable
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from simulate import simulate
from transformer import transformer

import eindecomp as ed
from eindecomp.errors import PlanError
from eindecomp.models.llama import Config, step_graph
from eindecomp.planner.make import plan
from eindecomp.planner.space.strategy import applicable

MATMUL = """
input X[i: 64, j: 64], Y[j, k: 64]
Z[i,k] <- sum X[i,j] * Y[j,k]
output Z
"""
OBJECTIVES = st.sampled_from(
    [("bound", "free"), ("bytes", "free"), ("bytes", "sharded"), ("time", "free")]
)
DEVICES = st.sampled_from([2, 3, 4, 6, 8, 12])
MANY = st.sampled_from([16, 24, 36, 48, 64])  # too many for all axes to be chosen together
SEEDS = st.integers(0, 2**32)


def labels_of(graph: ed.Graph) -> list[str]:
    """All labels of all vertices, aggregated ones too."""
    return sorted({label for v in graph.vertices.values() for label in graph.label_sizes(v)})


def check_against_strategies(data, seed, most, devices, objective, rewrite) -> None:
    """Draw a graph and strategies that its labels allow, and compare."""
    graph = random_graph(seed, tree=False, most=most)
    labels = labels_of(ed.rewrite(graph) if rewrite else graph)
    lists = [[label] for label in labels] + [list(pair) for pair in combinations(labels, 2)]
    strategies = ["sqrt", *data.draw(st.permutations(lists))[:4]]
    pending = data.draw(st.booleans())
    given = {"objective": objective[0], "inputs": objective[1], "rewrite": rewrite}
    given["pending"] = pending
    if objective[0] == "time":
        given["machine"] = "cpu-cluster"
    best = plan(graph, devices, **given)
    assert best.bound <= best.cost
    for strategy in strategies:
        restricted = plan(graph, devices, strategy=strategy, **given)
        assert best.cost <= restricted.cost * (1 + 1e-12)
        if objective[0] != "time" and not pending:
            assert restricted.traffic.total == simulate(restricted).total


@settings(max_examples=settings.default.max_examples * 3)
@given(st.data(), SEEDS, st.integers(1, 8), DEVICES, OBJECTIVES, st.booleans())
def test_a_plan_is_never_worse_than_a_strategy(data, seed, most, devices, objective, rewrite):
    check_against_strategies(data, seed, most, devices, objective, rewrite)


@given(st.data(), SEEDS, st.integers(1, 6), MANY, OBJECTIVES)
def test_nor_is_it_on_many_devices(data, seed, most, devices, objective):
    check_against_strategies(data, seed, most, devices, objective, rewrite=False)


@settings(max_examples=settings.default.max_examples * 3)
@given(
    data=st.data(),
    seed=SEEDS,
    devices=DEVICES,
    objective=st.sampled_from(["bound", "bytes"]),
)
def test_labels_are_cut_as_listed(data, seed, devices, objective):
    """Along the first listed label that a vertex has, as far as that goes.

    Vertices that read parts are not cut along those axes.
    """
    graph = random_graph(seed, tree=False)
    labels = data.draw(st.permutations(labels_of(graph)))[:2]
    options = {"objective": objective, "strategy": labels, "rewrite": False}
    found = plan(graph, devices, pending=False, **options)
    for name, parts in found.parts.items():
        sizes = graph.label_sizes(graph[name])
        own = [label for label in labels if label in sizes]
        if own:
            assert parts[own[0]] == max(vector[own[0]] for vector in viable(sizes, devices))
    assert simulate(found).total == found.traffic.total


@pytest.mark.parametrize(
    ("devices", "parts"),
    [
        (4, {"i": 2, "k": 2, "j": 1}),
        (16, {"i": 4, "k": 4, "j": 1}),
        (64, {"i": 8, "k": 8, "j": 1}),
        (36, {"i": 6, "k": 6, "j": 1}),
    ],
)
@pytest.mark.parametrize("objective", ["bound", "bytes"])
def test_sqrt_cuts_a_matrix_into_a_square(devices, parts, objective):
    assert plan(ed.parse(MATMUL), devices, objective, strategy="sqrt").parts["Z"] == parts


@pytest.mark.parametrize("devices", [2, 8, 12, 24])
def test_sqrt_cuts_as_squarely_as_it_can(devices):
    parts = plan(ed.parse(MATMUL), devices, strategy="sqrt").parts["Z"]
    pairs = [(d, devices // d) for d in range(1, devices + 1) if devices % d == 0]
    squarest = min(max(a, b) for a, b in pairs)
    assert max(parts.values()) == squarest
    assert parts["j"] == 1


def test_an_aggregated_label_can_be_listed():
    """It may be in no tensor's declaration under that name."""
    graph = ed.parse("input X[i: 8, j: 8]\nZ[i] <- sum X[i,q]\noutput Z")
    assert plan(graph, 8, strategy=["q"]).parts["Z"] == {"i": 1, "q": 8}


def test_the_named_strategies_of_a_transformer():
    graph = transformer(1)
    lists = {"data": ["b"], "context": ["s"], "attention": ["h"], "megatron": ["h", "f"]}
    for name, labels in lists.items():
        named, listed = plan(graph, 4, strategy=name), plan(graph, 4, strategy=labels)
        assert (named.cost, named.parts) == (listed.cost, listed.parts)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("magic", "strategy 'magic' is not one of sqrt, .*, nor a list of labels"),
        ("", "strategy '' is not one of"),
        (["nope"], r"no tensor has any label of the strategy \['nope'\]"),
        ([], "a list of labels"),
        ([3], "a list of labels"),
        (["i", None], "a list of labels"),
        (3, "a list of labels"),
        ("megatron", "no tensor has any label of the strategy"),
    ],
)
@pytest.mark.parametrize("objective", ["bound", "bytes"])
def test_what_is_no_strategy_is_named(strategy, message, objective):
    with pytest.raises(PlanError, match=message):
        plan(ed.parse(MATMUL), 4, objective=objective, strategy=strategy)


@pytest.mark.long
def test_the_planners_own_plan_costs_no_more_than_the_usual_ones() -> None:
    """Whose own search, restricted as it is, once found what the free one had missed."""
    config = Config(vocabulary=96, width=64, layers=1, heads=8, kv_heads=4, head_size=8, hidden=160)
    graph = step_graph(config, 8, 64)
    free = ed.plan(graph, 32, time_limit=120)
    for name in applicable(graph, 32, stateful=True):
        assert free.cost <= ed.plan(graph, 32, strategy=name, time_limit=1).cost, name


def test_strategies_that_would_cut_nothing_do_not_apply() -> None:
    text = "input X[b: {}, f: 8], W[f, h: 8]\nZ[b,h] <- sum X[b,f] * W[f,h]\noutput Z"
    assert "data" in applicable(ed.parse(text.format(4)), 4)
    assert "data" not in applicable(ed.parse(text.format(1)), 4)
    assert "megatron" not in applicable(ed.parse(text.format(4)), 4, without=["megatron"])


def test_attention_has_keys() -> None:
    """A label h may also be a hidden layer."""
    text = "input X[b: 4, f: 8], W[f, h: 8]\nZ[b,h] <- sum X[b,f] * W[f,h]\noutput Z"
    assert list(applicable(ed.parse(text), 4)) == ["sqrt", "data", "megatron"]
    assert "attention" in applicable(transformer(1), 4)
