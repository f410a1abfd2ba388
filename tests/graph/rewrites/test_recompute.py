"""What the backward pass computes again: the same numbers, in the memory that the model says."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.graph.rewrites.recompute import recomputed
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest, peak_on

LAYER = """
Q{l}[b,s,h,d] <- sum X{l}[b,s,a] * WQ{l}[a,h,d]
K{l}[b,t: 16,h,d] <- sum X{l}[b,t,a] * WK{l}[a,h,d]
V{l}[b,t: 16,h,d] <- sum X{l}[b,t,a] * WV{l}[a,h,d]
S{l}[b,h,s,t] <- sum Q{l}[b,s,h,d] * K{l}[b,t,h,d]
P{l}[b,h,s,t] <- softmax[t] S{l}[b,h,s,t]
O{l}[b,s,h,d] <- sum P{l}[b,h,s,t] * V{l}[b,t,h,d]
Y{l}[b,s,a] <- sum O{l}[b,s,h,d] * WO{l}[h,d,a]
A{l}[b,s,a] <- X{l}[b,s,a] + Y{l}[b,s,a]
H{l}[b,s,f] <- sum A{l}[b,s,a] * W1{l}[a,f]
Z{l}[b,s,a] <- sum relu(H{l}[b,s,f]) * W2{l}[f,a]
X{n}[b,s,a] <- A{l}[b,s,a] + Z{l}[b,s,a]
"""
SIZES = "WQ{l}[a,h,d], WK{l}[a,h,d], WV{l}[a,h,d], WO{l}[h,d,a], W1{l}[a,f], W2{l}[f,a]"
KINDS = [None, "layers", 2, ["H0", "K1"]]


def step(layers=2):
    """A training step of a few layers."""
    lines = ["input X0[b: 4, s: 16, a: 8], T[b,s,a], SIZES[h: 4, d: 4, f: 16]"]
    lines += [f"input {SIZES.format(l=k)}" for k in range(layers)]
    lines += [LAYER.format(l=k, n=k + 1) for k in range(layers)]
    loss = f"loss[] <- sum (X{layers}[b,s,a] - T[b,s,a])**2"
    graph = ed.parse("\n".join([*lines, loss, "output loss"]))
    weights = [v.name for v in graph.inputs if v.name.startswith("W")]
    return ed.models.training_step(graph, "loss", weights)


def arrays_of(graph):
    rng = np.random.default_rng(0)
    arrays = {v.name: (0.3 * rng.standard_normal(v.shape)).astype("float32") for v in graph.inputs}
    return arrays | {name: np.float64(0.01) for name in graph.scalars}


@pytest.mark.parametrize("engine", ["apart", "threads"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_are_the_same_and_memory_is_as_planned(kind, engine):
    graph = step()
    arrays = arrays_of(graph)
    plan = ed.plan(graph, 4, inputs="sharded", recompute=kind, time_limit=2)
    found, wanted = ed.run(plan, arrays, engine), ed.evaluate(graph, arrays)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    if engine == "apart":
        peaks = [peak_on(program_of(plan), device).bytes for device in range(4)]
        assert found.stats.peak_memory == max(peaks)
        assert found.stats.bytes_moved == plan.cost


def test_layers_that_are_computed_again_take_less_memory():
    graph = step(layers=6)
    least = {
        kind: fullest(program_of(ed.plan(graph, 1, recompute=kind))).bytes
        for kind in (None, 4, 8, "layers")
    }
    assert least["layers"] < least[8] < least[4] < least[None]


def test_only_the_backward_pass_reads_what_is_made_again():
    graph = ed.rewrite(step())
    made = recomputed(graph, "layers", graph.ties)
    made.verify()
    again = {name for name in made if name.endswith(".again")}
    order = [*made]
    assert again
    assert min(map(order.index, again)) > order.index("loss")
    kept = {"X1", "X2", "A0", "A1"} & {*graph}
    assert kept
    assert not {f"{name}.again" for name in kept} & again


def test_a_plan_says_what_is_computed_again(tmp_path):
    plan = ed.plan(step(), 2, recompute=["H0"], time_limit=1)
    assert "H0 computed again for the backward pass" in " ".join(plan.explain().split())
    plan.save(tmp_path / "plan.json")
    assert ed.Plan.load(tmp_path / "plan.json") == plan


def test_layers_are_computed_again_where_nothing_else_fits(tmp_path):
    graph = step(layers=6)
    roomy = ed.plan(graph, 1, recompute="auto", memory=400_000, time_limit=4)
    assert roomy.recompute is None
    tight = ed.plan(graph, 1, recompute="auto", memory=200_000, time_limit=4)
    assert tight.recompute == "layers"
    assert fullest(program_of(tight)).bytes <= 200_000
    told = " ".join(tight.explain().split())
    assert "layers computed again for the backward pass" in told
    tight.save(tmp_path / "plan.json")
    assert ed.Plan.load(tmp_path / "plan.json") == tight


def test_operations_of_a_second_time_are_limited():
    asked = {"recompute": "auto", "memory": 160_000, "time_limit": 4}
    with pytest.raises(ed.PlanError, match="found no plan that fits into 156"):
        ed.plan(step(layers=6), 1, recompute_work=1.01, **asked)


def test_no_more_parts_are_computed_again_than_it_takes_to_fit(tmp_path):
    graph = step(layers=12)
    fits = {"memory": 300_000, "time_limit": 4}
    plan = ed.plan(graph, 1, recompute="auto", **fits)
    assert isinstance(plan.recompute, int)
    assert fullest(program_of(plan)).bytes <= fits["memory"]
    assert f"the first {plan.recompute} parts of the forward pass computed" in " ".join(
        plan.explain().split()
    )
    with pytest.raises(ed.PlanError, match="found no plan that fits"):
        ed.plan(graph, 1, recompute=plan.recompute // 2, **fits)
    plan.save(tmp_path / "plan.json")
    assert ed.Plan.load(tmp_path / "plan.json") == plan


def test_megatrons_names():
    graph = step()
    asked = {name: ed.plan(graph, 1, recompute=name).recompute for name in ("full", "selective")}
    assert asked == {"full": "layers", "selective": None}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("layer", "recompute is 'layers', 'auto', 'full', 'selective', a number of parts, a list"),
        (0, "a list of tensors or None, not '0'"),
        (True, "a list of tensors or None, not 'True'"),
        (9, "recompute: the forward pass has 8 parts, not 9"),
        (["H9"], "recompute: the forward pass computes no 'H9'; rewriting may have fused it"),
        (["X0"], "recompute: the forward pass computes no 'X0'"),
        (["loss"], "recompute: the backward pass does not read 'loss'"),
    ],
)
def test_bad_names(given, message):
    with pytest.raises(ed.PlanError, match=message):
        ed.plan(step(), 2, recompute=given)


@pytest.mark.parametrize("given", [None, "1.34", 0.5, float("nan"), float("-inf"), True, [2]])
def test_a_limit_on_operations_is_a_number(given):
    with pytest.raises(ed.PlanError, match="recompute_work is how many times the operations"):
        ed.plan(step(), 2, recompute="auto", recompute_work=given, memory=60_000)


@pytest.mark.parametrize("again", [None, "auto"])
def test_seconds_within_too_little_memory_name_the_least(again):
    limits = {"memory": 1000, "time_limit": 1}
    with pytest.raises(ed.PlanError, match="found no plan that fits into 1000 B"):
        ed.plan(step(1), 2, "time", machine="gpu-server", recompute=again, **limits)


def test_without_state_nothing_tells_the_passes_apart():
    graph = ed.parse("input X[i: 4]\nY[i] <- exp(X[i])\noutput Y")
    with pytest.raises(ed.PlanError, match="nothing tells the forward pass from the backward"):
        ed.plan(graph, 2, recompute="layers")
