"""Built-in macros against torch, and macros of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as nn

import eindecomp as ed
from strategies import arrays

B, S, T, D, E = 2, 5, 7, 4, 3
HEAD = f"""
input X[b: {B}, s: {S}, d: {D}] float64
input K[b, t: {T}, d] float64
input V[b, t, e: {E}] float64
input w[d] float64
input u[d] float64
"""
MACROS: list[tuple[str, Any]] = [
    ("softmax[d] X[b,s,d]", lambda x: x["X"].softmax(-1)),
    ("softmax[s] X[b,s,d]", lambda x: x["X"].softmax(1)),
    ("log_softmax[d] X[b,s,d]", lambda x: x["X"].log_softmax(-1)),
    ("rms_norm[d](X[b,s,d], w[d], eps = 1e-3)", lambda x: nn.rms_norm(x["X"], (D,), x["w"], 1e-3)),
    ("layer_norm[d](X[b,s,d], w[d], u[d])", lambda x: nn.layer_norm(x["X"], (D,), x["w"], x["u"])),
]


@pytest.mark.parametrize(("call", "same"), MACROS)
def test_against_torch(call: str, same: Any) -> None:
    graph = ed.parse(f"{HEAD}Z[b,s,d] <- {call}\noutput Z")
    values = arrays(graph)
    expected = same({name: torch.tensor(value) for name, value in values.items()})
    np.testing.assert_allclose(ed.evaluate(graph, values)["Z"], expected.numpy(), rtol=1e-9)


def test_mean() -> None:
    graph = ed.parse(f"{HEAD}Z[d,b] <- mean[s] X[b,s,d]\noutput Z")
    values = arrays(graph)
    np.testing.assert_allclose(ed.evaluate(graph, values)["Z"], values["X"].mean(1).T)


REDUCTIONS: list[tuple[str, Any]] = [
    ("logsumexp[j] X[i,j]", lambda x: x.logsumexp(1)),
    ("var[j] X[i,j]", lambda x: x.var(1, correction=0)),
    ("var[j](X[i,j], correction = 1)", lambda x: x.var(1)),
]
FUNCTIONS: list[tuple[str, Any]] = [
    ("softplus(X[i,j])", nn.softplus),
    ("leaky_relu(X[i,j])", nn.leaky_relu),
    ("leaky_relu(X[i,j], 0.2)", lambda x: nn.leaky_relu(x, 0.2)),
    ("elu(X[i,j])", nn.elu),
    ("2 * elu(X[i,j], 0.5) + 1", lambda x: 2 * nn.elu(x, 0.5) + 1),
]


@pytest.mark.parametrize(
    ("labels", "call", "same"),
    [*(("i", *each) for each in REDUCTIONS), *(("i,j", *each) for each in FUNCTIONS)],
)
def test_values_and_gradients_are_those_of_torch(labels: str, call: str, same: Any) -> None:
    x = np.array([[-1e3, -30, -3, -0.5, 0, -0.0], [0.5, 3, 19.5, 20, 20.5, 1e3]])
    text = f"input X[i: 2, j: 6] float64\nZ[{labels}] <- {call}\nloss[] <- sum Z[{labels}]"
    graph = ed.parse(f"{text}\noutput Z, loss")
    assert ed.parse(str(graph)) == graph
    found = ed.evaluate(ed.grad(graph, "loss", ["X"]), {"X": x})
    given = torch.tensor(x, requires_grad=True)
    expected = same(given)
    expected.sum().backward()
    np.testing.assert_allclose(found["Z"], expected.detach(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found["grad_X"], given.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("row", "expected"), [([-np.inf, -np.inf], -np.inf), ([0, np.inf], np.inf)]
)
def test_logsumexp_of_infinities(row: list[float], expected: float) -> None:
    graph = ed.parse("input X[j: 2]\nZ[] <- logsumexp[j] X[j]\noutput Z")
    assert ed.evaluate(graph, {"X": row})["Z"] == expected


def test_operands_that_are_too_many_are_counted() -> None:
    with pytest.raises(ed.TextError, match="elu takes 1 or 2 operands, not 3"):
        ed.parse("input X[i: 2]\nZ[i] <- elu(X[i], 1, 2)")


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal: bool) -> None:
    name = "causal_attention[s, t, d]" if is_causal else "attention[t, d]"
    graph = ed.parse(f"{HEAD}Z[b,s,e] <- {name}(X[b,s,d], K[b,t,d], V[b,t,e])\noutput Z")
    values = arrays(graph)
    x, k, v = (torch.tensor(values[n]) for n in "XKV")
    mask = torch.ones(S, T, dtype=torch.bool).tril(T - S) if is_causal else None
    expected = nn.scaled_dot_product_attention(x, k, v, attn_mask=mask)
    np.testing.assert_allclose(ed.evaluate(graph, values)["Z"], expected.numpy(), rtol=1e-9)


def test_softmax_expands_to_four_vertices() -> None:
    graph = ed.parse("input U[h: 2, s: 3, t: 4]\nP[h,s,t] <- softmax[t] U[h,s,t]")
    assert str(graph).split("\n")[1:] == [
        "P_C[h,s] <- max U[h,s,t]",
        "P_E[h,s,t] <- exp(U[h,s,t] - P_C[h,s])",
        "P_S[h,s] <- sum P_E[h,s,t]",
        "P[h,s,t] <- P_E[h,s,t] / P_S[h,s]",
    ]


OWN: list[tuple[str, str, str]] = [
    # A label of the body that the caller uses too is kept apart from it.
    (
        "macro gram[j](A[*b, j]) -> G[*b, j, k] {\n G[*b, j, k] <- A[*b, j] * A[*b, k]\n}",
        "Z[k,i,k_] <- gram[i] X[k,i]",
        "Z[k,i,k_] <- X[k,i] * X[k,k_]",
    ),
    # Locals get names of their own, options are numbers, expressions may be passed.
    (
        "macro scale[](A[*b], by = 2) -> B[*b] {\n C[*b] <- A[*b] * by\n B[*b] <- C[*b] + 1\n}",
        "Z[i,j] <- scale[](exp(X[i,j]), by = -3)",
        "Z_1[i,j] <- exp(X[i,j])\nZ_C[i,j] <- Z_1[i,j] * -3\nZ[i,j] <- Z_C[i,j] + 1",
    ),
    # Without labels the brackets may be left out.
    (
        "macro twice(A[*b]) -> B[*b] {\n B[*b] <- A[*b] * 2\n}",
        "Z[j,i] <- twice(X[i,j])",
        "Z[j,i] <- X[i,j] * 2",
    ),
    # A macro may redefine a built-in one, and call others.
    (
        "macro mean[j](A[*b, j]) -> B[*b] {\n B[*b] <- max A[*b, j]\n}\n"
        "macro m[j](A[*b, j]) -> B[*b] {\n B[*b] <- mean[j] A[*b, j]\n}",
        "Z[i] <- m[j] X[i,j]",
        "Z[i] <- max X[i,j]",
    ),
    # Lookups work inside.
    (
        "macro pick[j](A[*b, j], I[*n]) -> B[*b, *n] {\n B[*b, *n] <- A[*b, I[*n]]\n}",
        "K[q: 2] <- fill q\nZ[i,q] <- pick[j](X[i,j], K[q])",
        "K[q: 2] <- fill q\nZ[i,q] <- X[i, K[q]]",
    ),
]


@pytest.mark.parametrize(("macro", "statement", "expanded"), OWN)
def test_own_macros(macro: str, statement: str, expanded: str) -> None:
    head = "input X[i: 3, j: 4]\n"
    assert ed.parse(f"{macro}\n{head}{statement}") == ed.parse(f"{head}{expanded}")


def test_a_label_is_its_number_under_an_aggregation_with_labels() -> None:
    macro = "macro centre[t](x[*b, t]) -> y[*b] {\n  y[*b] <- sum[t] t * x[*b, t]\n}\n"
    graph = ed.parse(f"input U[t: 2, j: 3]\n{macro}Z[t] <- centre[j] U[t,j]\noutput Z")
    u = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(ed.evaluate(graph, {"U": u})["Z"], u @ np.arange(3))
