"""Layouts that follow one another: as many pieces as asked for, near the bound on many devices."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.layout.mesh import Mesh
from eindecomp.planner.costs.cost import decided_cost
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.search.blocks import choose_block
from eindecomp.planner.search.follow import combine, follow
from eindecomp.planner.search.relaxation import relaxed_of
from eindecomp.planner.search.search import Search, all_axes
from eindecomp.planner.space.following import axes_for
from eindecomp.planner.space.layout_rules import LayoutRules


@given(st.data())
def test_axes_cut_into_the_pieces_asked_for_and_begin_as_wanted(data):
    sizes = tuple(data.draw(st.lists(st.sampled_from([2, 2, 3]), min_size=1, max_size=7)))
    mesh = Mesh(tuple(f"a{k}" for k in range(len(sizes))), sizes)
    label_of = [data.draw(st.integers(0, 2)) for _ in sizes]
    pieces = [prod(n for n, i in zip(sizes, label_of, strict=True) if i == k) for k in range(3)]
    order = data.draw(st.permutations(range(len(sizes))))
    first = tuple(order[: data.draw(st.integers(0, len(sizes)))])
    own = axes_for(mesh, (sizes,), tuple((n,) for n in pieces), ((0, first),))
    assert own is not None
    assert [prod(sizes[a] for a in axes) for axes in own] == pieces
    used = [a for axes in own for a in axes]
    assert len(set(used)) == len(used)
    if len(set(sizes)) == 1:  # then any axes will do, so that the first ones wanted are taken
        shared = min(len(own[0]), len(first))
        assert own[0][:shared] == first[:shared]


@pytest.mark.parametrize("seed", range(12))
def test_plans_that_follow_cost_what_is_counted_and_no_less_than_the_optimum(seed):
    graph = random_graph(seed, tree=False, most=4)
    mesh = Mesh(("x", "y"), (2, 3) if seed % 3 == 0 else (2, 2))
    rules = LayoutRules("sharded" if seed % 2 else "free")
    search = Search(graph, PriceInBytes(mesh), rules)
    least = choose_block(Search(graph, PriceInBytes(mesh), rules, any_order=True), (0, 1), {}).cost
    plan = follow(search, relaxed_of(search, 10))
    assert plan is not None
    best = list(combine(search, (mesh.sizes,), [plan], least))[-1]
    assert least <= best.cost <= plan.cost
    for each in (plan, best):
        named = {n: d for n, d in each.decisions.items() if n not in graph.inputs}
        assert decided_cost(graph, search.price, named, each.given).total == each.cost


def test_combining_is_never_above_any_of_the_plans():
    graph = random_graph(5, tree=False, most=6)
    mesh = Mesh(("x", "y", "z"), (2, 2, 2))
    search = Search(graph, PriceInBytes(mesh), LayoutRules("sharded"))
    plans = [choose_block(search, block, {}) for block in ((0,), (0, 1), all_axes(search))]
    found = list(combine(search, (mesh.sizes,), plans, 0))
    assert min(each.cost for each in found) <= min(each.cost for each in plans)


@pytest.mark.parametrize(("layers", "devices"), [(8, 512), (20, 1024), (6, 4096)])
def test_layers_of_unequal_widths_are_near_the_bound_on_many_devices(layers, devices):
    widths = [1024 + 96 * (5 * k % 17) for k in range(layers + 1)]
    lines = [f"input X0[b: 4096, w0: {widths[0]}]"]
    for k in range(layers):
        lines += [f"input W{k}[w{k}, w{k + 1}: {widths[k + 1]}]"]
        lines += [f"Y{k}[b,w{k + 1}] <- sum X{k}[b,w{k}] * W{k}[w{k},w{k + 1}]"]
        lines += [f"X{k + 1}[b,w{k + 1}] <- relu(Y{k}[b,w{k + 1}])"]
    graph = ed.parse("\n".join([*lines, f"output X{layers}"]))
    plan = ed.plan(graph, devices, inputs="sharded", time_limit=4)
    assert plan.gap < 0.01
