"""Attention in turns: the same numbers and bytes, in memory that grows with the queries."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.graph.turns import in_turns
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

BLOCK = """
input X[b: {b}, s: {s}, a: 16], WQ[a,h: {h},g: {g},d: 8], WK[a,h,d], WV[a,h,d], WO[h,g,d,a]
{mask}
Q[b,s,h,g,d] <- sum X[b,s,a] * WQ[a,h,g,d]
K[b,t: {s},h,d] <- sum X[b,t,a] * WK[a,h,d]
V[b,t: {s},h,d] <- sum X[b,t,a] * WV[a,h,d]
S[b,h,g,s,t] <- sum Q[b,s,h,g,d] * K[b,t,h,d] * 0.35
W[b,h,g,s,t] <- {weights}
P[b,h,g,s,t] <- softmax[t] W[b,h,g,s,t]
O[b,s,h,g,d] <- sum P[b,h,g,s,t] * V[b,t,h,d]
Y[b,s,a] <- sum O[b,s,h,g,d] * WO[h,g,d,a]
loss[] <- sum (Y[b,s,a] - X[b,s,a])**2
output loss
"""
MASKS = {
    "plain": ("", "S[b,h,g,s,t]"),
    "causal": ("M[s: {s}, t: {s}] <- fill t <= s", "where(M[s,t], S[b,h,g,s,t], -inf)"),
    "bias": ("input L[h: {h}, s: {s}, t: {s}]", "S[b,h,g,s,t] + L[h,s,t]"),
}


def step(mask: str = "causal", *, b: int = 2, s: int = 32, h: int = 2, g: int = 1) -> ed.Graph:
    """A training step of one attention."""
    given, weights = MASKS[mask]
    text = BLOCK.format(b=b, s=s, h=h, g=g, mask=given.format(s=s, h=h), weights=weights)
    return ed.models.training_step(ed.parse(text), "loss", ["WQ", "WK", "WV", "WO"])


def arrays_of(graph: ed.Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {v.name: (0.3 * rng.standard_normal(v.shape)).astype("float32") for v in graph.inputs}
    return arrays | {name: np.float64(0.01) for name in graph.scalars}


def turns_in(plan: ed.Plan) -> int:
    """How many vertices are there once for each turn."""
    return sum(".turn" in name for name in program_of(plan).graph)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("engine", ["apart", "threads", "torch"])
@pytest.mark.parametrize("mask", MASKS)
def test_turns_change_no_number_and_no_byte(mask: str, engine: str) -> None:
    graph = step(mask, g=2)
    plan = ed.plan(graph, 4, inputs="sharded", memory="80kB", time_limit=1)
    assert turns_in(plan)
    arrays = arrays_of(graph)
    found, wanted = ed.run(plan, arrays, engine), ed.evaluate(graph, arrays)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4)
    if engine == "apart":
        program = program_of(plan)
        assert found.stats.bytes_moved == program.moved == plan.cost
        assert found.stats.peak_memory == fullest(program).bytes <= 80_000
        assert fullest(program).bytes < fullest(program_of(plan, "none")).bytes


@pytest.mark.parametrize("cuts", [{"b": 2, "h": 2}, {"s": 4}, {"s": 2, "h": 2}, {"t": 2, "b": 2}])
def test_whatever_is_cut(cuts: dict[str, int]) -> None:
    graph = step()
    strategy = {"labels": [*cuts], "degrees": cuts}
    memory = 200_000
    plan = ed.plan(graph, 4, memory=memory, strategy=strategy, time_limit=1)
    program = program_of(plan)
    assert program.moved == plan.cost
    assert fullest(program).bytes <= memory
    arrays = arrays_of(graph)
    found, wanted = ed.run(plan, arrays, "apart"), ed.evaluate(graph, arrays)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4)


def test_parts_travel_in_their_own_type_in_each_turn() -> None:
    strategy = {"labels": ["t", "b"], "degrees": {"t": 2, "b": 2}}
    asked = {"memory": 200_000, "strategy": strategy, "time_limit": 1}
    plan = ed.plan(step(), 4, reduce_dtype="bfloat16", **asked)
    assert turns_in(plan)
    assert program_of(plan).moved == plan.cost
    assert plan.cost < ed.plan(step(), 4, **asked).cost


def test_memory_grows_with_the_queries_not_with_their_square() -> None:
    peaks: list[int] = []
    for s in (64, 128):
        plan = ed.plan(step(s=s), 2, memory=2500 * s, time_limit=1)
        peaks.append(fullest(program_of(plan)).bytes)
        assert peaks[-1] <= 2500 * s
    assert peaks[1] < 2.2 * peaks[0]


def test_the_least_that_an_error_names_is_enough() -> None:
    with pytest.raises(ed.PlanError, match="least found") as error:
        ed.plan(step(), 1, memory=1000, time_limit=1)
    least = int(str(error.value).split("(")[1].split(" bytes")[0].replace(",", ""))
    plan = ed.plan(step(), 1, memory=least, time_limit=1)
    assert fullest(program_of(plan)).bytes <= least


def test_keys_first_with_layers_computed_again() -> None:
    text = BLOCK.format(b=2, s=16, h=2, g=1, mask="", weights="S[b,h,g,s,t]")
    text = text.replace("Q[b,s,h,g,d] * K[b,t,h,d] * 0.35", "K[b,t,h,d] * Q[b,s,h,g,d]")
    graph = ed.models.training_step(ed.parse(text), "loss", ["WQ", "WK", "WV", "WO"])
    plan = ed.plan(graph, 1, memory="1MB", recompute="layers", time_limit=1)
    assert turns_in(plan)


def test_without_a_limit_nothing_takes_turns() -> None:
    plan = ed.plan(step(), 2, time_limit=1)
    assert not turns_in(plan)


def test_what_takes_turns_is_found_forwards_and_backwards() -> None:
    graph, turns = in_turns(ed.rewrite(step()))
    assert [next(iter(own.labels)) for own in turns] == ["S_1", "grad_O_scores"]
    names = [*graph]
    for own in turns:
        first = names.index(next(iter(own.labels)))
        assert names[first : first + len(own.labels)] == [*own.labels]
    backward = turns[1]
    summed = [name for name in backward.outputs if "t" in graph[name].labels]
    assert len(summed) == 2
    assert all(graph[name].op.aggregated[-1] == "s" for name in summed)


def test_a_plan_that_takes_turns_is_saved(tmp_path) -> None:
    plan = ed.plan(step(), 4, memory="60kB", time_limit=1)
    plan.save(tmp_path / "plan.json")
    assert "cut alike in all its vertices, for turns" in " ".join(plan.explain().split())
    again = ed.Plan.load(tmp_path / "plan.json")
    assert again == plan
    assert turns_in(again) == turns_in(plan) > 0
