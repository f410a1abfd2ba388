"""Overlap, overhead and measured rates: what tables say is what plans take, and bounds hold."""

from __future__ import annotations

import random
from itertools import islice
from math import isfinite

import numpy as np
import pytest
from brute_seconds import seconds_of
from random_graphs import random_graph

import eindecomp as ed
from cases import ALL
from eindecomp.layout.mesh import Mesh
from eindecomp.planner import budgets
from eindecomp.planner.costs.cost import decided_cost
from eindecomp.planner.costs.least_prices import LeastSeconds
from eindecomp.planner.costs.machine import Curve, highest
from eindecomp.planner.costs.price import PriceInSeconds
from eindecomp.planner.model.movement import MovementModel
from eindecomp.planner.search.blocks import choose_block
from eindecomp.planner.search.relaxation import Relaxation, relax
from eindecomp.planner.search.search import Search, all_axes
from eindecomp.planner.space.choices import unassigned
from eindecomp.planner.space.layout_rules import LayoutRules

SHAPES = {"vector": 2e8, "thin": 7e8, "large": 3e9, "loops": 4e8}
BENT = {
    "all_gather": {"*": ((16, 1e-7), (64, 2e-7), (256, 3e-6))},
    "all_to_all": {"a": ((8, 4e-7), (128, 5e-7)), "*": ((8, 1e-8), (64, 6e-7), (65, 7e-7))},
    "reduce_scatter": {"b": ((4, 1e-7), (40, 1e-7), (400, 2e-7))},
}
MACHINES = {
    "hidden": ed.Machine(1e8, 1e9, 1e9, 1e-8, overlap=1),
    "half hidden": ed.Machine(1e8, 1e9, {"a": 1e8, "b": 1e9, "c": 1e9}, 1e-8, overlap=0.5),
    "rings on two levels": ed.Machine(
        1e9, 1e9, {"a": 1e8, "b": 1e9, "c": 1e9}, 1e-8, rounds="ring"
    ),
    "tasks": ed.Machine(1e9, 1e9, 1e9, 1e-9, task_overhead=3e-8),
    "curves": ed.Machine(SHAPES, 1e9, 1e9, 1e-8, transfers=BENT),
    "all": ed.Machine(SHAPES, 1e9, 1e9, 1e-8, overlap=0.7, task_overhead=1e-8, transfers=BENT),
}
SAMPLED = 40


def mesh_of(sizes: tuple[int, ...]) -> Mesh:
    return Mesh(tuple("abc"[: len(sizes)]), sizes)


def setting(seed: int, sizes: tuple[int, ...], machine: ed.Machine, inputs: str) -> Search:
    graph = random_graph(seed, tree=seed % 2 == 0, most=3)
    price = PriceInSeconds(mesh_of(sizes), machine)
    return Search(graph, price, LayoutRules(inputs), any_order=True, redundant=True)


def model_of(search: Search, *, pairs: bool) -> MovementModel:
    def of(vertex, view):
        rows = search.assignments(vertex, view, unassigned(view), all_axes(search))
        return search.choices(vertex, view, rows, None)

    return MovementModel.of(search.graph, search.price, of, search.rules, pairs=pairs)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", range(8 if ALL else 3))
def test_tables_say_what_plans_take(seed, machine):
    """Any choice, by its tables and element by element."""
    rng = random.Random(seed)
    inputs = "sharded" if seed % 4 < 2 else "free"
    search = setting(seed, rng.choice([(2,), (2, 2), (3, 2)]), MACHINES[machine], inputs)
    model = model_of(search, pairs=False)
    problem = model.problem()
    domains = [len(unary) for unary in model.tables.unary]
    picked = (np.array([rng.randrange(n) for n in domains]) for _ in range(50 * SAMPLED))
    costed = ((choice, problem.cost_of(choice)) for choice in picked)
    reached = list(islice(((c, cost) for c, cost in costed if isfinite(cost)), SAMPLED))
    assert reached
    for choice, cost in reached:
        given = model.given(choice)
        decisions = {n: d for n, d in model.decisions(choice).items() if n not in given}
        plainly = seconds_of(search.graph, search.mesh, MACHINES[machine], decisions, given)
        assert cost == pytest.approx(plainly, rel=1e-9)
        made = decided_cost(search.graph, search.price, decisions, given)
        assert made.total == pytest.approx(plainly, rel=1e-9)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", range(4 if ALL else 2))
def test_choosing_readers_layouts_costs_the_same(seed, machine):
    """Tables over pairs lead to the same optimum as tables over three variables."""
    search = setting(seed, (2, 2), MACHINES[machine], "sharded")
    block = all_axes(search)
    least = choose_block(search, block, {}).cost
    assert choose_block(search, block, {}, pairs=True).cost == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", range(6 if ALL else 2))
def test_relaxing_never_passes_the_optimum(seed, machine):
    for sizes in ((2, 2), (2, 3)):
        search = setting(seed, sizes, MACHINES[machine], "sharded" if seed % 4 < 2 else "free")
        least = choose_block(search, all_axes(search), {}).cost
        price = LeastSeconds(search.price)
        found = relax(Relaxation(search, price), 10)
        assert 0 < found.bound <= least * (1 + 1e-12)


@pytest.mark.parametrize("loosest", [1, 1 << 20])
@pytest.mark.parametrize("machine", ["half hidden", "all"])
@pytest.mark.parametrize("seed", range(4 if ALL else 2))
def test_relaxing_on_several_levels_never_passes_the_optimum(seed, machine, loosest, monkeypatch):
    monkeypatch.setattr(budgets, "RELAXED_CELLS", loosest)
    search = setting(seed, (2, 2, 2), MACHINES[machine], "sharded" if seed % 4 < 2 else "free")
    least = choose_block(search, all_axes(search), {}).cost
    price = LeastSeconds(search.price)
    found = relax(Relaxation(search, price), 10)
    assert found.bound <= least * (1 + 1e-12)


@pytest.mark.parametrize("machine", MACHINES)
def test_plans_are_never_below_their_bound(machine):
    for seed in range(4):
        graph = random_graph(seed, tree=False, most=4)
        mesh = {"a": 2, "b": 2}
        plan = ed.plan(graph, mesh=mesh, objective="time", machine=MACHINES[machine])
        assert plan.bound <= plan.cost * (1 + 1e-9)
        exact = ed.plan(
            graph, mesh=mesh, objective="time", machine=MACHINES[machine], solver="exact"
        )
        assert exact.cost == pytest.approx(plan.cost, rel=1e-9) or plan.gap > 0


CHAIN = ed.parse(
    "input X[i: 512, j: 512], W[j, k: 512], V[k, l: 512]\n"
    "Y[i,k] <- sum X[i,j] * W[j,k]\nZ[i,l] <- sum Y[i,k] * V[k,l]\noutput Z"
)


def test_what_runs_beside_computing_is_not_paid():
    apart = ed.Machine(1e9, 1e12, 1e7)
    plans = {
        overlap: ed.plan(
            CHAIN, 4, "time", inputs="sharded",
            machine=ed.Machine(1e9, 1e12, 1e7, overlap=overlap),
        )
        for overlap in (0, 0.5, 1)
    }  # fmt: skip
    assert plans[0].cost == ed.plan(CHAIN, 4, "time", inputs="sharded", machine=apart).cost
    assert plans[0].cost > plans[0.5].cost > plans[1].cost
    computing = sum(plans[1].costs.compute.values())
    assert computing <= plans[1].cost < computing + 0.5 * (plans[0].cost - computing)


SMALL = ed.parse("input X[i: 2, j: 4096]\nY[i] <- sum X[i,j]\nZ[i] <- exp(Y[i])\noutput Z")


def test_plans_for_slow_tasks_are_coarser():
    threads = ed.Machine(1e9, 1e10, float("inf"), task_overhead=1e-8)
    ray = ed.Machine(1e9, 1e10, float("inf"), task_overhead=1e-3)
    fine, coarse = (ed.plan(SMALL, 8, "time", machine=m, rewrite=False) for m in (threads, ray))
    assert np.prod(list(fine.parts["Y"].values())) == 8
    assert np.prod(list(coarse.parts["Y"].values())) < 8
    assert coarse.cost < decided_cost(
        SMALL, PriceInSeconds(coarse.mesh, ray), fine.decisions, fine.given
    ).total  # fmt: skip
    words = " ".join(coarse.explain().split())
    assert "Each kernel call and each message takes 1 ms more than its work" in words
    assert "2 of 2 vertices are cut into fewer pieces than there are devices" in words
    assert "Communication runs beside" not in words


def test_explaining_says_what_overlap_approximates():
    machine = ed.Machine(1e9, 1e12, 1e7, overlap=0.5)
    plan = ed.plan(CHAIN, 4, "time", inputs="sharded", machine=machine)
    words = " ".join(plan.explain().split())
    assert "Communication runs beside 50 % of computing" in words
    assert "in equal shares, an approximation" in words


def test_curves_are_never_above_their_line():
    rng = random.Random(0)
    for _ in range(100):
        count = rng.randint(1, 6)
        sizes = sorted(rng.sample(range(1, 10**6), count))
        seconds = sorted(rng.uniform(1e-7, 1e-3) for _ in sizes)
        curve = Curve(tuple(zip(sizes, seconds, strict=True)))
        asked = np.concatenate([np.geomspace(1, 10**8, 200), sizes])
        line = curve.floor.start + curve.floor.pace * asked
        assert (line <= curve.seconds(asked) * (1 + 1e-12)).all()
        assert (np.diff(curve.seconds(np.sort(asked))) >= -1e-15).all()


def test_the_highest_of_curves():
    one, other = Curve(((10, 1.0), (20, 2.0))), Curve(((10, 0.5), (20, 4.0)))
    assert highest([one, other]).points == ((10, 1.0), (20, 4.0))


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((), "a curve has 1 to"),
        (((1, 2), (1, 3)), "ascend"),
        (((1, 2), (2, 1)), "ascend"),
        (((0, 1),), "both positive"),
        (((1, float("nan")),), "both positive"),
        ((3,), "both positive"),
        ("abc", "a curve has"),
    ],
)
def test_bad_curves_are_refused(points, message):
    with pytest.raises(ed.PlanError, match=message):
        Curve(points)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"overlap": 1.5}, "overlap must be from 0 to 1, not 1.5"),
        ({"overlap": True}, "overlap must be from 0 to 1"),
        ({"rounds": "tree"}, "rounds must be doubling or ring, not 'tree'"),
        ({"task_overhead": -1}, "task_overhead must be 0 or more, not -1"),
        (
            {"flops": {"large": 1.0}},
            "flops by shape are for vector, thin, large, huge, loops",
        ),
        ({"flops": SHAPES | {"thin": float("inf")}}, "flops of thin must be finite"),
        ({"flops": SHAPES | {"thin": 0}}, "flops must be positive"),
        ({"transfers": {"gather": {}}}, "no collective is called 'gather'"),
        ({"transfers": {"all_gather": 3}}, "transfers of all_gather are"),
        ({"transfers": {"all_gather": {"a": ()}}}, "a curve has 1 to"),
    ],
)
def test_bad_machines_are_refused(given, message):
    with pytest.raises(ed.PlanError, match=message):
        ed.Machine(**{"flops": 1, "memory_bandwidth": 1, "bandwidth": 1} | given)
