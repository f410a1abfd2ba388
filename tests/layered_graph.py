"""A graph of equal layers, as reports fold them."""

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
