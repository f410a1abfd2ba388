"""LLaMA's layers in the text language, every norm and softmax written out."""

from __future__ import annotations

import eindecomp as ed

LAYER = """
input N{l}[a: 4096], WQ{l}[a, h: 32, d: 128], WK{l}[a, h, d], WV{l}[a, h, d], WO{l}[h, d, a]
input M{l}[a], W1{l}[a, f: 11008], W3{l}[a, f], W2{l}[f, a]
SX{l}[b,s]    <- sum X{l}[b,s,a]**2
XN{l}[b,s,a]  <- X{l}[b,s,a] * rsqrt(SX{l}[b,s] / 4096 + 1e-5) * N{l}[a]
Q{l}[b,s,h,d] <- sum XN{l}[b,s,a] * WQ{l}[a,h,d]
K{l}[b,s,h,d] <- sum XN{l}[b,s,a] * WK{l}[a,h,d]
V{l}[b,s,h,d] <- sum XN{l}[b,s,a] * WV{l}[a,h,d]
T{l}[b,h,s,t] <- sum Q{l}[b,s,h,d] * K{l}[b,t,h,d]
P{l}[b,h,s,t] <- softmax[t] T{l}[b,h,s,t]
O{l}[b,s,h,d] <- sum P{l}[b,h,s,t] * V{l}[b,t,h,d]
Y{l}[b,s,a]   <- sum O{l}[b,s,h,d] * WO{l}[h,d,a]
R{l}[b,s,a]   <- X{l}[b,s,a] + Y{l}[b,s,a]
SR{l}[b,s]    <- sum R{l}[b,s,a]**2
RN{l}[b,s,a]  <- R{l}[b,s,a] * rsqrt(SR{l}[b,s] / 4096 + 1e-5) * M{l}[a]
G{l}[b,s,f]   <- sum RN{l}[b,s,a] * W1{l}[a,f]
U{l}[b,s,f]   <- sum RN{l}[b,s,a] * W3{l}[a,f]
F{l}[b,s,f]   <- silu(G{l}[b,s,f]) * U{l}[b,s,f]
D{l}[b,s,a]   <- sum F{l}[b,s,f] * W2{l}[f,a]
X{after}[b,s,a] <- R{l}[b,s,a] + D{l}[b,s,a]
"""


def transformer(layers: int, batch: int = 1, sequence: int = 4096) -> ed.Graph:
    """So many layers of LLaMA-7B; what goes in is computed, so that it has a home."""
    text = f"input E[b: {batch}, s: {sequence}, a: 4096]\nX0[b,s,a] <- 2 * E[b,s,a]"
    text += "".join(LAYER.format(l=k, after=k + 1) for k in range(layers))
    return ed.parse(f"{text}\noutput X{layers}")


def small_transformer(layers: int) -> ed.Graph:
    """The same in sizes that the reference computes at once."""
    text = "input E[b: 2, s: 6, a: 4096]\nX0[b,s,a] <- 2 * E[b,s,a]"
    text += "".join(LAYER.format(l=k, after=k + 1) for k in range(layers))
    for large, small in (("4096", "16"), ("11008", "24"), ("h: 32", "h: 4"), ("128", "4")):
        text = text.replace(large, small)
    return ed.parse(f"{text}\noutput X{layers}")
