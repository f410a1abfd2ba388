"""Attentions with a loss and their gradients, and what PyTorch's autograd makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
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
