"""Every engine on what models have and few graphs do: routing, sides of size 1, any mask."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import JAX, TORCH, agree, arrays_for

import eindecomp as ed

every_engine = pytest.mark.parametrize("engine", ["threads", "apart", TORCH, JAX])

SHARES = {
    "quotient": "s[n] <- sum X[n,e]\nP[n,e] <- X[n,e] / s[n]",
    "softmax": "P[n,e] <- softmax[e](X[n,e])",
    "scaled": "P[n,e] <- X[n,e] * 0.3",
    "biased": "P[n,e] <- X[n,e] * 0.3 + b[e]",
    "transposed": "Q[e,n] <- X[n,e] / 3\nP[n,e] <- Q[e,n]",
    "product": "P[n,e] <- sum X[n,d] * W[d,e]",
}
ROUTES = """
m[n] <- max P[n,e]
best[n] <- sum int64(P[n,e] == m[n])
D[n,e] <- P[n,e] - m[n]
none_above[n] <- sum int64(D[n,e] >= 0)
place[e: {experts}] <- fill e
rank[n,e] <- sum int64(P[n,f] > P[n,e] or P[n,f] == P[n,e] and place[f] < place[e])
top[n,k: {experts}] <- sum where(rank[n,e] == place[k], P[n,e], 0)
output best, none_above, rank, top
"""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("also", ["", "output P"])
@pytest.mark.parametrize("share", SHARES)
@every_engine
def test_a_value_is_equal_to_itself_wherever_it_is_compared(engine, share, also):
    experts = 5
    head = f"input X[n: 37, e: {experts}], b[e], W[d: {experts}, e]\n"
    graph = ed.parse(head + SHARES[share] + ROUTES.format(experts=experts) + also)
    arrays = arrays_for(graph, seed=1)
    found = ed.run(ed.plan(graph, 2), arrays, engine)
    assert (found["best"] >= 1).all()
    np.testing.assert_array_equal(found["best"], found["none_above"])
    np.testing.assert_array_equal(np.sort(found["rank"]), np.tile(np.arange(experts), (37, 1)))
    agree({"top": found["top"]}, {"top": ed.evaluate(graph, arrays)["top"]}, 1e-5)
    if also:
        np.testing.assert_array_equal(found["top"], -np.sort(-found["P"]))


SIDES = [(1, 64, 16, 8), (1, 32, 33, 8), (64, 1, 16, 8), (1, 64, 1, 8)]
SUMS = [
    "T[a,b,k] * W[f,k]",
    "T[a,b,k] / (W[f,k] + 2)",
    "-T[a,b,k] * W[f,k] / 3",
    "exp(T[a,b,k]) * W[f,k] * c[a]",
    "abs(T[a,b,k] - W[f,k])",
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("join", SUMS)
@every_engine
def test_sides_of_size_1(engine, join, dtype):
    for a, b, k, f in SIDES if dtype == "float32" else SIDES[:1]:
        head = f"input T[a: {a}, b: {b}, k: {k}] {dtype}, W[f: {f}, k] {dtype}, c[a] {dtype}\n"
        graph = ed.parse(f"{head}Z[a,b,f] <- sum ({join})\nM[b,a] <- max T[a,b,k]\noutput Z, M")
        arrays = arrays_for(graph)
        for devices in (1, 4) if a == 1 < k else (4,):
            agree(ed.run(ed.plan(graph, devices), arrays, engine), ed.evaluate(graph, arrays), 1e-5)


ATTENTION = """
input Q[b: 2, h: 3, s: 6, d: 4], K[b, h, t: 6, d], V[b, h, t, e: 4]
input all[b, h, s, t], heads[h, s, t], pairs[s, t], keys[t], one[]
S[b,h,s,t] <- sum Q[b,h,s,d] * K[b,h,t,d] / 2
B[b,h,s,t] <- {masked}
P[b,h,s,t] <- softmax[t](B[b,h,s,t])
O[b,h,s,e] <- sum P[b,h,s,t] * V[b,h,t,e]
output O
"""
ADDED = ["all[b,h,s,t]", "heads[h,s,t]", "pairs[s,t]", "keys[t]", "one[]", "0.0", "1.5"]
HOLDS = [
    "all[b,h,s,t] > -0.8",
    "heads[h,s,t] > -0.8",
    "pairs[s,t] > -0.8",
    "keys[t] > -0.8",
    "true",
]
MASKED = [f"S[b,h,s,t] + {value}" for value in ADDED]
MASKED += [f"where({holds}, S[b,h,s,t], -inf)" for holds in HOLDS]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("masked", MASKED)
@every_engine
def test_masks_of_every_rank(engine, masked):
    graph = ed.parse(ATTENTION.format(masked=masked))
    arrays = arrays_for(graph)
    for name in ("all", "heads", "pairs", "keys"):
        arrays[name][..., 0] = 1  # every query sees a key
    plan = ed.plan(graph, 2)
    agree(ed.run(plan, arrays, engine), ed.evaluate(graph, arrays), 1e-5)
