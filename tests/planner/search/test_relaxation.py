"""The relaxation: a bound that never exceeds the optimum, on graphs of any width."""

from __future__ import annotations

from math import inf, prod

import pytest
from brute_memory import Setting, assignments, frontier
from brute_ordered import brute_ordered
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.layout.mesh import Mesh
from eindecomp.planner import budgets
from eindecomp.planner.costs.least_prices import LeastBytes, LeastSeconds
from eindecomp.planner.costs.price import PriceInBytes, PriceInSeconds
from eindecomp.planner.search import choose
from eindecomp.planner.search.blocks import any_plan, choose_block
from eindecomp.planner.search.relaxation import Relaxation, Relaxed, relax
from eindecomp.planner.search.search import Search, all_axes
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.planner.space.pieces import piece_choices
from eindecomp.planner.space.pin import pinned_cuts

FEW = 60  # assignments of all vertices together, for memory
MESHES = ((2, 2), (4, 3), (6,), (2, 2, 2))


def mesh_of(sizes: tuple[int, ...]) -> Mesh:
    return Mesh(tuple("abc"[: len(sizes)]), sizes)


def relaxed(
    graph: ed.Graph,
    sizes: tuple[int, ...],
    rules: LayoutRules,
    *,
    price=None,
    memory=None,
    seconds: float = 10,
) -> Relaxed:
    mesh = mesh_of(sizes)
    search = Search(graph, PriceInBytes(mesh), rules, memory=memory)
    return relax(Relaxation(search, price or LeastBytes(mesh)), seconds)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_relaxing_never_passes_the_optimum(seed, inputs):
    graph = random_graph(seed, tree=seed % 2 == 0)
    for sizes in MESHES:
        found = relaxed(graph, sizes, LayoutRules(inputs))
        hurried = relaxed(graph, sizes, LayoutRules(inputs), seconds=0)
        assert hurried.bound <= found.bound <= brute_ordered(graph, sizes, inputs)


def test_a_product_is_bounded_in_no_time():
    text = "input X[i: 64, j: 64], Y[j, k: 64]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"
    hurried = relaxed(ed.parse(text), (2, 2, 2), LayoutRules("sharded"), seconds=-1)
    assert hurried.bound == ed.plan(ed.parse(text), 8, inputs="sharded").cost


def test_a_hurried_plan_has_a_bound():
    lines = ["input X0[i: 64, j: 64]", *(f"input W{k}[j: 64, k: 64]" for k in range(40))]
    lines += [f"X{k + 1}[i,j] <- sum X{k}[i,k] * W{k}[k,j]" for k in range(40)]
    plan = ed.plan(ed.parse("\n".join([*lines, "output X40"])), 64, inputs="sharded", time_limit=0)
    assert 0 < plan.bound <= plan.cost


@pytest.mark.parametrize("seed", range(6))
def test_relaxing_with_a_pinned_input_never_passes_the_optimum(seed):
    graph = random_graph(seed, tree=seed % 2 == 0)
    given = next(v for v in graph.inputs if v.shape)
    for sizes in ((2, 2), (2, 2, 2)):
        for label, size in given.sizes.items():
            for pieces in {1, 2} & set(range(1, size + 1)):
                rules = LayoutRules(
                    pinned=pinned_cuts(graph, mesh_of(sizes), {given.name: {label: pieces}})
                )
                found = relaxed(graph, sizes, rules)
                plan = ed.plan(
                    graph, mesh=dict(zip("abc", sizes, strict=False)), rewrite=False,
                    pin={given.name: {label: pieces}}, time_limit=20, pending=False,
                )  # fmt: skip
                layouts = [tuple(span.axes for span in cut) for cut in rules.pinned[given.name]]
                least = brute_ordered(graph, sizes, pin={given.name: layouts})
                assert found.bound <= least
                assert plan.bound <= least <= plan.cost


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_relaxing_within_memory_never_passes_the_optimum(seed, inputs):
    graph = random_graph(seed, tree=False, most=3)
    for sizes in ((2,), (2, 2), (3, 2)):
        setting = Setting(graph, sizes, inputs)
        if assignments(setting) > FEW:
            continue
        best = frontier(setting)
        ends = [most - 1 for most, _ in best[1:]] + [2 * best[-1][0]]
        for (most, cost), end in zip(best, ends, strict=True):
            for memory in {most, end}:
                assert relaxed(graph, sizes, LayoutRules(inputs), memory=memory).bound <= cost


MACHINES = (
    ed.Machine(1e9, 1e9, bandwidth=1e9, latency=1e-9),
    ed.Machine(1e9, 1e9, {"a": 1e8, "b": 1e9, "c": 1e9}, {"a": 1e-7, "b": 1e-9, "c": 1e-9}),
    ed.Machine(1e9, 1e9, {"a": 1e9, "b": 1e8, "c": 1e8}, {"a": 1e-9, "b": 1e-7, "c": 1e-8}),
)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_relaxing_seconds_never_passes_the_optimum(seed, inputs):
    """The optimum by elimination over all assignments, in any order."""
    graph = random_graph(seed, tree=seed % 2 == 0, most=3)
    for sizes in ((2, 2), (2, 3)):
        for machine in MACHINES:
            price = PriceInSeconds(mesh_of(sizes), machine)
            rules = LayoutRules(inputs)
            found = relaxed(graph, sizes, rules, price=LeastSeconds(price))
            search = Search(graph, price, rules, any_order=True, redundant=True)
            least = choose_block(search, all_axes(search), {}).cost
            assert found.bound <= least * (1 + 1e-12)


TWO_LEVELS = ed.Machine(1e9, 1e9, {"a": 1e8, "b": 1e8, "c": 1e9}, {"a": 1e-7, "b": 1e-7, "c": 1e-9})


@pytest.mark.parametrize("loosest", [1, 1 << 20])
@pytest.mark.parametrize("fine", [1, 1 << 10])
@pytest.mark.parametrize("seed", range(8))
def test_relaxing_seconds_on_two_levels_never_passes_the_optimum(seed, fine, loosest, monkeypatch):
    """With outer axes told apart or not; with second layouts, or readers that share fetches."""
    monkeypatch.setattr(budgets, "FINE_VECTORS", fine)
    monkeypatch.setattr(budgets, "RELAXED_CELLS", loosest)
    graph = random_graph(seed, tree=seed % 2 == 0, most=3)
    sizes, rules = (2, 2, 2), LayoutRules("sharded" if seed % 4 < 2 else "free")
    price = PriceInSeconds(mesh_of(sizes), TWO_LEVELS)
    found = relaxed(graph, sizes, rules, price=LeastSeconds(price))
    search = Search(graph, price, rules, any_order=True, redundant=True)
    least = choose_block(search, all_axes(search), {}).cost
    assert found.bound <= least * (1 + 1e-12)


def summed(rank: int, *, shared: bool) -> ed.Graph:
    """A sum over many labels, of a given tensor or of one that others read, too."""
    labels = [f"a{k}" for k in range(rank)]
    own, size = ",".join(labels), ", ".join(f"{label}: 2" for label in labels)
    read, more = ("Y", f"Y[{own}] <- exp(X[{own}])\nM[] <- max Y[{own}]\n") if shared else ("X", "")
    outputs = "S, M, Y" if shared else "S"
    return ed.parse(f"input X[{size}]\n{more}S[] <- sum {read}[{own}]\noutput {outputs}")


@pytest.mark.one_in(2)
@pytest.mark.long("bytes-50")
@pytest.mark.parametrize("rank", [12, 30, 50])
@pytest.mark.parametrize("objective", ["bytes", "bound"])
def test_a_sum_over_many_labels_is_planned_at_once(rank, objective):
    plan = ed.plan(summed(rank, shared=False), 64, objective)
    assert plan.gap == 0
    assert plan.cost == (63 * 4 * 2 if objective == "bytes" else 2**rank + 63)
    assert "Proved optimal" in " ".join(plan.explain().split())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", [{}, {"strategy": ["a3"]}, {"strategy": "sqrt"}])
def test_what_cannot_be_listed_has_a_plan_and_a_modest_bound(options):
    plan = ed.plan(summed(30, shared=True), 64, time_limit=2, **options)
    assert plan.bound <= plan.cost
    assert prod(plan.parts["Y"].values()) == 64
    assert plan.parts["Y"]["a3"] == 2 or options != {"strategy": ["a3"]}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_leaving_vertices_out_never_passes_the_optimum(seed, inputs, monkeypatch):
    graph = random_graph(seed, tree=seed % 2 == 0)
    for most in (2, 4):
        monkeypatch.setattr(budgets, "RELAXED_VECTORS", (most,))
        for sizes in ((2, 2), (4, 3), (2, 2, 2)):
            found = relaxed(graph, sizes, LayoutRules(inputs))
            assert found.bound <= brute_ordered(graph, sizes, inputs)


@pytest.mark.parametrize("seed", range(12))
def test_vectors_alone_never_pass_the_optimum(seed, monkeypatch):
    monkeypatch.setattr(budgets, "PIECES_AND_HOMES", -1)
    piece_choices.cache_clear()
    graph = random_graph(seed, tree=seed % 2 == 0)
    for sizes in ((2, 2), (4, 3), (7,), (2, 2, 2)):
        found = relaxed(graph, sizes, LayoutRules("sharded"))
        assert found.bound <= brute_ordered(graph, sizes, "sharded")
    piece_choices.cache_clear()


def test_a_product_with_many_vectors_and_homes_is_bounded():
    sizes = "input Q[b: 12, s: 60, h: 64, d: 96], K[b, t: 96, h, d]"
    graph = ed.parse(f"{sizes}\nS[b,h,s,t] <- sum Q[b,s,h,d] * K[b,t,h,d]\noutput S")
    plan = ed.plan(graph, 840, inputs="sharded", time_limit=10)
    assert plan.bound == plan.cost > 0


def test_a_bound_by_prices_is_raised_by_more_sweeps(monkeypatch):
    monkeypatch.setattr(budgets, "RELAXED_CELLS", 0)
    monkeypatch.setattr(budgets, "FIRST_GAIN", inf)  # one sweep
    graph, mesh = random_graph(8, tree=False), mesh_of((2, 2, 2))
    search = Search(graph, PriceInBytes(mesh), LayoutRules("sharded"), deadline=inf)
    first = choose.relaxed_of(search, 10)
    choosing = choose.Choosing(search, inf, first, best=any_plan(search))
    choose.raise_relaxed_bound(choosing)
    assert first.bound < choosing.relaxed.bound == choosing.bound <= choosing.cost
