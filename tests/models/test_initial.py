"""Parameters of any training graph begin with numbers of a sensible size, and learn."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp import models

TRANSFORMER = """
input ids[b: 4, s: 6] int32, y[b, s] int32
input E[v: 20, a: 16], P[s, a], N[a], WQ[a, h: 2, d: 8], WK[a, h, d], WV[a, h, d], WO[h, d, a]
input W[a, f: 32], c[f], U[f, a], H[v, a]
X[b,s,a]   <- E[ids[b,s], a]
Y[b,s,a]   <- X[b,s,a] + P[s,a]
S[b,s]     <- sum Y[b,s,a]**2 / size(a)
Z[b,s,a]   <- Y[b,s,a] * rsqrt(S[b,s] + 1e-5) * N[a]
Q[b,s,h,d] <- sum Z[b,s,a] * WQ[a,h,d]
K[b,t,h,d] <- sum Z[b,t,a] * WK[a,h,d]
V[b,t,h,d] <- sum Z[b,t,a] * WV[a,h,d]
T[b,h,s,t] <- sum Q[b,s,h,d] * K[b,t,h,d]
A[b,h,s,t] <- softmax[t] T[b,h,s,t]
O[b,s,h,d] <- sum A[b,h,s,t] * V[b,t,h,d]
R[b,s,a]   <- sum O[b,s,h,d] * WO[h,d,a]
F[b,s,f]   <- sum R[b,s,a] * W[a,f]
G[b,s,f]   <- gelu(F[b,s,f] + c[f])
M[b,s,a]   <- sum G[b,s,f] * U[f,a]
L[b,s,v]   <- sum M[b,s,a] * H[v,a]
LP[b,s,v]  <- log_softmax[v] L[b,s,v]
I[v: 20]   <- fill int32(v)
loss[]     <- sum where(I[v] == y[b,s], -LP[b,s,v], 0) / (size(b) * size(s))
output loss
"""
PARAMETERS = ["E", "P", "N", "WQ", "WK", "WV", "WO", "W", "c", "U", "H"]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_roles_decide_the_numbers_of_a_transformer(optimizer):
    graph = models.training_step(ed.parse(TRANSFORMER), "loss", PARAMETERS, optimizer)
    state = models.initial(graph, seed=1)
    assert set(state) == {v.name for v in graph.inputs} - {"ids", "y"}
    fans = {"WQ": 16, "WK": 16, "WV": 16, "WO": 16, "W": 16, "c": 16, "U": 32, "H": 16}
    for name, fan in fans.items():
        assert 0.8 * fan**-0.5 < np.abs(state[name]).max() <= fan**-0.5, name
    assert np.linalg.norm(state["E"], axis=1).mean() == pytest.approx(1, abs=0.1)
    assert (state["N"] == 1).all()
    assert not state["P"].any()
    assert not any(state[name].any() for name in state if name not in PARAMETERS)


@pytest.mark.long
def test_a_transformer_learns_from_them():
    graph = models.training_step(ed.parse(TRANSFORMER), "loss", PARAMETERS, "adam")
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 20, (4, 6)).astype(np.int32)
    found = models.fit(
        graph, [{"ids": ids, "y": ids[:, ::-1]}] * 30, models.initial(graph), lr=0.02
    )
    assert found.losses[0] == pytest.approx(np.log(20), rel=0.2)
    assert found.losses[-1] < 0.5 * found.losses[0]


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        ("input X[b: 4, i: 9], W[i, k: 3]\nloss[] <- sum abs(X[b,i] - W[i,k])", "W", 9),
        ("input X[b: 4, i: 9], W[k: 3, i]\nV[i,k] <- 2 * W[k,i]\nZ[b,k] <- sum X[b,i] * V[i,k]\n"
         "loss[] <- sum Z[b,k]", "W", 9),
        ("input X[b: 4, i: 9], W[i]\nR[] <- sum W[i]**2\nZ[b] <- sum X[b,i] * W[i]\n"
         "loss[] <- sum Z[b] + R[]", "W", 9),
        ("input X[b: 4], g[b]\nY[b] <- exp(X[b]) * (1 + g[b])\nloss[] <- sum Y[b]", "g", 0),
        ("input X[b: 4], t[]\nloss[] <- sum (X[b] - t[])**2", "t", 0),
    ],
)  # fmt: skip
def test_roles_are_read_from_what_makes_the_loss(text, name, wanted):
    graph = models.training_step(ed.parse(f"{text}\noutput loss"), "loss", [name], "momentum")
    array = models.initial(graph)[name]
    if not wanted:
        assert not array.any()
    else:
        assert 0.5 * wanted**-0.5 < np.abs(array).max() <= wanted**-0.5


def test_gradients_name_parameters_too_and_seeds_matter():
    graph = models.ffnn(4, 5, 6, 7, optimizer=None)
    state = models.initial(graph, seed=3)
    assert list(state) == ["W1", "b1", "W2", "b2"]
    assert np.abs(state["b2"]).max() <= 6**-0.5
    again, other = models.initial(graph, seed=3), models.initial(graph, seed=4)
    assert all(np.array_equal(state[k], again[k]) for k in state)
    assert not np.array_equal(state["W1"], other["W1"])


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "complex64"])
def test_arrays_are_of_the_inputs_types(dtype):
    text = f"input X[i: 3] {dtype}, W[i] {dtype}\nloss[] <- sum abs(X[i] * W[i])\noutput loss"
    array = models.initial(ed.grad(ed.parse(text), "loss", wrt=["W"]))["W"]
    assert array.dtype.name == dtype
    assert array.any()


def test_a_graph_that_trains_nothing_is_refused():
    with pytest.raises(ed.InputError, match="no input X of the graph is tied"):
        models.initial(ed.parse("input X[i: 3]\nloss[] <- sum X[i]\noutput loss"))


def test_what_is_no_graph_is_refused():
    with pytest.raises(ed.InputError, match="those of a Graph, not of NoneType"):
        models.initial(None)
