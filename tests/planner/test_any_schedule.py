"""Plans beside any schedule: none moves less than the bound, which is there only where it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.planner.any_schedule import contraction_of, points_of, product_alone, whole_plan
from eindecomp.show.report import content
from strategies import graphs

SPECS = {
    "product": "ik,kj->ij",
    "batches": "bik,bkj->bij",
    "MTTKRP": "ijk,jr,kr->ir",
    "chain of three": "ij,jk,kl->il",
    "matrix times vector": "ij,j->i",
    "outer product": "i,j->ij",
    "diagonal": "ii,ij->j",
}


def one(spec: str, sizes: dict[str, int], dtype: str = "float32") -> ed.Graph:
    graph = ed.Graph()
    operands = spec.partition("->")[0].split(",")
    names: list[str] = []
    for k, labels in enumerate(operands):
        own = {label if label not in labels[:d] else f"{label}{d}": sizes[label]
               for d, label in enumerate(labels)}  # fmt: skip
        names.append(graph.input(f"T{k}", own, dtype).name)
    graph.output(graph.einsum(spec, *names, name="Z"))
    return graph


def planned(graph: ed.Graph, devices: int, **asked: Any) -> ed.Plan:
    given: dict[str, Any] = {"inputs": "sharded", "rewrite": False, "work": None, "time_limit": 5}
    return ed.plan(graph, devices, **(given | asked))


def test_no_plan_moves_less_than_any_schedule() -> None:
    rng = np.random.default_rng(3)
    known = 0
    for number in range(150):
        spec = list(SPECS.values())[number % len(SPECS)]
        labels = sorted({*spec} - {*",->"})
        sizes = {label: int(2 ** rng.uniform(0, 6)) for label in labels}
        graph = one(spec, sizes, ["float32", "bfloat16", "float64"][number % 3])
        plan = planned(graph, int(rng.integers(2, 17)))
        against = whole_plan(plan)
        if against is not None:
            known += 1
            assert against.moved == plan.cost
            assert against.least <= plan.cost, (spec, sizes, plan.devices)
            assert sum(size * n for size, n in points_of(plan, "Z").items()) == np.prod(
                list(sizes.values())
            )
    assert known > 75


@settings(max_examples=30, deadline=None)
@given(graphs(), st.sampled_from([2, 3, 4, 6]))
def test_no_product_of_a_graph_moves_less_than_any_schedule(graph: ed.Graph, devices: int) -> None:
    plan = planned(graph, devices)
    for name in plan.parts:
        against = product_alone(plan, name)
        assert against is None or against.least <= against.moved <= plan.cost


@pytest.mark.parametrize(
    ("sizes", "devices"),
    [
        ((64, 64, 64), 8),
        ((60, 60, 60), 27),
        ((256, 8, 8), 16),
        ((960, 240, 60), 36),
        ((48,) * 3, 1),
    ],
)
def test_plans_reach_the_least_where_the_best_box_divides_all(
    sizes: tuple[int, int, int], devices: int
) -> None:
    plan = planned(one(SPECS["product"], dict(zip("ijk", sizes, strict=True))), devices)
    assert plan.least_of_any == (plan.cost if devices > 1 else None)


def test_an_mttkrp_reaches_the_least() -> None:
    plan = planned(one(SPECS["MTTKRP"], {"i": 64, "j": 64, "k": 64, "r": 16}), 8)
    assert plan.least_of_any == plan.cost > 0


def test_uneven_pieces_add_up_what_each_device_must_receive() -> None:
    plan = planned(one(SPECS["product"], {"i": 1000, "j": 1000, "k": 1000}), 7)
    points = points_of(plan, "Z")
    assert points == {142_000_000: 1, 143_000_000: 6}
    words = sum(3 * size ** (2 / 3) * n for size, n in points.items()) - 3_000_000
    assert plan.least_of_any == pytest.approx(4 * words, abs=4)


@pytest.mark.parametrize(
    "asked",
    [{"inputs": "free"}, {"objective": "bound"}, {"pin": {"T0": {"i": 2}}},
     {"objective": "time", "machine": "cpu-cluster", "inputs": "free"}],
    ids=str,
)  # fmt: skip
def test_inputs_that_are_free_or_stored_twice_have_no_such_bound(asked: dict[str, Any]) -> None:
    plan = planned(one(SPECS["product"], {"i": 8, "j": 8, "k": 8}), 4, **asked)
    assert plan.least_of_any is None
    assert "any schedule" not in plan.explain()
    assert "any schedule" not in str(plan.compare({"by rows": ["i"]}))


@pytest.mark.parametrize(
    "text",
    [
        "Z[i,j] <- max X[i,k] * Y[k,j]",
        "Z[i,j] <- sum (X[i,k] - Y[k,j])**2",
        "Z[i,j] <- sum X[i,k] + Y[k,j]",
        "Z[i] <- sum X[i,k]",
        "Z[i,j,l] <- sum X[i,k] * Y[k,j]",
        "Z[i] <- sum X[i,k] * Y[k,j]",
    ],
)
def test_what_is_no_product_has_no_such_bound(text: str) -> None:
    """Sums could be moved inside, or repeated, without forming all products."""
    start = "input X[i: 4, k: 4], Y[k, j: 4], W[l: 4]\n"
    graph = ed.parse(f"{start}{text}\noutput Z" if "l]" not in text else
                     f"{start}{text.replace('l]', 'l: 4]')}\noutput Z")  # fmt: skip
    assert contraction_of(graph, graph["Z"]) is None


def test_what_is_generated_where_it_is_read_has_no_such_bound() -> None:
    graph = ed.parse(
        "input X[i: 8, k: 8]\nM[k: 8, j: 8] <- fill k + j\nZ[i,j] <- sum X[i,k] * M[k,j]\noutput Z"
    )
    assert planned(graph, 4).least_of_any is None


def test_factors_may_be_scaled_and_mapped() -> None:
    graph = ed.parse(
        "input X[i: 4, k: 4], Y[k, j: 4]\nZ[i,j] <- sum 2 * exp(X[i,k]) / -Y[k,j]\noutput Z"
    )
    plain = one(SPECS["product"], {"i": 4, "j": 4, "k": 4})
    assert contraction_of(graph, graph["Z"]) == contraction_of(plain, plain["Z"])


def test_partial_sums_of_low_precision_are_single() -> None:
    own = one("ik,kj->ij", {"i": 4, "j": 4, "k": 4}, "bfloat16")
    contraction = contraction_of(own, own["Z"])
    assert contraction is not None
    assert contraction.items == (2, 2, 4)


ATTENTION = """
input Q[h: 4, s: 64, e: 16], K[h, t: 64, e], V[h, t, d: 16]
O[h,s,d] <- attention[t,e](Q[h,s,e], K[h,t,e], V[h,t,d])
output O
"""


def test_attention_has_the_bound_of_its_two_products() -> None:
    plan = ed.plan(ed.parse(ATTENTION), 8, inputs="sharded")
    against = whole_plan(plan)
    assert against is not None
    assert len(against.products) == 2
    alone = [product_alone(plan, name) for name in against.products]
    assert against.least == sum(own.least for own in alone if own is not None)
    assert 0 < against.least <= plan.cost
    assert "schedule of these two products moves" in str(plan)
    assert "Products whose operands arrive stored once, each alone" in plan.explain()


def test_keys_that_are_the_values_are_not_counted_twice() -> None:
    text = ATTENTION.replace(", V[h, t, d: 16]", "").replace("V[h,t,d]", "K[h,t,d]")
    plan = ed.plan(ed.parse(text), 8, inputs="sharded")
    assert plan.least_of_any is None


def test_explanations_comparisons_and_reports_say_it(tmp_path: Path) -> None:
    plan = planned(one(SPECS["product"], {"i": 64, "j": 64, "k": 64}), 8)
    least = "1.00 × the least that any schedule of this product moves"
    assert least in " ".join(plan.explain(80).split())
    ours, rows = plan.compare({"by rows": ["i"]})
    assert ours.over_any == 1.0
    assert rows.over_any == pytest.approx(7 / 3)
    assert "any schedule" in str(plan.compare({"by rows": ["i"]})).splitlines()[0]
    shown = content(plan, compare=True)
    assert {"any schedule": "1.00 ×"}.items() <= {
        figure["name"]: figure["value"] for figure in shown["figures"]
    }.items()
    assert shown["strategies"][0]["over_any"] == 1.0
    [vertex] = [own for own in shown["vertices"] if own["name"] == "Z"]
    assert vertex["least"].startswith("1.00 × the least")


def test_contractions_of_three_tensors_say_that_products_stay_together() -> None:
    plan = planned(one(SPECS["MTTKRP"], {"i": 16, "j": 16, "k": 16, "r": 4}), 8)
    assert "schedule of this contraction moves" in str(plan)
    assert "forms each product of elements on one device" in str(plan)
