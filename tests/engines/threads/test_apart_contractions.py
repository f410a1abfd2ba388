"""Contractions of several tensors: fused or step by step, the same numbers come out."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.engines.threads.passes import cut_brief_programs_for_cores as cutting
from eindecomp.engines.threads.passes import take_contractions_apart as apart
from eindecomp.engines.threads.prepare import ALONE, prepared

CHAIN = """
input A[i: 300, j: 200], B[j, k: 250], C[k, l: 150], D[i, l]
Y[i,l] <- sum A[i,j] * B[j,k] * C[k,l]
Z[i,l] <- Y[i,l] + D[i,l]
output Z, Y
"""
CASES = ["ij,jk,kl->il", "ijk,ja,ka->ia", "ijk,ia,jb,kc->abc", "ia,ajb,bkc,cl->ijkl", "ij,j,ik->k"]


def verdict(word: str):
    """Every contraction is found to be faster so, on two cores."""
    return (
        patch.object(apart, "_measured", lambda *_: word),
        patch.object(apart, "_VERDICTS", apart.Verdicts(f"only for a test: {word}", tuple)),
        patch.object(apart, "APART", 0.0),
        patch.object(apart, "cores", lambda: 2),
        patch.object(cutting, "cores", lambda: 2),
    )


def run_with(word: str, plan: ed.Plan, arrays: dict[str, np.ndarray]) -> ed.Result:
    patches = verdict(word)
    for each in patches:
        each.start()
    try:
        return ed.compile(plan)(arrays)
    finally:
        for each in reversed(patches):
            each.stop()


@pytest.mark.one_in(3)
@pytest.mark.long("ia,ajb,bkc,cl->ijkl-float32", "ijk,ja,ka->ia-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("spec", CASES)
def test_both_ways_give_what_the_reference_gives(spec, dtype):
    rng = np.random.default_rng(0)
    graph, arrays = ed.Graph(), {}
    for k, labels in enumerate(spec.split("->")[0].split(",")):
        sizes = {label: 12 + ord(label) % 7 for label in labels}
        graph.input(f"X{k}", sizes, dtype)
        arrays[f"X{k}"] = rng.standard_normal([*sizes.values()]).astype(dtype)
    graph.output(graph.einsum(spec, *arrays, name="Z"))
    expected = ed.evaluate(graph, arrays)["Z"]
    for word in ("fused", "apart"):
        plan = ed.plan(graph, 2, rewrite=False)
        found = run_with(word, plan, arrays)
        np.testing.assert_allclose(found["Z"], expected, rtol=1e-4, atol=1e-4)
        assert found.stats.bytes_moved == plan.cost


def test_a_result_does_not_say_what_the_contraction_was_taken_apart_to():
    graph = ed.parse(CHAIN)
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in graph.inputs}
    plan = ed.plan(graph, 2, rewrite=False)
    found = run_with("apart", plan, arrays)
    assert [*found] == ["Z", "Y"]
    assert {*found.stats.bytes_by_vertex} == {"Y", "Z"}
    calls = prepared(plan, ALONE).schedule.calls
    assert {call.vertex for call in calls} == {"Y_1", "Y", "Z"}


def test_a_listener_hears_of_the_vertices_of_the_plan_only():
    graph = ed.parse(CHAIN)
    arrays = {v.name: np.ones(v.shape, v.dtype) for v in graph.inputs}
    heard = []
    plan = ed.plan(graph, 2, rewrite=False)
    patches = verdict("apart")
    for each in patches:
        each.start()
    ed.run(plan, arrays, on_event=heard.append)
    for each in reversed(patches):
        each.stop()
    named = {event.vertex for event in heard if hasattr(event, "vertex")}
    assert named
    assert named <= {"Y", "Z"}


def test_the_ways_are_measured_and_one_of_them_is_taken():
    graph = ed.parse(CHAIN)
    assert apart._measured(graph, graph["Y"], 2) in ("fused", "apart")  # pyright: ignore[reportPrivateUsage]
