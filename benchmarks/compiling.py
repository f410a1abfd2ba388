"""How long a first run compiles: the gradients of a transformer of three layers, nothing on disk.

Less than 3 s is the bar. Then the same on other numbers of devices, which should add little, and in
another process, which should load what is on disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from time import perf_counter

import numpy as np

import eindecomp as ed
from eindecomp.engines.result import Event, KernelCompiled

_SIZES = {"b": 2, "s": 64, "a": 128, "h": 4, "d": 32, "f": 256, "v": 100}
_LAYER = """
input N{l}[a], WQ{l}[a, h: {h}, d: {d}], WK{l}[a, h, d], WV{l}[a, h, d], WO{l}[h, d, a]
input NF{l}[a], WG{l}[a, f: {f}], WU{l}[a, f], WD{l}[f, a]
SX{l}[b,s]    <- sum X{l}[b,s,a]**2 / {a}
XN{l}[b,s,a]  <- X{l}[b,s,a] * rsqrt(SX{l}[b,s] + 1e-5) * N{l}[a]
Q{l}[b,s,h,d] <- sum XN{l}[b,s,a] * WQ{l}[a,h,d]
K{l}[b,t,h,d] <- sum XN{l}[b,t,a] * WK{l}[a,h,d]
V{l}[b,t,h,d] <- sum XN{l}[b,t,a] * WV{l}[a,h,d]
T{l}[b,h,s,t] <- sum Q{l}[b,s,h,d] * K{l}[b,t,h,d]
P{l}[b,h,s,t] <- softmax[t] (where(M[s,t], T{l}[b,h,s,t] / sqrt({d}), -1e30))
O{l}[b,s,h,d] <- sum P{l}[b,h,s,t] * V{l}[b,t,h,d]
Y{l}[b,s,a]   <- sum O{l}[b,s,h,d] * WO{l}[h,d,a]
R{l}[b,s,a]   <- X{l}[b,s,a] + Y{l}[b,s,a]
SR{l}[b,s]    <- sum R{l}[b,s,a]**2 / {a}
RN{l}[b,s,a]  <- R{l}[b,s,a] * rsqrt(SR{l}[b,s] + 1e-5) * NF{l}[a]
G{l}[b,s,f]   <- sum RN{l}[b,s,a] * WG{l}[a,f]
U{l}[b,s,f]   <- sum RN{l}[b,s,a] * WU{l}[a,f]
B{l}[b,s,f]   <- silu(G{l}[b,s,f]) * U{l}[b,s,f]
D{l}[b,s,a]   <- sum B{l}[b,s,f] * WD{l}[f,a]
X{n}[b,s,a]   <- R{l}[b,s,a] + D{l}[b,s,a]
"""


def gradients(layers: int) -> ed.Graph:
    """A loss over the vocabulary, and the gradients of all weights."""
    text = "input X0[b: {b}, s: {s}, a: {a}], target[b, s] int32, H[v: {v}, a]\n"
    text += "M[s: {s}, t: {s}] <- fill t <= s\n"
    text = text.format(**_SIZES)
    text += "".join(_LAYER.format(l=k, n=k + 1, **_SIZES) for k in range(layers))
    text += f"logits[b,s,v] <- sum X{layers}[b,s,a] * H[v,a]\n"
    text += f"C[b,s,v] <- softmax[v] logits[b,s,v]\nJ[v: {_SIZES['v']}] <- fill v\n"
    text += "loss[] <- sum where(J[v] == target[b,s], -log(C[b,s,v] + 1e-9), 0)\noutput loss"
    graph = ed.parse(text)
    weights = [v.name for v in graph.inputs if v.name not in ("X0", "target")]
    return ed.grad(graph, "loss", wrt=weights)


def main() -> None:
    graph = gradients(3)
    rng = np.random.default_rng(0)
    inputs = {
        v.name: rng.integers(0, 9, v.shape).astype(v.dtype)
        if v.dtype.kind == "i"
        else rng.standard_normal(v.shape, np.float32)
        for v in graph.inputs
    }
    for devices in (2, 1, 4, 8):
        plan = ed.plan(graph, devices, time_limit=5)
        spent: list[float] = []

        def hear(event: Event, spent: list[float] = spent) -> None:
            if isinstance(event, KernelCompiled):
                spent.append(event.end - event.start)

        start = perf_counter()
        ed.run(plan, inputs, on_event=hear)
        first = perf_counter() - start
        start = perf_counter()
        ed.run(plan, inputs)
        print(
            f"  {devices} devices: {len(spent)} kernels compiled in {sum(spent):.2f} s; first run "
            f"{first:.2f} s, second {perf_counter() - start:.3f} s",
            flush=True,
        )


if __name__ == "__main__":
    if "--again" in sys.argv:
        main()
    else:
        with tempfile.TemporaryDirectory() as folder:
            for when in ("nothing on disk", "another process"):
                print(f"{when}:", flush=True)
                subprocess.run(  # noqa: S603
                    [sys.executable, __file__, "--again"],
                    env=os.environ | {"XDG_CACHE_HOME": folder},
                    check=True,
                )
