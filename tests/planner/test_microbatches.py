"""Micro-batches: the same numbers, in less memory, and gradients that wait for the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from tests.engines.agreement import arrays_for
from tests.graph.rewrites.test_recompute import arrays_of, step
from tests.planner.random_graphs import random_graph

import eindecomp as ed
from eindecomp.planner.microbatches import micro_batched
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest, peak_on


def check(graph: ed.Graph, count: int, label: str = "b") -> ed.Graph:
    """The graph in micro-batches, which gives the same numbers."""
    made, _ = micro_batched(graph, {label: count}, graph.ties)
    made.verify()
    arrays = arrays_for(graph)
    found, wanted = ed.evaluate(made, arrays), ed.evaluate(graph, arrays)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        assert made[name].shape == array.shape
        np.testing.assert_allclose(
            found[name].astype("float64"), array.astype("float64"), rtol=2e-2, atol=2e-2
        )
    return made


EMBEDDED = """
input ids[b: 6, s: 4] int32, E[v: 5, a: 3], W[a, f: 2]
X[b,s,a] <- E[ids[b,s], a]
R[(b, s), a] <- X[b,s,a]
Y[r,f] <- sum R[r,a] * W[a,f]
Z[(b: 6, s: 4), f] <- Y[(b, s), f]
G[a,f] <- sum R[r,a] * Y[r,f]
D[v: 5 = ids[b,s], a] <- sum X[b,s,a]
output Y, G, D
"""
MASKED = """
input X[b: 6, s: 4, a: 3], M[b, s], W[a]
Y[b,s] <- sum X[b,s,a] * W[a]
N[] <- sum M[b,s]
L[] <- sum Y[b,s] * M[b,s]
loss[] <- L[] / N[]
G[a] <- sum X[b,s,a] * M[b,s] / N[]
output loss, G
"""
FILLS = """
input X[b: 6, i: 4]
O[b: 6, i: 4] <- fill 1
P[b: 6, i: 4] <- fill 10 * b + i
Y[b,i] <- X[b,i] * P[b,i] + O[b,i]
M[i] <- max Y[b,i]
A[] <- any Y[b,i] > 50
output Y, M, A
"""


@contextmanager
def suppress_told(*messages: str) -> Iterator[None]:
    """Let errors pass that say one of these."""
    try:
        yield
    except ed.errors.EinDecompError as error:
        if not any(message in str(error) for message in messages):
            raise


CASES = {
    "embedded": EMBEDDED.replace("Z[(b: 6, s: 4), f] <- Y[(b, s), f]\n", ""),
    "masked": MASKED,
    "fills": FILLS,
    "low": "input X[b: 6, i: 3] bfloat16\nZ[i] <- sum X[b,i]\noutput Z",
    "whole numbers": "input X[b: 6, i: 3] int32\nZ[] <- sum X[b,i]\nY[b] <- X[b, 0]\noutput Z, Y",
    "read twice": "input X[b: 6, i: 3]\nZ[i,j] <- sum X[b,i] * X[b,j]\noutput Z",
    "not first": "input X[i: 3, b: 6]\nZ[i,b] <- exp(X[i,b])\nS[i] <- sum Z[i,b]\noutput Z, S",
    "an input as output": "input X[b: 6, i: 3]\nZ[i] <- sum X[b,i]\noutput X, Z",
}


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_the_same(case, count):
    check(ed.parse(CASES[case]), count)


def test_random_graphs_give_the_same_numbers_or_say_why_not():
    divided = 0
    for seed in range(150):
        graph = random_graph(seed, tree=False, moves=True, sizes=(2, 3, 4, 4, 6, 8, 9))
        for label in dict.fromkeys(label for v in graph.inputs for label in v.labels):
            sizes = {v.sizes[label] for v in graph.inputs if label in v.labels}
            count = next((n for n in (2, 3) if not max(sizes) % n), 1)
            with suppress_told(f"microbatches along {label!r}: ", "index 1 is outside 0 to 0"):
                check(graph, count, label)
                divided += count > 1
    assert divided > 50


@pytest.mark.parametrize("engine", ["apart", "threads", "torch"])
@pytest.mark.parametrize("asked", [{}, {"recompute": "layers"}, {"strategy": "data"}], ids=str)
def test_plans_run_and_move_what_they_say(asked, engine):
    graph = step()
    arrays = arrays_of(graph)
    plan = ed.plan(graph, 4, inputs="sharded", microbatches={"b": 2}, time_limit=2, **asked)
    found, wanted = ed.run(plan, arrays, engine), ed.evaluate(graph, arrays)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    if engine == "apart":
        peaks = [peak_on(program_of(plan), device).bytes for device in range(4)]
        assert found.stats.peak_memory == max(peaks)
        assert found.stats.bytes_moved == plan.cost


def test_more_micro_batches_take_less_memory():
    graph = step(layers=4)
    peaks = [
        fullest(program_of(ed.plan(graph, 1, microbatches={"b": count}))).bytes
        for count in (1, 2, 4)
    ]
    assert peaks[2] < 0.75 * peaks[1] < 0.75 * peaks[0]


def test_gradients_are_combined_once():
    """A gradient as large as its weights moves once, however many micro-batches there are."""
    text = """
    input X[b: 64, i: 4], W[i, j: 16], T[b, j]
    Y[b,j] <- sum X[b,i] * W[i,j]
    D[b,j] <- Y[b,j] - T[b,j]
    G[i,j] <- sum X[b,i] * D[b,j]
    new_W[i,j] <- W[i,j] - 0.1 * G[i,j]
    output new_W
    tie W <- new_W
    """
    graph = ed.parse(text)
    pin = {"X": {"b": 4}, "T": {"b": 4}, "new_W": {"i": 1, "j": 1}}
    costs = [
        ed.plan(graph, 4, pin=pin, strategy=["b"], microbatches={"b": n}).cost for n in (1, 2, 8)
    ]
    assert len({*costs}) == 1
    eager = ed.plan(graph, 4, pin=pin, strategy=["b"], microbatches={"b": 2}, pending=False)
    assert eager.cost > costs[0]


def test_a_plan_says_so_and_is_kept(tmp_path):
    asked = {"reduce_dtype": {"A1": "bfloat16"}, "pin": {"A1": {"b": 2}}}
    plan = ed.plan(step(), 2, microbatches={"b": 2}, time_limit=2, **asked)
    assert "b in 2 micro-batches, one after another" in " ".join(plan.explain().split())
    assert plan.parts["A1.micro0"]["b"] == plan.parts["A1.micro1"]["b"] == 2
    plan.save(tmp_path / "plan.json")
    assert ed.Plan.load(tmp_path / "plan.json") == plan


BATCH_NORM = """
input X[b: 4, i: 3], W[i, j: 2]
Y[b,j] <- sum X[b,i] * W[i,j]
M[j] <- sum Y[b,j] / 4
Z[b,j] <- Y[b,j] - M[j]
output Z
"""


@pytest.mark.parametrize(
    ("text", "count", "message"),
    [
        (BATCH_NORM, 2, r"'b': Z\[b,j\] needs 'M', which all rows give"),
        (BATCH_NORM, 3, "'b': its size 4 is not a multiple of 3"),
        ("input X[b: 4], Y[c: 2, b: 6]\nZ[] <- sum X[b]\noutput Z", 2, "it has several sizes"),
        ("input X[b: 4, i: 3]\nZ[b,c] <- sum X[b,i] * X[c,i]\noutput Z", 2, "joins each row with"),
        ("input X[b: 4, c: 4]\nZ[b] <- X[b,b]\noutput Z", 2, "reads a diagonal of 'X'"),
        ("input X[b: 4, i: 3]\nZ[i] <- X[0,i]\noutput Z", 2, "'X' one by one"),
        ("input X[b: 4], Y[c: 3]\nZ[k] <- concat[k](X[k], Y[k])\noutput Z", 2, "'X' one by one"),
        ("input X[b: 4]\nY[b] <- exp(X[b])\noutput Y\ntie X <- Y", 2, "'b': X.* is state"),
    ],
)
def test_what_cannot_be_divided_is_refused(text, count, message):
    with pytest.raises(ed.PlanError, match=f"microbatches along .*{message}"):
        ed.plan(ed.parse(text), 2, microbatches={"b": count})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (4, "{label: number}, such as {'b': 4}, not '4'"),
        ({"b": 0}, "microbatches along 'b' must be 1 or more, not 0"),
        ({"b": 1.5}, "must be 1 or more, not 1.5"),
        ({"B": 2}, "no input has a label 'B'; known: a, b"),
        ({"B": 1, "b": 2}, "no input has a label 'B'; known: a, b"),
        ([("b", 2)], "microbatches are given as {label: number}"),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(ed.errors.EinDecompError, match=message):
        ed.plan(step(), 2, microbatches=given)
