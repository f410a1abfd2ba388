"""The gradient of attention as a whole: it is PyTorch's, and nothing between is kept for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

import eindecomp as ed

Arrays = dict[str, np.ndarray[Any, Any]]
INPUTS = "input Q[b: 2,h: 3,g: 2,s: 8,e: 4], K[b,h,t: 8,e], V[b,h,t,d: 5], G[b,h,g,s,d]"
SCORES = "S[b,h,g,s,t] <- sum Q[b,h,g,s,e] * K[b,h,t,e]"
REST = """
P[b,h,g,s,t] <- softmax[t] W[b,h,g,s,t]
O[b,h,g,s,d] <- sum P[b,h,g,s,t] * V[b,h,t,d]
loss[] <- sum O[b,h,g,s,d] * G[b,h,g,s,d]
output loss
"""
CASES = {
    "plain": ("", "S[b,h,g,s,t] * 0.5", "QKV"),
    "causal": ("M[s: 8,t: 8] <- fill t <= s", "where(M[s,t], S[b,h,g,s,t] * 0.5, -inf)", "QKV"),
    "padding": ("input N[b,t: 8] bool", "where(N[b,t], S[b,h,g,s,t] * 0.5, -inf)", "QKV"),
    "bias": ("input L[h,s: 8,t: 8]", "S[b,h,g,s,t] * 0.5 + L[h,s,t]", "QKVL"),
    "keys first": ("", "S[b,h,g,s,t] * 0.5", "QKV"),
    "slopes": ("input A[h: 3]", "S[b,h,g,s,t] * 0.5 + A[h] * (float32(t) - float32(s))", "QKVA"),
}


def step(case: str) -> tuple[ed.Graph, list[str]]:
    """An attention with its gradients, and by what it was differentiated."""
    given, weights, wrt = CASES[case]
    scores = SCORES
    if case == "keys first":
        scores = "S[b,h,g,s,t] <- sum K[b,h,t,e] * Q[b,h,g,s,e]"
    lines = [INPUTS, *([given] if given else []), scores, f"W[b,h,g,s,t] <- {weights}", REST]
    return ed.grad(ed.parse("\n".join(lines)), "loss", list(wrt)), list(wrt)


def arrays_of(graph: ed.Graph, seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    arrays = {v.name: rng.standard_normal(v.shape).astype("float32") for v in graph.inputs}
    if "N" in arrays:
        arrays["N"] = rng.random((2, 8)) > 0.3
        arrays["N"][:, 0] = True
    return arrays


def by_torch(case: str, arrays: Mapping[str, Any], wrt: list[str]) -> Arrays:
    """Autograd's gradients."""
    ts = {name: torch.tensor(array, requires_grad=name in wrt) for name, array in arrays.items()}
    scores = torch.einsum("bhgse,bhte->bhgst", ts["Q"], ts["K"]) * 0.5
    place = torch.arange(8)
    match case:
        case "causal":
            hidden = torch.triu(torch.ones(8, 8), 1).bool()
            scores = scores.masked_fill(hidden, -torch.inf)
        case "padding":
            scores = scores.masked_fill(~ts["N"][:, None, None, None], -torch.inf)
        case "bias":
            scores = scores + ts["L"][None, :, None]
        case "slopes":
            scores = scores + ts["A"][:, None, None, None] * (place - place[:, None]).float()
        case _:
            pass
    result = torch.einsum("bhgst,bhtd->bhgsd", torch.softmax(scores, -1), ts["V"])
    (result * ts["G"]).sum().backward()
    grads = {name: ts[name].grad for name in wrt}
    return {name: grad.numpy() for name, grad in grads.items() if grad is not None}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_torch(case: str) -> None:
    graph, wrt = step(case)
    arrays = arrays_of(graph)
    found = ed.evaluate(graph, arrays)
    for name, wanted in by_torch(case, arrays, wrt).items():
        np.testing.assert_allclose(found[f"grad_{name}"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_nothing_between_is_kept(case: str) -> None:
    graph = ed.rewrite(step(case)[0])
    names = [*graph]
    forward = names[: names.index("loss") + 1]
    size = max(graph[name].elements for name in "QKVG")
    kept = [
        name
        for name in forward
        if any(name in graph[reader].inputs for reader in names[len(forward) :])
        and graph[name].elements > size
        and graph[name].inputs
    ]
    assert not kept


def test_queries_keys_and_values_may_be_one_tensor() -> None:
    text = """
    input X[b: 2,s: 8,e: 4], G[b,s,e]
    S[b,s,t: 8] <- sum X[b,s,e] * X[b,t,e]
    P[b,s,t] <- softmax[t] S[b,s,t]
    O[b,s,e] <- sum P[b,s,t] * X[b,t,e]
    loss[] <- sum O[b,s,e] * G[b,s,e]
    output loss
    """
    graph = ed.grad(ed.parse(text), "loss", ["X"])
    arrays = arrays_of(graph)
    x, g = (torch.tensor(arrays[name]) for name in "XG")
    x.requires_grad_()
    ((torch.softmax(x @ x.mT, -1) @ x) * g).sum().backward()
    assert x.grad is not None
    found = ed.evaluate(graph, arrays)["grad_X"]
    np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_weights_that_are_asked_for_have_a_gradient() -> None:
    given, weights, _ = CASES["plain"]
    graph = ed.parse("\n".join([INPUTS, given, SCORES, f"W[b,h,g,s,t] <- {weights}", REST]))
    made = ed.grad(graph, "loss", ["P", "Q"])
    assert made["grad_P"].shape == made["P"].shape
