"""Graphs of equal layers, as explanations, pictures and reports fold them."""

from __future__ import annotations

import eindecomp as ed

_LAYER = """
input W{0}[i, h], V{0}[h, i]
H{0}[b,h] <- sum X{0}[b,i] * W{0}[i,h]
R{0}[b,h] <- relu(H{0}[b,h])
X{1}[b,i] <- sum R{0}[b,h] * V{0}[h,i]
"""


def layers(count: int) -> ed.Graph:
    """So many layers of two matrix products each."""
    text = "input X0[b: 16, i: 8], SIZES[h: 32]\n"
    text += "".join(_LAYER.format(k, k + 1) for k in range(count))
    return ed.parse(f"{text}\noutput X{count}")


def normed_layers(count: int) -> ed.Graph:
    """So many layers with a norm and a residual each."""
    lines = ["input X0[b: 64, a: 32]"]
    for i in range(count):
        lines += [
            f"input W{i}[a: 32, f: 128], V{i}[f: 128, a: 32]",
            f"N{i}[b] <- sum X{i}[b,a]**2",
            f"H{i}[b,f] <- sum X{i}[b,a] * W{i}[a,f]",
            f"G{i}[b,f] <- silu(H{i}[b,f]) * rsqrt(N{i}[b])",
            f"D{i}[b,a] <- sum G{i}[b,f] * V{i}[f,a]",
            f"X{i + 1}[b,a] <- X{i}[b,a] + D{i}[b,a]",
        ]
    return ed.parse("\n".join([*lines, f"output X{count}"]))
