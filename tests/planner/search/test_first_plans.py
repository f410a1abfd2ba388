"""What a search begins with: no plan is above what strategies and pins lead to in the same time."""

from __future__ import annotations

from typing import Any

import pytest

import eindecomp as ed

LAYER = """
input X[b: 8, s: 64, a: 64], WQ[a, h: 8, d: 16], WK[a,h,d], WV[a,h,d], WO[h,d,a]
input WU[a, f: 256], WD[f,a]
Q[b,s,h,d] <- sum X[b,s,a] * WQ[a,h,d]
K[b,s,h,d] <- sum X[b,s,a] * WK[a,h,d]
V[b,s,h,d] <- sum X[b,s,a] * WV[a,h,d]
T[b,h,s,t] <- sum Q[b,s,h,d] * K[b,t,h,d]
E[b,h,s,t] <- exp(T[b,h,s,t])
O[b,s,h,d] <- sum E[b,h,s,t] * V[b,t,h,d]
R[b,s,a]   <- sum O[b,s,h,d] * WO[h,d,a]
U[b,s,f]   <- sum R[b,s,a] * WU[a,f]
A[b,s,f]   <- relu(U[b,s,f])
Y[b,s,a]   <- sum A[b,s,f] * WD[f,a]
loss[]     <- sum Y[b,s,a] * Y[b,s,a]
output loss
"""


def training_step(text: str) -> ed.Graph:
    graph = ed.parse(text)
    weights = [vertex.name for vertex in graph.inputs if vertex.name != "X"]
    return ed.models.training_step(graph, "loss", weights)


@pytest.mark.long("sharded")
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_no_strategy_is_below_a_free_plan(inputs: str) -> None:
    step = training_step(LAYER)
    options: Any = {"inputs": inputs, "time_limit": 4.0}
    free = ed.plan(step, 64, **options)
    for name in ("data", "zero", "attention", "megatron+zero"):
        assert free.cost <= ed.plan(step, 64, strategy=name, **options).cost, name


def test_state_may_leave_outer_axes_to_others() -> None:
    """Heads are too few for all devices, and their weights lie over the inner axes."""
    step = training_step(LAYER.replace("h: 8", "h: 4"))
    options: Any = {"objective": "time", "machine": "h100-servers", "time_limit": 2}
    assert ed.plan(step, 16, strategy="megatron", inputs="sharded", **options).cost > 0


def test_pins_that_say_all_are_a_plan() -> None:
    """A cube of devices: each tile is gathered from four, and summed by four."""
    text = "input A[i: 64, k: 64], B[k, j: 64]\nC[i,j] <- sum A[i,k] * B[k,j]\noutput C"
    pin = {"A": {"i": 4, "k": 16}, "B": {"k": 4, "j": 16}, "C": {"i": 4, "j": 16}}
    made = ed.plan(ed.parse(text), 64, inputs="sharded", pin=pin, time_limit=5)
    tile = 4 * 16 * 16
    assert made.cost == made.bound == 64 * 3 * tile * 3 // 4
    assert made.parts["C"] == {"i": 4, "j": 4, "k": 4}
