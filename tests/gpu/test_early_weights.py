"""Weights that a captured run reads before it is their turn: only those that it never writes."""

import numpy as np
import pytest
import torch

import eindecomp as ed
from eindecomp.kernels.torch import decoding

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SIZE = 1024
LAYERS = "".join(
    f"""
G{k}[i,b] <- sum H{k}[i,a] * W[b,a]
C{k}[b,a] <- sin(W[b,a] * rate)
M{k}[i,b] <- sum G{k}[i,a] * C{k}[b,a]
R{k}[i,b] <- sum M{k}[i,a] * S[b,a]
H{k + 1}[i,b] <- tanh(R{k}[i,b])
"""
    for k in range(4)
)
GRAPH = ed.parse(f"""
scalar rate
input X[i: 1, a: {SIZE}] float16, W[b: {SIZE}, a] float16, S[b, a] float16
H0[i,a] <- X[i,a] * 1
{LAYERS}
new_S[b,a] <- 0.9 * S[b,a] + 0.1 * W[b,a]
output new_S, H4
tie S <- new_S
""")


@pytest.fixture
def asked(monkeypatch):
    """Whether each matrix could be read early, in the order in which products are launched."""
    found, own = [], decoding.is_steady

    def is_steady(matrix):
        found.append(own(matrix))
        return found[-1]

    monkeypatch.setattr(decoding, "is_steady", is_steady)
    return found


@pytest.mark.parametrize("donated", [True, False], ids=["donated", "given again"])
def test_only_what_no_kernel_writes_is_read_early(asked, donated):
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return (rng.normal(size=shape) / SIZE**0.5).astype(np.float16)

    weights, expected = drawn(SIZE, SIZE), drawn(SIZE, SIZE)
    with ed.compile(ed.plan(GRAPH, 1), "torch", device="cuda") as whole:
        bound = whole.bind({"W": weights})
        state = bound.place({"S": expected})
        for _ in range(12):
            given = {"X": drawn(1, SIZE) * 10, "rate": np.float16(rng.normal())}
            result = bound({**given, **state}, donate=state if donated else ())
            found = ed.evaluate(GRAPH, {**given, "W": weights, "S": expected})
            np.testing.assert_allclose(result["H4"], found["H4"], atol=1e-2)
            np.testing.assert_allclose(result["new_S"], found["new_S"], atol=1e-3)
            state, expected = {"S": result.tensor("new_S")}, found["new_S"]
        assert bound._prepared.runner.capture is not None
    by_layer = [*zip(*[iter(asked[-12:])] * 3, strict=True)]
    assert by_layer == [(True, False, not donated)] * 4
