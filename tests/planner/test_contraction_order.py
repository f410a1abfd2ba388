"""Contraction orders are chosen with the decomposition: never worse than any fixed order."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.exchange import divide_late
from eindecomp.graph.rewrites.fuse import fuse
from eindecomp.graph.rewrites.merge_products import merge_products, merged_products
from eindecomp.graph.rewrites.order_contractions import order_as
from eindecomp.graph.work import operations
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import view_of
from eindecomp.planner.contraction_order import Contractions, minimize_with_order
from eindecomp.planner.minimize_movement import minimize_movement
from eindecomp.planner.options import Options
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.planner.space.viable import WorkLimit, viable_parts

MTTKRP = """
input X[i: 32, j: 32, k: 32] float64, B[j, a: 4] float64, C[k, a] float64
Z[i,a] <- sum X[i,j,k] * B[j,a] * C[k,a]
output Z
"""
CHAIN = """
input A[i: 8, j: 64], B[j, k: 8], C[k, l: 64]
Y[i,k] <- sum A[i,j] * B[j,k]
Z[i,l] <- sum Y[i,k] * C[k,l]
output Z
"""


def random_contraction(seed: int) -> Graph:
    """A sum of a product of three or four random tensors."""
    rng = random.Random(seed)
    labels = "ijklm"[: rng.randint(3, 5)]
    sizes = {label: rng.choice((2, 3, 4, 6, 8, 12, 16, 24)) for label in labels}
    graph, specs = ed.Graph(), []
    for n in range(rng.choice((3, 3, 4))):
        own = rng.sample(labels, rng.randint(1, min(3, len(labels))))
        graph.input(f"X{n}", {label: sizes[label] for label in own}, "float64")
        specs.append("".join(own))
    used = sorted(set("".join(specs)))
    output = rng.sample(used, rng.randint(0, min(2, len(used) - 1)))
    names = [vertex.name for vertex in graph.inputs]
    graph.output(graph.einsum(f"{','.join(specs)}->{''.join(output)}", *names, name="Z"))
    return graph


def plain_options(graph: Graph, devices: int, inputs: str) -> Options:
    mesh = Mesh.of_devices(devices)
    return Options(
        graph, mesh, "bytes", "auto", LayoutRules(inputs), None, None, None, 45, None
    )  # fmt: skip


def cost_of_every_order(graph: Graph, devices: int, inputs: str, work: float) -> dict[Any, float]:
    """What each order costs, planned by itself: all trees of operands, one after another."""
    options = plain_options(ed.rewrite(graph), devices, inputs)
    costs: dict[Any, float] = {}
    contractions = Contractions.of(graph, options.graph, (), work)
    for own in contractions.orderings:
        for order in own.contraction.within(inf, 10_000) or []:
            if own.contraction.work(order) > work * own.contraction.least:
                continue
            made, limits = contractions.ordered({own.name: order})
            limit = WorkLimit(limits)
            views = {name: view_of(made, made[name]) for name in limits}
            if all(
                limit(made[n], v, viable_parts(v.sizes, options.mesh.sizes), options.mesh).any()
                for n, v in views.items()
            ):
                given = replace(options, graph=made, restriction=limit if limits else None)
                costs[order] = minimize_movement(given).costs.total
    return costs


@pytest.mark.one_in(4)
@pytest.mark.parametrize("inputs", ["free", "sharded"])
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_all_orders_is_chosen(seed: int, devices: int, inputs: str) -> None:
    graph = random_contraction(seed)
    plan = ed.plan(graph, devices, inputs=inputs, work=1.5)
    costs = cost_of_every_order(graph, devices, inputs, 1.5)
    if costs:
        assert plan.cost == min(costs.values())
        assert plan.orders is not None
        assert plan.orders.complete
    assert plan.cost <= ed.plan(graph, devices, inputs=inputs, work=None).cost or (
        work_of(ed.rewrite(graph)) > 1.5 * work_of(plan.graph)
    )


def work_of(graph: Graph) -> int:
    return sum(operations(graph, vertex) for vertex in graph.vertices.values())


@pytest.mark.parametrize("seed", range(30))
def test_every_order_gives_what_evaluate_gives(seed: int) -> None:
    graph = random_contraction(seed)
    rng = np.random.default_rng(seed)
    values = {v.name: rng.normal(size=v.shape) for v in graph.inputs}
    wanted = ed.evaluate(graph, values)["Z"]
    contractions = Contractions.of(graph, ed.rewrite(graph), (), inf)
    for own in contractions.orderings:
        for order in own.orders:
            made, _ = contractions.ordered({own.name: order})
            np.testing.assert_allclose(ed.evaluate(made, values)["Z"], wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("text", [MTTKRP, CHAIN])
@pytest.mark.parametrize("devices", [4, 8])
def test_a_plan_runs_and_moves_what_it_costs(text: str, devices: int) -> None:
    graph = ed.parse(text)
    plan = ed.plan(graph, devices, inputs="sharded", work=2)
    rng = np.random.default_rng(0)
    values = {v.name: rng.normal(size=v.shape).astype(v.dtype) for v in graph.inputs}
    result = ed.run(plan, values)
    np.testing.assert_allclose(result["Z"], ed.evaluate(graph, values)["Z"], rtol=1e-4, atol=1e-4)
    assert result.stats.bytes_moved == plan.cost


@pytest.mark.parametrize(
    ("one", "two", "three", "asked"),
    [
        ("A", "A", "B", {"inputs": "sharded"}),
        ("B", "A", "A", {"inputs": "sharded"}),
        ("A", "B", "C", {"tie": {"C": "Z"}}),
        ("C", "B", "A", {"tie": {"C": "Z"}}),
    ],
)
def test_operands_that_lie_in_different_ways_do_not_change_places(
    one: str, two: str, three: str, asked: dict[str, Any]
) -> None:
    """An input that is read twice or tied has one home: orders that are alike differ in cost."""

    def planned(text: str, work: float | None) -> ed.Plan:
        head = "input A[i: 8, j: 8], B[j, k: 8], C[k, l: 8]"
        return ed.plan(ed.parse(f"{head}\n{text}\noutput Z"), 4, work=work, **asked)

    found = planned(f"Z[i,l] <- max {one}[i,j] + {two}[j,k] + {three}[k,l]", 1.2)
    by_hand = (
        f"Y[i,k] <- max {one}[i,j] + {two}[j,k]\nZ[i,l] <- max Y[i,k] + {three}[k,l]",
        f"Y[j,l] <- max {two}[j,k] + {three}[k,l]\nZ[i,l] <- max {one}[i,j] + Y[j,l]",
    )
    costs = [planned(text, None).cost for text in by_hand]
    assert found.cost == found.bound == min(costs) < max(costs)


@pytest.mark.long
def test_a_fused_vertex_moves_less_than_any_pairwise_order() -> None:
    graph = ed.parse(MTTKRP)
    plan = ed.plan(graph, 64, inputs="sharded")
    usual = ed.plan(graph, 64, inputs="sharded", work=None)
    assert [len(v.inputs) for v in plan.graph.vertices.values() if v.inputs] == [3]
    assert plan.cost < usual.cost
    assert plan.bound == plan.cost


def test_no_time_is_spent_on_a_usual_order_that_cannot_win(monkeypatch: Any) -> None:
    """For many devices its search takes all the time there is, and the fused vertex was missed."""
    planned: list[int] = []

    def note(options: Options, **more: Any) -> Any:
        planned.append(max(len(vertex.inputs) for vertex in options.graph.vertices.values()))
        return minimize_movement(options, **more)

    monkeypatch.setattr("eindecomp.planner.contraction_order.minimize_movement", note)
    made = ed.plan(ed.parse(MTTKRP), 8, inputs="sharded", pending=False)
    assert planned[0] == 3
    assert made.gap == 0
    assert 2 not in planned


def test_products_that_are_written_apart_are_one_contraction() -> None:
    plan = ed.plan(ed.parse(CHAIN), 4)
    assert plan.orders is not None
    assert plan.orders.considered > 1
    as_written = ed.plan(ed.parse(CHAIN), 4, work=None)
    assert as_written.orders is None
    assert as_written.graph == ed.rewrite(ed.parse(CHAIN))
    assert plan.cost <= as_written.cost


def test_ties_keep_the_order_as_written() -> None:
    graph = ed.parse(CHAIN)
    plan = ed.plan(graph, 8)
    assert plan.cost == ed.plan(graph, 8, work=None).cost == 0
    assert plan.graph == ed.rewrite(graph)


@pytest.mark.parametrize(
    "change",
    [
        ("output Z", "output Z, Y"),
        ("output Z", "W[i,k] <- exp(Y[i,k])\noutput Z, W"),
        ("B[j, k: 8]", "B[j, k: 8] float64"),
        ("input A[i: 8, j: 64], B[j, k: 8], C[k, l: 64]",
         "input A[i: 8, j: 64] float16, B[j, k: 8] float16, C[k, l: 64] float16"),
        ("sum Y[i,k] * C[k,l]", "max Y[i,k] * C[k,l]"),
        ("sum Y[i,k] * C[k,l]", "sum exp(Y[i,k]) * C[k,l]"),
        ("Z[i,l] <- sum Y[i,k] * C[k,l]", "Z[i,l] <- sum Y[i,k] * Y[l,k]"),
        ("Z[i,l] <- sum Y[i,k] * C[k,l]", "Z[i,l] <- sum exp(Y[i,k]) * Y[l,k]"),
        ("Z[i,l] <- sum Y[i,k] * C[k,l]", "Z[i,l] <- sum (-Y[i,k]) * Y[l,k]"),
    ],
)  # fmt: skip
def test_results_that_others_need_and_types_keep_products_apart(change: tuple[str, str]) -> None:
    graph = ed.parse(CHAIN.replace(*change))
    assert merged_products(graph) == {}
    assert ed.plan(graph, 4).orders is None


def test_pinned_results_stay() -> None:
    plan = ed.plan(ed.parse(CHAIN), 4, pin={"Y": {"i": 4}}, inputs="sharded")
    assert plan.orders is None
    assert plan.parts["Y"]


def test_no_order_above_the_limit_is_taken() -> None:
    # (A·B)·c, as written, takes far more than A·(B·c).
    text = "input A[i: 64, j: 64], B[j, k: 64], c[k]\nY[i,k] <- sum A[i,j] * B[j,k]\n"
    graph = ed.parse(f"{text}Z[i] <- sum Y[i,k] * c[k]\noutput Z")
    for work in (1, 1.2):
        plan = ed.plan(graph, 4, work=work)
        assert work_of(plan.graph) <= work * 2 * (2 * 64 * 64)
    assert ed.plan(graph, 4, work=None).graph == ed.rewrite(graph)


@pytest.mark.parametrize("seed", range(12))
def test_work_of_one_gives_least_work_orders(seed: int) -> None:
    graph = random_contraction(seed)
    plan = ed.plan(graph, 4, work=1, inputs="sharded")
    contractions = Contractions.of(graph, ed.rewrite(graph), (), inf)
    least = sum(own.contraction.least for own in contractions.orderings)
    # Fusion repeats a cheap product of small tensors where a larger one is multiplied with it.
    joined = [
        v for v in plan.graph.vertices.values() if isinstance(v.op, ed.EinSum) and not v.op.agg
    ]
    repeated = sum(v.elements * max(len(v.inputs) - 2, 0) for v in joined)
    assert not contractions.orderings or 0 <= work_of(plan.graph) - least <= repeated


@pytest.mark.parametrize("seed", range(12))
def test_the_usual_order_takes_the_fewest_operations(seed: int) -> None:
    """By our own count, so that the least limit on work allows it."""
    graph = random_contraction(seed)
    contractions = Contractions.of(graph, ed.rewrite(graph), (), inf)
    for own in contractions.orderings:
        assert own.contraction.work(own.written) == own.contraction.least
    asked: dict[str, Any] = {"devices": 4, "inputs": "sharded"}
    assert ed.plan(graph, work=1, **asked).cost <= ed.plan(graph, work=None, **asked).cost


def test_time_counts_operations_instead_of_limiting_them() -> None:
    machine = ed.Machine(flops=1e9, memory_bandwidth=1e12, bandwidth=1e6, latency=1e-6)
    graph = ed.parse(MTTKRP)
    plan = ed.plan(graph, 8, objective="time", machine=machine, inputs="sharded")
    usual = ed.plan(graph, 8, objective="time", machine=machine, inputs="sharded", work=None)
    assert plan.cost <= usual.cost
    assert plan.orders is not None
    assert plan.orders.most == {}


def test_other_semirings_have_orders_too() -> None:
    text = "input A[i: 6, j: 6], B[j, k: 6], C[k, l: 6]\nZ[i,l] <- max A[i,j] + B[j,k] + C[k,l]"
    graph = ed.parse(f"{text}\noutput Z")
    plan = ed.plan(graph, 4, inputs="sharded")
    assert plan.orders is not None
    assert plan.orders.considered == 2  # pairwise: a fused vertex would visit every point
    rng = np.random.default_rng(0)
    values = {v.name: rng.normal(size=v.shape).astype("f4") for v in graph.inputs}
    wanted = ed.evaluate(graph, values)["Z"]
    np.testing.assert_allclose(ed.run(plan, values)["Z"], wanted, rtol=1e-5)


def test_many_operands_are_ordered_step_by_step() -> None:
    count = 10
    graph = ed.Graph()
    sizes = [4, 32, 8, 64, 4, 16, 8, 32, 4, 8, 16]
    names = [
        graph.input(f"A{k}", {f"i{k}": sizes[k], f"i{k + 1}": sizes[k + 1]}).name
        for k in range(count)
    ]
    spec = ", ".join(f"i{k} i{k + 1}" for k in range(count))
    graph.output(graph.einsum(f"{spec} -> i0 i{count}", *names, name="Z"))
    plan = ed.plan(graph, 4, inputs="sharded", time_limit=10)
    usual = ed.plan(graph, 4, inputs="sharded", work=None)
    assert plan.orders is not None
    assert not plan.orders.complete
    assert plan.cost <= usual.cost
    rng = np.random.default_rng(0)
    values = {v.name: rng.normal(size=v.shape).astype("f4") for v in graph.inputs}
    wanted = ed.evaluate(usual.graph, values)["Z"]
    np.testing.assert_allclose(ed.evaluate(plan.graph, values)["Z"], wanted, rtol=1e-3, atol=1e-2)


def test_several_contractions_are_ordered_together() -> None:
    graph = ed.parse(
        "input A[i: 4, j: 32], B[j, k: 4], C[k, l: 32], D[l, m: 4], E[m, i]\n"
        "Y[i,l] <- sum A[i,j] * B[j,k] * C[k,l]\n"
        "W[i,l] <- exp(Y[i,l])\n"
        "Z[i] <- sum W[i,l] * D[l,m] * E[m,i]\noutput Z"
    )
    options = plain_options(ed.rewrite(graph), 4, "sharded")
    plan = ed.plan(graph, 4, inputs="sharded")
    contractions = Contractions.of(graph, options.graph, (), 1.2)
    assert len(contractions.orderings) == 2
    costs = [minimize_with_order(graph, options, work).costs.total for work in (1, 1.1, 1.2)]
    assert plan.cost == costs[-1] <= costs[1] <= costs[0]


@pytest.mark.parametrize("work", [0, 0.9, -1, float("nan"), "2", True, [1.2]])
def test_other_limits_on_work_are_refused(work: Any) -> None:
    with pytest.raises(ed.PlanError, match="work is how many times the least operations"):
        ed.plan(ed.parse(CHAIN), 4, work=work)


def test_a_saved_plan_keeps_its_orders(tmp_path: Any) -> None:
    for work in (1.2, inf):
        plan = ed.plan(ed.parse(MTTKRP), 64, inputs="sharded", work=work)
        plan.save(tmp_path / "plan.json")
        loaded = ed.Plan.load(tmp_path / "plan.json")
        assert loaded == plan
        assert (loaded.work, loaded.orders) == (work, plan.orders)


def test_explain_says_among_which_orders_one_was_chosen() -> None:
    plan = ed.plan(ed.parse(MTTKRP), 64, inputs="sharded", pending=False)
    said = "all 4 contraction orders of at most 1.2 × the least operations"
    assert said in str(plan)
    assert "not optimal" not in plan.explain()
    assert "contraction order as written" in str(ed.plan(ed.parse(MTTKRP), 64, work=None))


def test_merged_products_are_the_same_computation() -> None:
    graph = ed.parse(
        "input B[j: 3, a: 2] float64, C[k: 4, a] float64, X[i: 5, j, k] float64\n"
        "K[j,k,a] <- B[j,a] * C[k,a]\n"
        "Z[i,a] <- sum X[i,j,k] * K[j,k,a]\noutput Z"
    )
    products = merged_products(graph)
    merged = merge_products(graph, products)
    assert [v.name for v in merged.vertices.values() if v.inputs] == ["Z"]
    rng = np.random.default_rng(0)
    values = {v.name: rng.normal(size=v.shape) for v in graph.inputs}
    wanted = ed.evaluate(graph, values)["Z"]
    np.testing.assert_allclose(ed.evaluate(merged, values)["Z"], wanted)
    ordered, _ = order_as(merged, {"Z": products["Z"].written})
    for run in (divide_late, fuse):
        ordered = run(ordered)
    np.testing.assert_allclose(ed.evaluate(ordered, values)["Z"], wanted)


@st.composite
def graphs_of_products(draw: st.DrawFn) -> Graph:
    """Sums of products that read earlier ones several times, plainly or through functions."""
    lines, names = ["input A[p: 3, q: 3] float64, B[p, q] float64"], ["A", "B"]
    forms = st.sampled_from(["{}", "{}", "{}", "(-{})", "tanh({})", "(2 * {})"])
    for n in range(draw(st.integers(2, 4))):
        terms: list[str] = []
        labels: set[str] = set()
        for _ in range(draw(st.integers(2, 3))):
            one, other = draw(st.permutations("ijkl"))[:2]
            read = f"{draw(st.sampled_from(names[-2:]))}[{one},{other}]"
            terms.append(draw(forms).format(read))
            labels |= {one, other}
        output = draw(st.permutations(sorted(labels)))[:2]
        lines.append(f"V{n}[{','.join(output)}] <- sum {' * '.join(terms)}")
        names.append(f"V{n}")
    return ed.parse("\n".join([*lines, f"output {names[-1]}"]))


@given(graphs_of_products())
def test_what_is_read_twice_is_still_there(graph: Graph) -> None:
    rng = np.random.default_rng(0)
    values = {v.name: rng.uniform(-1, 1, v.shape) for v in graph.inputs}
    [name] = (v.name for v in graph.outputs)
    wanted = ed.evaluate(graph, values)[name]
    merged = merge_products(graph, merged_products(graph))
    plan = ed.plan(graph, 4, time_limit=5)
    for made in (merged, ed.rewrite(graph), plan.graph):
        found = ed.evaluate(made, values)[name]
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ed.run(plan, values)[name], wanted, rtol=1e-9, atol=1e-9)


def test_another_order_is_planned_in_a_short_time_where_the_usual_one_cannot_be() -> None:
    text = """
    input X[j: 4, m: 3], Y[m, j]
    Z[j,k,m] <- X[j,m] * X[k,m]
    W[j] <- sum Z[j,k,m] * Y[m,k]
    output W
    """
    plan = ed.plan(ed.parse(text), 4, time_limit=1)
    assert plan.cost == ed.plan(ed.parse(text), 4).cost


def test_a_second_is_enough_for_the_orders_of_a_small_graph() -> None:
    text = """
    input A[m: 512, n: 512], X[n: 512, f: 256], W[f, h: 128]
    M[m,f] <- sum A[m,n] * X[n,f]
    H[m,h] <- sum M[m,f] * W[f,h]
    output H
    """
    soon, later = (
        ed.plan(ed.parse(text), 8, inputs="sharded", time_limit=limit) for limit in (1.5, 20)
    )
    assert soon.orders is not None
    assert soon.orders.complete
    assert soon.cost == later.cost
