"""What public objects look like at a prompt: one short line that says which one it is."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.lang.einsum import EinSum, product
from eindecomp.planner.comparison import Verification, Verified
from eindecomp.planner.costs.price import PriceInBytes
from test_docstrings import CLASSES

GRAPH = ed.parse("input X[i: 8, j: 8], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
PLAN = ed.plan(GRAPH, 2, inputs="sharded")
ARRAYS = {vertex.name: np.ones(vertex.shape, "float32") for vertex in GRAPH.inputs}
STEP = ed.models.ffnn(8, 4, 4, 3)
STATE = ed.models.initial(STEP)
PROBLEM = ed.solve.Problem.of([[0, 3], [1, 0]], [(0, 1)], [[[5, 9], [0, 0]]])
TINY = ed.models.llama.Config(
    vocabulary=9, width=4, layers=1, heads=2, kv_heads=1, head_size=2, hidden=4
)

SHOWN = [
    (lambda: GRAPH, "<Graph of 3 vertices, outputs: Z>"),
    (lambda: GRAPH["Z"], "<Vertex Z[i: 8, k: 8] float32: EinSum of X, Y>"),
    (lambda: GRAPH["X"], "<Vertex X[i: 8, j: 8] float32: Input>"),
    (lambda: GRAPH["Z"].op, "<EinSum i k <- sum [i j] * [j k]>"),
    (
        lambda: ed.monoid("hypot", "sqrt(x**2 + y**2)", 0),
        "<Monoid hypot: sqrt(x**2 + y**2), identity 0>",
    ),
    (
        lambda: PLAN,
        f"<Plan of 1 vertices for 2 devices, bytes: cost {PLAN.cost}, bound {PLAN.bound}>",
    ),
    (lambda: ed.Cost({"Z": 256}, {"Z": 64}), "<Cost 320: join 256, aggregate 64>"),
    (lambda: PLAN.compare({"rows": ["i"]}), "<Comparison, bytes: this plan 256, rows 256>"),
    (
        lambda: ed.Machine(2e12, 1e11, {"node": 1e9, "gpu": 4e11}),
        "<Machine: 2 Tflop/s, memory 100 GB/s, links node 1 GB/s, gpu 400 GB/s>",
    ),
    (lambda: ed.Machine(9e5, 1e9, 1e6), "<Machine: 9e+05 flop/s, memory 1 GB/s, links 1 MB/s>"),
    (lambda: ed.Objective("joules", PriceInBytes, "J"), "<Objective 'joules' in J>"),
    (lambda: ed.Objective("joules", PriceInBytes), "<Objective 'joules'>"),
    (lambda: ed.compile(PLAN), f"<Executable of {PLAN!r} on 'threads'>"),
    (lambda: ed.run(PLAN, ARRAYS).tensor("Z"), "<Tensor Z[8, 8] float32 on threads>"),
    (
        lambda: Verification((Verified("Z", 64, 32, ""),)),
        "<Verification: 64 bytes planned, 32 counted",
    ),
    (lambda: ed.simulate(PLAN, "cpu-cluster"), "<SimulatedRun of 2 devices: "),
    (
        lambda: ed.redistribution((4, 4), 2, {0: "axis0"}, {}),
        "<Redistribution of (4, 4): all-gather; 64 bytes>",
    ),
    (lambda: PROBLEM, "<Problem of 2 variables with 4 choices, 1 edges>"),
    (lambda: ed.solve.minimize(PROBLEM), "<Solution of 2 variables: cost 3, optimal>"),
    (lambda: ed.solve.Factor((0, 1), np.zeros((2, 3))), "<Factor over variables 0, 1: 6 costs>"),
    (lambda: ed.models.Checkpoint(3, STATE, []), "<Checkpoint after step 3: W1, b1, W2, b2>"),
    (
        lambda: ed.models.fit(
            STEP, ed.models.Synthetic(8, 4, 3), STATE, lr=0.0, steps=1, devices=1
        ),
        "<Fitted after step 1, loss ",
    ),
    (
        lambda: ed.models.llama.Cache(TINY, 2, 10),
        "<Cache of 2 sequences, 0, 0 tokens, room for 64>",
    ),
    (
        lambda: ed.models.llama.Llama.random(TINY),
        f"<Llama of {TINY.parameters} parameters for 2 devices>",
    ),
]


@pytest.mark.parametrize(("make", "expected"), SHOWN, ids=[expected for _, expected in SHOWN])
def test_an_object_is_one_short_line(make, expected):
    shown = repr(make())
    assert shown.startswith(expected)
    assert "\n" not in shown
    assert len(shown) < 120


def test_no_public_class_has_the_repr_of_any_object():
    mute = [
        name
        for name, cls in CLASSES.items()
        if cls.__repr__ is object.__repr__ and not inspect.isabstract(cls)
    ]
    assert mute == ["ed.models.Batches"]  # a protocol


def test_what_is_kept_goes_by_the_whole_definition():
    """Aggregations of one name look alike at a prompt, but never share a kernel."""
    join = product(2)
    parts = ((("i", "j"), ("j", "k")), ("i", "k"), join)
    one = ed.monoid("own", "x + y", 0)
    other = ed.monoid("own", "max(x, y)", float("-inf"))
    assert EinSum(*parts, one).definition != EinSum(*parts, other).definition
    assert EinSum(*parts, one).definition == EinSum(*parts, ed.monoid("own", "x + y", 0)).definition
    finished = ed.monoid("own", "x + y", 0, finish="sqrt(x)")
    assert EinSum(*parts, one).definition != EinSum(*parts, finished).definition
