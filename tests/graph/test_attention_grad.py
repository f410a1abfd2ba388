"""The gradient of attention as a whole: it is PyTorch's, and nothing between is kept for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import eindecomp as ed
from attention_grad_cases import CASES, INPUTS, REST, SCORES, arrays_of, by_torch, step


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
