"""Generic joins, softmax, attention and overheads through the engine, against peers in one run.

Each figure is the best of interleaved repeats; both sides may use both cores.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
import torch
from scipy.spatial.distance import cdist

import eindecomp as ed
from eindecomp.experiments.measure import take_turns

SOFTMAX = """
input T[b: 2, h: 16, s: 1024, t: 1024]
P[b,h,s,t] <- softmax[t] T[b,h,s,t]
output P
"""
ATTENTION = """
input Q[b: 2, s: 1024, h: 16, d: 64], K[b, t: 1024, h, d], V[b, t, h, d]
T[b,h,s,t] <- sum Q[b,s,h,d] * K[b,t,h,d]
P[b,h,s,t] <- softmax[t] (T[b,h,s,t] / 8)
O[b,s,h,d] <- sum P[b,h,s,t] * V[b,t,h,d]
output O
"""


def best(ways: dict[str, Callable[[], object]], repeats: int = 8) -> dict[str, float]:
    """The best seconds of each, taken in turns."""
    timings, _ = take_turns(ways, repeats)
    return {name: timing.best for name, timing in timings.items()}


def show(what: str, times: dict[str, float]) -> None:
    ours = times["ours"]
    for name, seconds in times.items():
        print(
            f"{what:14} {name:18} {seconds * 1e3:9.2f} ms  it/ours {seconds / ours:6.2f}",
            flush=True,
        )


def distances() -> None:
    """max |x - y| and sum (x - y)² over 1000³."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((1000, 1000)).astype(np.float32) for _ in range(2))
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)

    def broadcast(join: Callable[[torch.Tensor], torch.Tensor], rows: int = 1000) -> torch.Tensor:
        return torch.cat([join(chunk[:, None] - ty[None]) for chunk in tx.split(rows)])

    show(
        "L-infinity",
        best(
            {
                "ours": lambda: ed.einsum("ik,jk->ij", x, y, join="abs(x-y)", agg="max"),
                "torch broadcast": lambda: broadcast(lambda d: d.abs().amax(-1)),
                "torch, 50 rows": lambda: broadcast(lambda d: d.abs().amax(-1), 50),
                "torch.cdist": lambda: torch.cdist(tx, ty, p=float("inf")),
                "scipy cdist": lambda: cdist(x, y, "chebyshev"),
            },
            4,
        ),
    )
    show(
        "squared L2",
        best(
            {
                "ours": lambda: ed.einsum("ik,jk->ij", x, y, join="(x-y)**2", agg="sum"),
                "torch broadcast": lambda: broadcast(lambda d: (d * d).sum(-1)),
                "torch, 50 rows": lambda: broadcast(lambda d: (d * d).sum(-1), 50),
                "torch.cdist": lambda: torch.cdist(
                    tx, ty, compute_mode="donot_use_mm_for_euclid_dist"
                ),
                "scipy cdist": lambda: cdist(x, y, "sqeuclidean"),
            },
            4,
        ),
    )


def attention() -> None:
    """Softmax and attention as graphs of several vertices."""
    for what, text, peer in (
        ("softmax", SOFTMAX, lambda x: torch.softmax(torch.from_numpy(x["T"]), -1)),
        (
            "attention",
            ATTENTION,
            lambda x: torch.nn.functional.scaled_dot_product_attention(
                *(torch.from_numpy(x[n]).transpose(1, 2) for n in "QKV")
            ),
        ),
    ):
        graph = ed.parse(text)
        rng = np.random.default_rng(0)
        x = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
        plans = {n: ed.plan(graph, n) for n in (2, 8)}
        ways: dict[str, Callable[[], object]] = {
            "ours": lambda plans=plans, x=x: ed.run(plans[2], x),
            "ours, 8 devices": lambda plans=plans, x=x: ed.run(plans[8], x),
            "torch": lambda peer=peer, x=x: peer(x),
            "numpy": lambda x=x, what=what: _numpy(what, x),
        }
        show(what, best(ways))


def _numpy(what: str, x: dict[str, np.ndarray]) -> np.ndarray:
    if what == "softmax":
        return _softmax(x["T"])
    q, k, v = (x[name].transpose(0, 2, 1, 3) for name in "QKV")
    return _softmax(q @ k.swapaxes(2, 3) / 8) @ v


def _softmax(t: np.ndarray) -> np.ndarray:
    e = np.exp(t - t.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def trivial_tasks(vertices: int, devices: int) -> None:
    """Vertices that do nothing but wait for the one before, on tiles of one element."""
    graph = ed.Graph()
    graph.input("X", {"i": devices})
    last = "X"
    for k in range(vertices):
        last = graph.einsum("i->i", last, join="x+1", name=f"Z{k}").name
    graph.output(last)
    plan = ed.plan(graph, devices, strategy=["i"], rewrite=False)
    executable = ed.compile(plan)
    x = {"X": np.zeros(devices, np.float32)}
    seconds = best({"run": lambda: executable(x)}, 3)["run"]
    print(f"{vertices:,} vertices on {devices} devices, trivial tasks: {seconds:.2f} s")


def overhead() -> None:
    """Trivial tasks, and one small einsum again and again."""
    trivial_tasks(1_000, 100)  # each is a thousandth of all work: one call for every task
    trivial_tasks(6_250, 16)  # less than that: one call for the tasks of a vertex
    small = np.ones((8, 8), np.float32)
    for spec, join in (("ij,jk->ik", None), ("ij,ij->ij", "x-y")):
        start = perf_counter()
        for _ in range(2000):
            ed.einsum(spec, small, small, join=join)
        print(f"einsum {spec} of 8 × 8: {(perf_counter() - start) / 2000 * 1e6:.0f} µs a call")


def scaling() -> None:
    """Two workers against one on the chain, and the memory held against what must be."""
    graph = ed.models.chain(2000)
    rng = np.random.default_rng(0)
    x = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    plan = ed.plan(graph, 2)
    one, two = (ed.compile(plan, workers=workers) for workers in (1, 2))
    times = best({"one": lambda: one(x), "two": lambda: two(x)})
    held = ed.run(plan, x).stats.peak_memory
    least = sum(v.elements * 4 for v in (*graph.inputs, *graph.outputs, graph["DE"]))
    print(f"two workers {times['one'] / times['two']:.2f} × one; memory {held / least:.2f} × least")


if __name__ == "__main__":
    distances()
    attention()
    overhead()
    scaling()
