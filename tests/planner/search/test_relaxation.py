"""The relaxation: a bound that never exceeds the optimum, on graphs of any width."""

from __future__ import annotations

from math import prod

import pytest
from brute_bytes import brute_bytes
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.planner.search import relaxation as relaxing
from eindecomp.planner.search.relaxation import relax
from eindecomp.planner.space.mesh import Mesh


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_relaxing_never_passes_the_optimum(seed, inputs):
    graph = random_graph(seed, tree=seed % 2 == 0)
    for sizes in ((2, 2), (4, 3), (6,), (2, 2, 2)):
        mesh = Mesh(tuple("abc"[: len(sizes)]), sizes)
        found = relax(graph, mesh, inputs, lambda *_: None, 10)
        assert found.bound <= brute_bytes(graph, sizes, inputs)


def summed(rank: int, *, shared: bool) -> ed.Graph:
    """A sum over many labels, of a given tensor or of one that others read, too."""
    labels = [f"a{k}" for k in range(rank)]
    own, size = ",".join(labels), ", ".join(f"{label}: 2" for label in labels)
    read, more = ("Y", f"Y[{own}] <- exp(X[{own}])\nM[] <- max Y[{own}]\n") if shared else ("X", "")
    outputs = "S, M, Y" if shared else "S"
    return ed.parse(f"input X[{size}]\n{more}S[] <- sum {read}[{own}]\noutput {outputs}")


@pytest.mark.parametrize("rank", [12, 30, 50])
@pytest.mark.parametrize("objective", ["bytes", "bound"])
def test_a_sum_over_many_labels_is_planned_at_once(rank, objective):
    plan = ed.plan(summed(rank, shared=False), 64, objective)
    assert plan.gap == 0
    assert plan.cost == (63 * 4 * 2 if objective == "bytes" else 2**rank + 63)
    assert "Proved optimal" in " ".join(plan.explain().split())


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
        monkeypatch.setattr(relaxing, "_ROWS", (most,))
        for sizes in ((2, 2), (4, 3), (2, 2, 2)):
            mesh = Mesh(tuple("abc"[: len(sizes)]), sizes)
            found = relax(graph, mesh, inputs, lambda *_: None, 10)
            assert found.bound <= brute_bytes(graph, sizes, inputs)
